"""The body of a consumer task: register, wait for START, read the gate, reduce, report the end."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING, Final

import headgate as hg
from headgate import errors
from headgate.control.cause import CANCELLED, Cause
from headgate.spark.ddl_cast import DdlCast
from headgate.spark.tasks.control import Control, Counts
from headgate.spark.tasks.task import ConsumerTask, environment, here, numbers_in
from headgate.spark.tasks.timing import Clock, yielded
from headgate.spark.tasks.user_function import Source, UserFunctionFailed, apply, user_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from headgate.spark.wire.messages import Message

#: Seconds that a task which failed because of another one waits, so that the other one reports first.
DERIVED: Final = 0.5
#: Seconds that a task whose peer failed waits for the cause.
EXPLAIN: Final = 6.0


def run(task: ConsumerTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of this task's subpartitions, whose numbers are the rows of ``batches``."""
    for index in numbers_in(batches):
        with Control(task.place) as control:
            control.send("CONSUMER", {**here().fields(), "index": index})
            yield from _serve(task, control, index)


def _serve(task: ConsumerTask, control: Control, index: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one index; begin again in each epoch until a row was yielded."""
    while True:
        message = control.receive()
        if message.kind == "ABORT":
            raise Cause.from_fields(message.fields).error()
        if message.kind == "START":
            control.bind(message.run, message.epoch)
            try:
                yield from _resident(task, control, message, index).read()
            except _EpochOver:
                control.send("READY")
            else:
                return


def _resident(task: ConsumerTask, control: Control, start: Message, index: int) -> _Resident:
    try:
        return _Resident(task, control, start, index)
    except Exception as error:  # noqa: BLE001 - every error is reported to the coordinator
        raise explain(control, error, None, "consumer") from None


class _EpochOver(Exception):
    """The epoch has ended and no row has left the task: it can begin again in place."""


def derived(cause: Cause) -> errors.HeadgateError:
    """Wait until the failed task has reported, then return the error for this one."""
    time.sleep(DERIVED)
    return cause.error()


class _Resident:
    def __init__(self, task: ConsumerTask, control: Control, start: Message, index: int) -> None:
        self._task = task
        self._control = control
        self._index = index
        self._counts = Counts(about={"hostname": socket.gethostname()})
        self._cause: Cause | None = None
        self._producers: set[int] = set()
        self._lock = threading.Lock()
        #: True once a batch has left the task. The lock decides if that is before the epoch's end.
        self._has_yielded = False
        self._ended: Cause | None = None
        self._environment = environment(task, control, start.run, start.epoch)
        self._gate = self._environment.create_input_gate(sealed=False, schema=task.schema)

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the result; report how it ended."""
        try:
            self._control.listen(self._handle, self._counts)
            for batch in self._reduce():
                self._mark_yielded()
                yield batch
            self._control.progress(self._counts)
            self._control.send("DONE", self._totals())
            self._control.await_message("OK", "ABORT")
        except GeneratorExit:
            self._control.progress(self._counts)
            self._control.send("STOPPED", self._totals())
            raise
        except UserFunctionFailed as failure:
            if self._ended is not None:
                raise self._over(self._ended) from None
            where = here().words("consumer")
            cause = Cause.of(user_error(failure, where), where=where)
            self._control.send("FAILED", cause.fields())
            raise
        except Exception as error:  # noqa: BLE001 - every error is reported to the coordinator
            known = error if self._ended is not None else self._explain(error)
            raise (known if self._ended is None else self._over(self._ended)) from None
        finally:
            self._environment.close()

    def _mark_yielded(self) -> None:
        with self._lock:
            if self._ended is None:
                self._has_yielded = True
                return
        raise _EpochOver

    def _explain(self, error: Exception) -> errors.HeadgateError:
        return explain(self._control, error, self._cause, "consumer")

    def _over(self, ended: Cause) -> Exception:
        """Return the error to raise at the end of the epoch: the task fails once rows have left it."""
        if not self._has_yielded:
            return _EpochOver()
        # The coordinator may know a better cause by then.
        message = self._control.receive()
        fields = message.fields if message.kind == "ABORT" else ended.fields()
        return Cause.from_fields(fields).error()

    def _reduce(self) -> Iterator[pa.RecordBatch]:
        task = self._task
        reader = hg.RecordReader(self._gate, schema=task.schema, batch_bytes=task.batch_bytes)
        clock = Clock()
        self._counts.clocks.append(clock)
        source = Source(reader, task.schema, self._count, clock, task.order)
        batches = apply("reduce", task.reduce, source)
        if task.reduce is not None and task.result is not None:
            batches = DdlCast(task.result, "reduce").all(batches)
        yield from yielded(batches, clock)
        if source.error is not None:
            raise source.error  # reduce caught it and went on, so rows are missing

    def _count(self, batch: pa.RecordBatch) -> None:
        self._counts.rows += batch.num_rows
        self._counts.bytes += batch.nbytes

    def _totals(self) -> dict[str, int]:
        peak = self._environment.stats().get("peak_bytes", 0)
        return {"rows": self._counts.rows, "bytes": self._counts.bytes, "pages": 0, "peak": peak}

    def _handle(self, message: Message) -> None:
        match message.kind:
            case "PARTITION":
                self._producers.add(message["producer"])
                self._gate.add_channel(_address(message, self._index))
            case "SEALED":
                self._seal(message["producers"])
            case "EPOCH_ENDED":
                self._end_epoch(Cause.from_fields(message.fields))
            case "ABORT":
                self._cause = Cause.from_fields(message.fields)
                self._stop()
            case _:
                return  # OK: the main thread waits for it

    def _end_epoch(self, cause: Cause) -> None:
        with self._lock:
            self._ended = cause
        if self._has_yielded:
            self._control.send("YIELDED")
        self._stop()

    def _seal(self, producers: int) -> None:
        if producers != len(self._producers):
            self._cause = Cause(
                errors.IntegrityError.code,
                "a consumer got the addresses of some producers only, so it would miss rows",
                have=f"{len(self._producers)} of {producers} producers",
            )
            self._stop()
            return
        self._gate.seal()

    def _stop(self) -> None:
        cause = self._cause or self._ended or CANCELLED
        self._gate.fail(cause.summary)


def explain(
    control: Control, error: Exception, known: Cause | None, role: str
) -> errors.HeadgateError:
    """Report an error of the exchange itself, and return the error to raise for it."""
    if control.error is not None:
        error, known = control.error, None
    if known is not None:
        return derived(known)
    where = here().words(role)
    if isinstance(error, errors.CoordinatorError):
        return error
    cause = Cause.of(error, where=where)
    control.send("FAILED", cause.fields())
    if cause.is_second_hand:
        told = control.await_message("ABORT", "EPOCH_ENDED", timeout=EXPLAIN)
        if told is not None and told.kind == "ABORT":
            return derived(Cause.from_fields(told.fields))
    return cause.error()


def _address(message: Message, index: int) -> hg.ChannelAddress:
    return hg.ChannelAddress(
        host=message["host"],
        port=message["port"],
        partition_id=bytes.fromhex(message["partition_id"]),
        subpartition=index,
        process_id=bytes.fromhex(message["process_id"]),
        schema=None,
    )
