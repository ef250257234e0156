"""A source read in this process: an iterator of records, for tests, notebooks and small programs."""

from __future__ import annotations

import atexit
import logging
import socket
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from headgate.errors import ClosedError, NotBuiltError, SourceError
from headgate.source.api.source import Source
from headgate.source.arguments import refuse, whole_number
from headgate.source.coordination.coordinator import SourceCoordinator
from headgate.source.coordination.local import (
    LocalCheckpoint,
    LocalGateway,
    LocalReaderContext,
)
from headgate.source.coordination.thread import CoordinatorThread
from headgate.source.runtime.bell import Bell
from headgate.source.runtime.operator import SourceOperator
from headgate.source.watermark.strategy import WatermarkStrategy

if TYPE_CHECKING:
    import pyarrow as pa

_LOG: Final = logging.getLogger("headgate.source")

T = TypeVar("T")

_MOST_READERS: Final = 100_000

#: Seconds that a close waits for an enumerator and for what it runs asynchronously.
_CLOSE: Final = 2.0

_open: weakref.WeakSet[LocalRead[Any]] = weakref.WeakSet()


def read(
    source: Source[T, Any, Any],
    parallelism: int = 1,
    *,
    watermarks: WatermarkStrategy | None = None,
    checkpoint: bytes | None = None,
    allow_unaligned_splits: bool = False,
) -> LocalRead[T]:
    """Read a source in this process.

    Args:
        source: bounded or not.
        parallelism: how many readers there are; all are polled in the caller's thread, in turn.
        watermarks: how watermarks are made; None for those of the source itself.
        checkpoint: what :meth:`LocalRead.checkpoint` gave: go on after the records that it covers.
            The parallelism may be another one.
        allow_unaligned_splits: whether a reader that cannot pause single splits may go on without.

    Raises:
        OptionError: the parallelism is less than 1; an argument of another type.
        StateVersionError: the checkpoint is none, or of a version that is not known.
    """
    _is_a("source", source, Source, "NumberSequenceSource(0, 10)")
    _is_a("watermarks", watermarks, WatermarkStrategy | None, "WatermarkStrategy.no_watermarks()")
    _is_a("checkpoint", checkpoint, bytes | None, "what LocalRead.checkpoint() returned")
    whole_number("parallelism", parallelism, 1, _MOST_READERS)
    return LocalRead(
        source,
        parallelism,
        watermarks=watermarks,
        checkpoint=checkpoint,
        allow_unaligned_splits=allow_unaligned_splits,
    )


class LocalRead(Generic[T]):
    """The records of a source, one by one; made by :func:`read`. Used by one thread at a time.

    Reading begins with the first record that is asked for. Interrupted by Ctrl-C it can go on.
    Leave the ``with`` block or call :meth:`close` at the end; what is merely forgotten is closed by
    the garbage collector, and at the end of the process.
    """

    def __init__(
        self,
        source: Source[T, Any, Any],
        parallelism: int,
        *,
        watermarks: WatermarkStrategy | None,
        checkpoint: bytes | None,
        allow_unaligned_splits: bool,
    ) -> None:
        self._source = source
        self._restored = None if checkpoint is None else LocalCheckpoint.from_bytes(checkpoint)
        self._bell = Bell()
        self._thread = CoordinatorThread()
        self._gateway = LocalGateway(self._bell.ring)
        self._coordinator: SourceCoordinator[Any, Any] = SourceCoordinator(
            source, parallelism, self._gateway, self._thread, watermarks=watermarks
        )
        self._operators: list[SourceOperator[T]] = [
            SourceOperator(
                source,
                LocalReaderContext(self._coordinator, subtask, parallelism),
                watermarks=watermarks,
                report_watermark=partial(self._coordinator.report_watermark, subtask),
                report_finished=partial(self._coordinator.splits_finished, subtask),
                allow_unaligned_splits=allow_unaligned_splits,
            )
            for subtask in range(parallelism)
        ]
        self._gateway.operators = self._operators
        self._turn = 0
        self._checkpoint_id = 0
        self._unconfirmed = 0
        self._is_started = False
        self._has_ended = False
        self._is_closed = False
        self._finalizer: weakref.finalize[Any, Any] | None = None

    def __iter__(self) -> Self:
        """Return this read itself: it is read once."""
        return self

    def __next__(self) -> T:
        """Return the next record of any reader; wait for it.

        Raises:
            SourceError: the source failed; then this read is closed.
            ClosedError: it was closed before its end.
        """
        if self._has_ended:
            raise StopIteration
        self._check_open()
        try:
            self._start()
            self._confirm()
            while True:
                self._bell.clear()
                if self._gateway.error is not None:
                    raise self._gateway.error
                for _ in self._operators:
                    record = self._operators[self._turn].poll()
                    if record is not None:
                        # The records of one element are handed out together, so that a checkpoint
                        # after them finds no other reader in the middle of one.
                        if not self._operators[self._turn].pending:
                            self._pass_turn()
                        return record
                    self._pass_turn()
                if all(operator.is_finished for operator in self._operators):
                    break
                self._bell.wait(self._timeout())
        except Exception:
            self._close_after_failure()
            raise
        self._has_ended = True
        for operator in self._operators:
            operator.close()
        raise StopIteration

    def __enter__(self) -> Self:
        """Return this read."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    @property
    def current_watermark(self) -> int:
        """No record at or before it, in ms since 1970, follows; the least of all readers."""
        return min(operator.current_watermark for operator in self._operators)

    @property
    def total_splits(self) -> int | None:
        """How many splits there are in all, None where the source does not know."""
        return self._coordinator.total_splits

    @property
    def finished_splits(self) -> int:
        """How many splits were read to their end."""
        return self._coordinator.finished_splits

    def checkpoint(self) -> bytes:
        """Return what covers exactly the records handed out so far, for :func:`read`.

        When the next record is asked for it counts as stored for good: sources that acknowledge
        what was read do it then.

        Raises:
            SourceError: the source could not give its state.
            NotBuiltError: one element of a reader became several records, and not all of them have
                been handed out.
            ClosedError: this read is closed.
        """
        self._check_open()
        self._start()
        self._checkpoint_id += 1
        asked = self._gateway.checkpoint(self._coordinator, self._checkpoint_id)
        try:
            state = asked.result()
            splits: list[tuple[str, bytes]] = []
            if not self._has_ended:
                for operator in self._operators:
                    splits += operator.snapshot(self._checkpoint_id)
        except BaseException:
            self._coordinator.checkpoint_aborted(self._checkpoint_id)
            raise
        finally:
            self._gateway.go_on(asked)
        self._unconfirmed = self._checkpoint_id
        return LocalCheckpoint(state, self._source.split_serializer.version, splits).to_bytes()

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the batches that are left, for whatever takes an Arrow stream.

        It reads through this object, which must not be closed before it.

        Raises:
            NotBuiltError: the source has no schema, so its records are no batches.
        """
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and not every source needs it

        schema = self._source.schema
        if schema is None:
            raise NotBuiltError(
                f"{self._source.name} has no schema, so its records are no Arrow batches",
                asked="to_reader()",
                remedy="for record in read(source): ... · give the source a schema",
            )
        return pa.RecordBatchReader.from_batches(schema, self._batches())

    def close(self) -> None:
        """End all readers and the enumerator; a second time does nothing.

        Raises:
            SourceError: a reader failed in its close; everything else is closed.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if self._finalizer is None:
            return  # never started
        self._finalizer.detach()
        try:
            _close_operators(self._operators)
        finally:
            self._coordinator.close(_CLOSE)
            self._thread.close(_CLOSE)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError(
                f"this read of {self._source.name} is closed",
                remedy="read(source, checkpoint=...) goes on where a checkpoint was taken",
            )

    def _start(self) -> None:
        if self._is_started:
            return
        self._is_started = True
        parts = self._thread, self._coordinator, self._operators
        self._finalizer = weakref.finalize(self, _abandon, *parts)
        self._finalizer.atexit = False  # see _close_open
        _open.add(self)
        try:
            self._start_all()
        except BaseException:
            self._close_after_failure()
            raise

    def _start_all(self) -> None:
        restored, self._restored = self._restored, None
        self._coordinator.start(None if restored is None else restored.enumerator)
        for subtask, operator in enumerate(self._operators):
            operator.attach_wake_up(self._bell.ring)
            if restored is not None and (own := restored.splits[subtask :: len(self._operators)]):
                operator.add_splits(restored.split_version, own)
            # First registered: its start() may ask for a split.
            self._coordinator.register_reader(subtask, socket.gethostname())
            operator.start()

    def _confirm(self) -> None:
        if self._unconfirmed:
            checkpoint_id, self._unconfirmed = self._unconfirmed, 0
            self._coordinator.checkpoint_complete(checkpoint_id)
            told: Future[None] = Future()
            if self._thread.execute(lambda: told.set_result(None)):
                told.result()  # a close right after this must not drop it
            for operator in self._operators:
                operator.notify_checkpoint_complete(checkpoint_id)

    def _pass_turn(self) -> None:
        self._turn = (self._turn + 1) % len(self._operators)

    def _timeout(self) -> float | None:
        due = [t for operator in self._operators if (t := operator.timeout()) is not None]
        return min(due, default=None)

    def _close_after_failure(self) -> None:
        try:
            self.close()
        except Exception:  # noqa: BLE001 - logged; the first failure is what counts
            _LOG.exception("a reader of %s failed in close, too", self._source.name)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415 - loaded by to_reader already

        for record in self:
            if not isinstance(record, pa.RecordBatch):
                raise SourceError(
                    f"{self._source.name} has a schema, but a record of it is a "
                    f"{type(record).__name__} and no RecordBatch",
                    remedy="emit batches · no schema",
                )
            yield record


def _is_a(name: str, value: object, kind: Any, takes: str) -> None:
    if isinstance(value, kind):
        return
    what = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
    raise refuse(name, value, f"is {what}", f"an object such as {takes}", takes)


def _close_operators(operators: list[SourceOperator[T]]) -> None:
    """Close all, then raise the first error of any."""
    errors = []
    for operator in operators:
        try:
            operator.close()
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)
    if errors:
        raise errors[0]


def _abandon(
    thread: CoordinatorThread,
    coordinator: SourceCoordinator[Any, Any],
    operators: list[SourceOperator[Any]],
) -> None:
    """Close what belonged to a read that nobody has any more.

    A garbage collection may call this anywhere, with any lock held: so here only a message is left,
    and the coordinator's thread does the rest.
    """

    def close() -> None:
        try:
            _close_operators(operators)
        except Exception:  # noqa: BLE001 - logged; nobody is there to be told
            _LOG.exception("a reader failed in close")
        coordinator.close()
        thread.close()

    thread.execute(close)


@atexit.register
def _close_open() -> None:
    """Close what is open at the end of the process, while its threads still run."""
    for left in list(_open):
        left._close_after_failure()  # noqa: SLF001 - of this module
