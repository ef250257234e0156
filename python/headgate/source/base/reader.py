"""The usual base of a reader: it polls the batches of a fetcher, in the task's thread."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Generic, TypeVar

from headgate.errors import ClosedError, HeadgateError, SourceError
from headgate.source.api.reader import InputStatus, SourceReader, SourceReaderContext
from headgate.source.api.split import SourceSplit
from headgate.source.base.fetcher import AVAILABLE, DEFAULT_CAPACITY, SplitFetcher, failure_at

if TYPE_CHECKING:
    from headgate.source.api.output import ReaderOutput, SourceOutput
    from headgate.source.base.emitter import RecordEmitter
    from headgate.source.base.records import RecordsWithSplitIds
    from headgate.source.base.split_reader import SplitReader

E = TypeVar("E")
T = TypeVar("T")
SplitT = TypeVar("SplitT", bound=SourceSplit)
StateT = TypeVar("StateT")

_MORE = InputStatus.MORE_AVAILABLE
_NOTHING = InputStatus.NOTHING_AVAILABLE
_END = InputStatus.END_OF_INPUT


class SingleThreadMultiplexSourceReaderBase(SourceReader[T, SplitT], Generic[E, T, SplitT, StateT]):
    """A reader whose splits are all read by one split reader, in one fetcher thread. After Flink's class.

    A subclass defines a split's state. Each :meth:`poll_next` emits one element. The mutable state of a split advances
    as its elements are emitted, so that a snapshot covers exactly the emitted ones.

    Args:
        split_reader_supplier: makes the split reader.
        record_emitter: converts elements into records.
        context: the reader's context.
        queue_capacity: batches that may wait for the reader, at least 1.
        allow_unaligned_splits: True to ignore a pause that the split reader does not support.
    """

    def __init__(
        self,
        split_reader_supplier: Callable[[], SplitReader[E, SplitT]],
        record_emitter: RecordEmitter[E, T, StateT],
        context: SourceReaderContext,
        *,
        queue_capacity: int = DEFAULT_CAPACITY,
        allow_unaligned_splits: bool = False,
    ) -> None:
        self.context = context
        self._fetcher: SplitFetcher[E, SplitT] = SplitFetcher(
            split_reader_supplier,
            queue_capacity=queue_capacity,
            allow_unaligned_splits=allow_unaligned_splits,
            name=str(context.index_of_subtask),
        )
        self._emitter = record_emitter
        self._states: dict[str, StateT] = {}
        self._outputs: dict[str, SourceOutput[T]] = {}
        self._output: ReaderOutput[T] | None = None
        self._without_output: list[str] = []
        self._batch: RecordsWithSplitIds[E] | None = None
        self._split_id = ""
        self._split_state: StateT | None = None
        self._split_output: SourceOutput[T] | None = None
        self._no_more_splits = False
        self._ended = False
        self._closed = False

    # Implemented by a subclass.

    @abstractmethod
    def initialized_state(self, split: SplitT) -> StateT:
        """Return the mutable state of a split that was just added."""

    @abstractmethod
    def to_split_type(self, split_id: str, state: StateT) -> SplitT:
        """Return a split that continues at the state, which may change afterwards."""

    @abstractmethod
    def on_split_finished(self, finished: Mapping[str, StateT]) -> None:
        """Handle splits that ended, for example by a request for another one.

        Called after the last record of the splits was emitted.
        """

    # Called by the task.

    def start(self) -> None:
        """Start; a subclass that requests its splits requests the first one here."""

    def poll_next(self, output: ReaderOutput[T]) -> InputStatus:
        """Emit the next element and return when to poll again; never blocks.

        Raises:
            SourceError: the fetcher or the emitter failed, or a batch names an unknown split.
            ClosedError: the reader is closed.
        """
        if self._ended:
            return _END
        if self._closed:
            raise ClosedError("poll_next() of a closed reader")
        if self._without_output or output is not self._output:
            self._create_outputs(output)
        self._fetcher.check_errors()
        batch = self._batch
        while True:
            if batch is None:
                batch = self._next_batch()
                if batch is None:
                    return self._finished_or_available_later()
            element = batch.next_record_from_split()
            if element is not None:
                self._emit(element)
                return _MORE
            if not self._move_to_next_split(batch):
                batch = None

    def is_available(self) -> Future[None]:
        """Return a future that completes when there is a batch or another reason to poll."""
        return AVAILABLE if self._batch is not None else self._fetcher.available()

    def add_splits(self, splits: Sequence[SplitT]) -> None:
        """Add splits and start to read them.

        Raises:
            SourceError: one of the splits was added before, or the input has ended.
            ClosedError: the reader is closed.
        """
        if self._closed:
            raise ClosedError("add_splits() of a closed reader")
        states: dict[str, StateT] = {}
        for split in splits:
            split_id = split.split_id
            if self._ended or split_id in self._states or split_id in states:
                raise SourceError(
                    f"split {split_id} was added "
                    + ("after the end of input" if self._ended else "twice"),
                    remedy="in the enumerator, assign each split once, and none after "
                    "signal_no_more_splits()",
                )
            states[split_id] = self.initialized_state(split)
        self._states.update(states)
        self._without_output.extend(states)
        if splits:
            self._fetcher.add_splits(splits)

    def notify_no_more_splits(self) -> None:
        """Handle the enumerator's signal that no split follows."""
        self._no_more_splits = True
        self._fetcher.notify_available()

    def snapshot_state(self, checkpoint_id: int) -> list[SplitT]:
        """Return the unfinished splits at their positions after the emitted records."""
        del checkpoint_id
        return [self.to_split_type(split_id, state) for split_id, state in self._states.items()]

    def pause_or_resume_splits(
        self, splits_to_pause: Sequence[str], splits_to_resume: Sequence[str]
    ) -> None:
        """Pause and resume single splits; records that are fetched already are still emitted.

        Raises:
            NotBuiltError: the split reader cannot pause single splits.
        """
        self._fetcher.pause_or_resume_splits(splits_to_pause, splits_to_resume)

    def close(self) -> None:
        """End the fetcher and wait for it, up to 30 s."""
        if self._closed:
            return
        self._closed = True
        batch, self._batch = self._batch, None
        try:
            if batch is not None:
                batch.recycle()
        finally:
            self._fetcher.close()

    # The steps of a poll.

    def _create_outputs(self, output: ReaderOutput[T]) -> None:
        """Create the outputs of added splits, which hold the watermark back before any record."""
        if output is not self._output:
            self._output = output
            self._without_output = list(self._states)
        for split_id in self._without_output:
            self._outputs[split_id] = output.create_output_for_split(split_id)
        self._without_output = []
        if self._batch is not None:
            self._split_output = self._outputs[self._split_id]

    def _emit(self, element: E) -> None:
        try:
            self._emitter.emit_record(element, self._split_output, self._split_state)  # type: ignore[arg-type]
        except HeadgateError:
            raise
        except Exception as error:
            raise failure_at(type(self._emitter), [self._split_id], error) from error

    def _next_batch(self) -> RecordsWithSplitIds[E] | None:
        batch = self._fetcher.poll()
        if batch is None or not self._move_to_next_split(batch):
            return None
        return batch

    def _move_to_next_split(self, batch: RecordsWithSplitIds[E]) -> bool:
        split_id = batch.next_split()
        if split_id is None:
            self._finish(batch)
            return False
        if split_id not in self._states:
            raise self._unregistered(split_id)
        self._batch = batch
        self._split_id = split_id
        self._split_state = self._states[split_id]
        self._split_output = self._outputs[split_id]
        return True

    def _finish(self, batch: RecordsWithSplitIds[E]) -> None:
        self._batch = self._split_state = self._split_output = None
        finished = {}
        for split_id in sorted(batch.finished_splits()):
            if split_id not in self._states:
                raise self._unregistered(split_id)
            finished[split_id] = self._states.pop(split_id)
            del self._outputs[split_id]
            if self._output is not None:
                self._output.release_output_for_split(split_id)
        try:
            if finished:
                self.on_split_finished(finished)
        finally:
            batch.recycle()

    def _finished_or_available_later(self) -> InputStatus:
        # The empty poll may have reset the notification of an error: check again after it.
        self._fetcher.check_errors()
        # Unlike Flink, keep an idle fetcher while splits may follow: if splits are requested one
        # by one, each would otherwise cost a thread and a split reader with its open resources.
        if not self._no_more_splits or not self._fetcher.is_idle:
            return _NOTHING
        if not self._fetcher.is_empty:
            return _MORE  # The fetcher queued a batch before it became idle.
        self._ended = True
        self._fetcher.shut_down()
        return _END

    def _unregistered(self, split_id: str) -> SourceError:
        return SourceError(
            f"a batch names split {split_id!r}, which this reader does not have",
            have=f"splits {sorted(self._states)}",
            remedy="in the split reader, use the ids of its splits and finish each split once",
            details={"splits": [split_id]},
        )
