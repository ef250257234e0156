"""Reads a source in this process, as an iterator of records."""

from __future__ import annotations

import atexit
import logging
import socket
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from headgate._arguments import instance, takes, whole
from headgate._closing import Closing
from headgate.errors import ClosedError, NotBuiltError, SourceError
from headgate.source.api.source import Source
from headgate.source.coordination.coordinator import SourceCoordinator
from headgate.source.coordination.thread import CoordinatorThread
from headgate.source.local_checkpoint import LocalCheckpoint
from headgate.source.runtime.context import LocalReaderContext
from headgate.source.runtime.mailbox import Mailbox
from headgate.source.runtime.operator import SourceOperator
from headgate.source.watermark.strategy import WatermarkStrategy

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.errors import HeadgateError
    from headgate.source.api.event import SourceEvent

_LOG: Final = logging.getLogger("headgate.source")

T = TypeVar("T")

MOST_READERS: Final = 100_000

#: Longest wait of a close for the enumerator and for its asynchronous work, in seconds.
_CLOSE: Final = 2.0

_open: weakref.WeakSet[LocalRead[Any]] = weakref.WeakSet()


@takes(
    source=instance("a Source", Source, remedy="read(NumberSequenceSource(0, 10))"),
    parallelism=whole(1, MOST_READERS),
    watermarks=instance(
        "a WatermarkStrategy", WatermarkStrategy, remedy="WatermarkStrategy.no_watermarks()"
    ),
    checkpoint=instance("bytes, of LocalRead.checkpoint()", bytes),
)
def read(
    source: Source[T, Any, Any],
    parallelism: int = 1,
    *,
    watermarks: WatermarkStrategy | None = None,
    checkpoint: bytes | None = None,
) -> LocalRead[T]:
    """Read a source in this process.

    Args:
        source: bounded or not.
        parallelism: the number of readers, which the caller's thread polls in turn.
        watermarks: makes the watermarks; None for those of the source itself.
        checkpoint: bytes from :meth:`LocalRead.checkpoint`, to continue after the records that it
            covers. The parallelism may differ.

    Raises:
        OptionError: the parallelism is less than 1, or an argument has the wrong type.
        StateVersionError: the bytes are not a checkpoint, or of an unknown version.
    """
    return LocalRead(
        source,
        parallelism,
        watermarks=watermarks,
        checkpoint=checkpoint,
    )


class _Gateway:
    """Posts the enumerator's messages to the thread that polls the readers.

    Attributes:
        operators: the operators of the readers, by their numbers.
    """

    def __init__(self, mailbox: Mailbox) -> None:
        self.operators: Sequence[SourceOperator[Any]] = ()
        self._mailbox = mailbox

    def assign(self, subtask: int, version: int, splits: Sequence[tuple[str, bytes]]) -> None:
        self._mailbox.post(lambda: self.operators[subtask].add_splits(version, splits))

    def no_more_splits(self, subtask: int) -> None:
        self._mailbox.post(self.operators[subtask].no_more_splits)

    def event(self, subtask: int, event: SourceEvent) -> None:
        self._mailbox.post(lambda: self.operators[subtask].source_event(event))

    def align(self, subtask: int, max_allowed_ms: int) -> None:
        self._mailbox.post(lambda: self.operators[subtask].align(max_allowed_ms))

    def failed(self, error: HeadgateError) -> None:
        def fail() -> None:
            raise error

        self._mailbox.post(fail)


class LocalRead(Closing, Generic[T]):
    """An iterator over the records of a source, made by :func:`read`. Not thread-safe.

    Reading starts with the first call of ``next``. After Ctrl-C the iteration can continue. Use it
    as a context manager or call :meth:`close`; otherwise the garbage collector or the exit of the
    process closes it.
    """

    def __init__(
        self,
        source: Source[T, Any, Any],
        parallelism: int,
        *,
        watermarks: WatermarkStrategy | None,
        checkpoint: bytes | None,
    ) -> None:
        self._source = source
        self._restored = None if checkpoint is None else LocalCheckpoint.from_bytes(checkpoint)
        self._mailbox = Mailbox()
        self._thread = CoordinatorThread()
        gateway = _Gateway(self._mailbox)
        coordinator: SourceCoordinator[Any, Any] = SourceCoordinator(
            source, parallelism, gateway, self._thread, watermarks=watermarks
        )
        self._coordinator = coordinator
        self._operators: list[SourceOperator[T]] = [
            SourceOperator(
                source,
                LocalReaderContext(
                    subtask,
                    parallelism,
                    partial(coordinator.request_split, subtask),
                    partial(coordinator.source_event, subtask),
                ),
                self._mailbox.signal,
                watermarks=watermarks,
                report_watermark=partial(coordinator.report_watermark, subtask),
                report_finished=partial(coordinator.splits_finished, subtask),
            )
            for subtask in range(parallelism)
        ]
        gateway.operators = self._operators
        self._turn = 0
        self._checkpoint_id = 0
        self._unconfirmed = 0
        self._is_started = False
        self._has_ended = False
        self._is_closed = False
        self._finalizer: weakref.finalize[Any, Any] | None = None

    def __iter__(self) -> Self:
        """Return itself."""
        return self

    def __next__(self) -> T:
        """Wait for the next record of any reader and return it.

        Raises:
            SourceError: the source failed; this read is closed then.
            ClosedError: this read was closed before its end.
        """
        if self._has_ended:
            raise StopIteration
        self._check_open()
        try:
            self._start()
            self._confirm()
            while True:
                self._mailbox.clear()
                while (action := self._mailbox.take()) is not None:
                    action()
                for _ in self._operators:
                    record = self._operators[self._turn].poll()
                    if record is not None:
                        # Hand out all records of an element before the next reader's, so that a
                        # checkpoint after them finds no other reader in the middle of an element.
                        if not self._operators[self._turn].pending:
                            self._pass_turn()
                        return record
                    self._pass_turn()
                if all(operator.is_finished for operator in self._operators):
                    break
                self._mailbox.wait(self._timeout())
        except Exception:
            self._close_after_failure()
            raise
        self._has_ended = True
        for operator in self._operators:
            operator.close()
        raise StopIteration

    @property
    def current_watermark(self) -> int:
        """The lowest watermark of all readers, in ms since 1970."""
        return min(operator.current_watermark for operator in self._operators)

    @property
    def total_splits(self) -> int | None:
        """The number of splits; None if the source does not know it."""
        return self._coordinator.total_splits

    @property
    def finished_splits(self) -> int:
        """The number of finished splits."""
        return self._coordinator.finished_splits

    def checkpoint(self) -> bytes:
        """Return a checkpoint for :func:`read` that covers exactly the records handed out so far.

        The next call of ``next`` completes the checkpoint: sources that acknowledge their records
        do so then.

        Raises:
            SourceError: the source failed to return its state.
            NotBuiltError: one element of a reader became several records, and some of them were
                not handed out yet.
            ClosedError: this read is closed.
        """
        self._check_open()
        self._start()
        self._checkpoint_id += 1
        try:
            state = self._enumerator_state()
            splits: list[tuple[str, bytes]] = []
            if not self._has_ended:
                for operator in self._operators:
                    splits += operator.snapshot(self._checkpoint_id)
        except BaseException:
            self._coordinator.checkpoint_aborted(self._checkpoint_id)
            raise
        self._unconfirmed = self._checkpoint_id
        return LocalCheckpoint(state, self._source.split_serializer.version, splits).to_bytes()

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the remaining batches as an Arrow stream.

        The stream reads through this object, which must stay open until the stream ends.

        Raises:
            NotBuiltError: the source has no schema, so its records are not batches.
        """
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and not every source needs it

        schema = self._source.schema
        if schema is None:
            raise NotBuiltError(
                f"{self._source.name} has no schema, so its records are not Arrow batches",
                asked="to_reader()",
                remedy="for record in read(source): ... · give the source a schema",
            )
        return pa.RecordBatchReader.from_batches(schema, self._batches())

    def close(self) -> None:
        """Close all readers and the enumerator, once.

        Raises:
            SourceError: a reader failed in its close; all others are closed.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if self._finalizer is None:
            return  # Never started.
        self._finalizer.detach()
        try:
            _close_operators(self._operators)
        finally:
            self._coordinator.close(_CLOSE)
            self._thread.close(_CLOSE)
            self._mailbox.close()

    def _enumerator_state(self) -> bytes:
        """Return the enumerator's state, and handle its messages before that state and none behind it.

        A split that is assigned behind the state must not reach a reader before the reader's own snapshot, or both
        contain it. Flink closes its gateways for that; here the state comes by the same mailbox.
        """
        mailbox = self._mailbox
        answers: list[tuple[bytes | None, HeadgateError | None]] = []

        def answer(state: bytes | None, error: HeadgateError | None) -> None:
            mailbox.post(lambda: answers.append((state, error)))

        self._coordinator.checkpoint(self._checkpoint_id, answer)
        while not answers:
            mailbox.clear()
            while not answers and (action := mailbox.take()) is not None:
                try:
                    action()
                except Exception:
                    self._close_after_failure()
                    raise
            if not answers:
                mailbox.wait(None)
        mailbox.signal()  # Messages behind the state may be there.
        state, error = answers[0]
        if state is None:
            raise error or ClosedError(f"the enumerator of {self._source.name} has no state")
        return state

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError(
                f"this read of {self._source.name} is closed",
                remedy="read(source, checkpoint=...) continues from a checkpoint",
            )

    def _start(self) -> None:
        if self._is_started:
            return
        self._is_started = True
        parts = self._thread, self._coordinator, self._operators
        self._finalizer = weakref.finalize(self, _abandon, *parts)
        self._finalizer.atexit = False  # See _close_open.
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
            # Register the reader first, because its start() may request a split.
            self._coordinator.register_reader(subtask, socket.gethostname())
            operator.start()
            if restored is not None and (
                splits := restored.splits[subtask :: len(self._operators)]
            ):
                operator.add_splits(restored.split_version, splits)

    def _confirm(self) -> None:
        if self._unconfirmed:
            checkpoint_id, self._unconfirmed = self._unconfirmed, 0
            self._coordinator.checkpoint_complete(checkpoint_id)
            completed: Future[None] = Future()
            if self._thread.execute(lambda: completed.set_result(None)):
                completed.result()  # A close right after this must not drop the completion.
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
        except Exception:  # noqa: BLE001 - logged; the first failure is raised
            _LOG.exception("a reader of %s failed in close, too", self._source.name)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415 - loaded by to_reader already

        for record in self:
            if not isinstance(record, pa.RecordBatch):
                raise SourceError(
                    f"{self._source.name} has a schema, but emitted a {type(record).__name__} "
                    "instead of a RecordBatch",
                    remedy="emit batches · remove the schema",
                )
            yield record


def _close_operators(operators: list[SourceOperator[T]]) -> None:
    """Close all operators, then raise the first error."""
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
    """Close a read that was garbage collected.

    The garbage collector may call this anywhere, with any lock held, so it only sends an action to
    the coordinator's thread.
    """

    def close() -> None:
        try:
            _close_operators(operators)
        except Exception:  # noqa: BLE001 - logged; there is no caller
            _LOG.exception("a reader failed in close")
        coordinator.close()
        thread.close()

    thread.execute(close)


@atexit.register
def _close_open() -> None:
    """Close all open reads at the exit of the process, while its threads still run."""
    for left in list(_open):
        left._close_after_failure()  # noqa: SLF001 - of this module
