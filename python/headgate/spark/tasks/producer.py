"""The body of a producer task: register a partition, map, send, wait until consumers have all."""

from __future__ import annotations

import socket
import threading
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

import headgate as hg
from headgate import errors
from headgate.control.cause import CANCELLED, Cause
from headgate.observe.edges import folded
from headgate.schema_cast import same_on_the_wire
from headgate.spark.ddl_cast import DdlCast
from headgate.spark.tasks.consumer import explain
from headgate.spark.tasks.control import Control, Counts
from headgate.spark.tasks.placing import selector_of
from headgate.spark.tasks.task import ProducerTask, environment, here
from headgate.spark.tasks.timing import BLOCKED, EMIT, FUNCTION, INPUT, Clock
from headgate.spark.tasks.user_function import Source, UserFunctionFailed, apply, user_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from headgate.spark.tasks.source_tasks import Reading
    from headgate.spark.tasks.task import SourcePlan
    from headgate.spark.wire.messages import Message

#: Seconds that the coordinator has to report the end of a consumer whose connection closed. If it
#: reports none, only the connection broke, and pages in flight may be lost.
LOST_CONSUMER: Final = 5.0
#: Columns of the rows that a producer job returns, one row per task.
RESULT: str = "partition int, attempt long, rows long, bytes long, pages long"


def run(task: ProducerTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Send the partition's rows to their consumers; yield one row of totals.

    A producer connects once it has its first batch, because consumers can join a run only before a
    producer has connected, and its input may be another exchange that still waits for a slot. The reader of a source has no input: it connects at once, and registers with the first
    batch of its first split.
    """
    import pyarrow as pa  # noqa: PLC0415 - only workers need it

    identity = here()
    # Spark reuses a worker only if its input was read to the end; the input of a reader is one number.
    batches = _in_hand(batches) if task.source is None else list(batches)
    with Control(task.place) as control:
        control.bind(task.run, task.epoch)
        control.send("PRODUCER", identity.fields())
        message = control.receive()
        while message.kind == "WAIT":
            message = control.receive()
        if message.kind == "EPOCH_ENDED":
            control.send("READY")
        if message.kind in {"ABORT", "EPOCH_ENDED"}:
            raise Cause.from_fields(message.fields).error()
        totals = {"rows": 0, "bytes": 0, "pages": 0}
        if message.kind == "GO":
            totals = _sender(task, control, message["wanted"]).send(batches)
    row = {"partition": identity.partition, "attempt": identity.attempt, **totals}
    schema = [("partition", pa.int32()), *((name, pa.int64()) for name in list(row)[1:])]
    yield pa.RecordBatch.from_pylist([row], schema=pa.schema(schema))


def _sender(task: ProducerTask, control: Control, wanted: list[int]) -> _Sender:
    try:
        return _Sender(task, control, wanted)
    except Exception as error:  # noqa: BLE001 - every error is reported to the coordinator
        raise explain(control, error, None, "producer") from None


def _in_hand(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the same batches, after waiting for the first one."""
    rest = iter(batches)
    return chain(list(islice(rest, 1)), rest)


class _Sender:
    def __init__(self, task: ProducerTask, control: Control, wanted: list[int]) -> None:
        self._task = task
        self._control = control
        self._wanted = wanted
        self._counts = Counts(about={"hostname": socket.gethostname()})
        self._cause: Cause | None = None
        self._finish = threading.Event()
        #: True once the epoch has ended early, by ``_cause``.
        self._ended = False
        self._environment = environment(task, control, task.run, task.epoch)
        self._counts.waits = self._environment.waits
        self._partition = self._environment.create_result_partition(
            task.num_partitions,
            schema=task.schema,
            wanted=wanted,
            lost_consumer_timeout=LOST_CONSUMER,
        )
        self._reading = None if task.source is None else self._reader(task.source)

    def send(self, batches: Iterable[pa.RecordBatch]) -> dict[str, int]:
        """Send everything; return rows, bytes and pages."""
        try:
            return self._send(batches)
        except UserFunctionFailed as failure:
            if self._ended:
                raise self._over() from None
            where = here().words("producer")
            cause = Cause.of(user_error(failure, where), where=where)
            self._control.send("FAILED", cause.fields())
            raise
        except Exception as error:  # noqa: BLE001 - every error is reported to the coordinator
            if self._finish.is_set():
                return self._stopped()
            if self._ended:
                raise self._over() from None
            raise explain(self._control, error, self._cause, "producer") from None
        finally:
            if self._reading is not None:
                self._reading.close()
            self._environment.close()

    def _reader(self, plan: SourcePlan) -> Reading:
        from headgate.spark.tasks.source_tasks import Reading  # noqa: PLC0415 - only sources need it

        return Reading(self._task, plan, self._control, here().partition)

    def _over(self) -> errors.HeadgateError:
        cause = self._cause or CANCELLED
        return cause.error()

    def _stopped(self) -> dict[str, int]:
        totals = {"rows": self._counts.rows, "bytes": self._counts.bytes, "pages": 0}
        self._control.send("STOPPED", {**totals, "peak": 0})
        return totals

    def _send(self, batches: Iterable[pa.RecordBatch]) -> dict[str, int]:
        writer = hg.RecordWriter(
            self._partition, schema=self._task.schema, selector=self._selector()
        )
        clock = Clock()
        clock.blocked_ns = writer.back_pressured_ns
        self._counts.clocks.append(clock)
        if self._reading is None:
            self._register()
            self._control.listen(self._handle, self._counts)
        else:
            self._control.listen(self._handle, self._counts)
            clock.enter(INPUT)
            batches = _in_hand(self._reading.records())
            if self._finish.is_set():
                return self._stopped()
            self._register()
        given = self._task.schema if self._task.given is None else self._task.given
        source = Source(batches, given, lambda _: None, clock)
        for batch in self._cast(apply("map", self._task.map, source)):
            if self._finish.is_set():
                break
            self._counts.rows += batch.num_rows
            self._counts.bytes += batch.nbytes
            clock.enter(EMIT)
            self._emit(writer, batch)
            clock.enter(FUNCTION)
        if source.error is not None:
            raise source.error  # map caught it and went on, so rows are missing
        writer.finish()
        clock.enter(BLOCKED)
        self._partition.wait_consumed()
        stats = writer.stats()
        totals = {"rows": stats.rows, "bytes": stats.bytes, "pages": stats.buffers}
        seen = self._environment.stats()
        each, edges = folded([one["bytes"] for one in seen["partitions"][0]])
        self._counts.about.update(edges=edges, edges_each=each)
        self._control.progress(self._counts)
        self._control.send("DONE", {**totals, "peak": seen["peak_bytes"]})
        self._control.await_message("OK", "ABORT", "FINISH", "EPOCH_ENDED")
        return totals

    def _cast(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the batches with the schema of the wire, which those of a DataFrame have."""
        task = self._task
        if task.map is None and task.source is None:
            return batches
        function = "map" if task.source is None or task.map is not None else "the source"
        option, schema = task.map_option, task.schema
        return DdlCast(schema, function, option, same_on_the_wire).all(batches)

    @staticmethod
    def _emit(writer: hg.RecordWriter, batch: pa.RecordBatch) -> None:
        try:
            writer.emit(batch)
        except errors.SelectorError as error:
            if isinstance(error.__cause__, UserFunctionFailed):
                raise error.__cause__ from error.__cause__.__cause__
            raise

    def _register(self) -> None:
        address = self._partition.address(self._wanted[0] if self._wanted else 0)
        self._control.send(
            "REGISTERED",
            {
                "host": address.host,
                "port": address.port,
                "partition_id": address.partition_id.hex(),
                "process_id": address.process_id.hex(),
            },
        )

    def _selector(self) -> Any:
        task = self._task
        seed = int.from_bytes(task.place.exchange_id[:8])
        return selector_of(task.by, here().partition, task.num_partitions, seed)

    def _handle(self, message: Message) -> None:
        match message.kind:
            case "ASSIGN" | "NO_MORE_SPLITS" | "SOURCE_EVENT" | "ALIGN":
                if self._reading is not None:
                    self._reading.handle(message)
            case "CONSUMER_GONE":
                self._partition.release_subpartition(message["index"])
            case "FINISH":
                self._finish.set()
                if self._reading is not None:
                    self._reading.stop()
                for index in self._wanted:
                    self._partition.release_subpartition(index)
            case "ABORT" | "EPOCH_ENDED":
                self._ended = message.kind == "EPOCH_ENDED"
                self._cause = Cause.from_fields(message.fields)
                if self._ended:
                    self._control.send("READY")
                if self._reading is not None:
                    self._reading.fail(self._cause.error())
                self._environment.abort(self._cause.summary)
            case _:
                return  # OK: the main thread waits for it
