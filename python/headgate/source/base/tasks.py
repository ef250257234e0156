"""The tasks of a fetcher, which it runs one at a time: change splits, pause splits, fetch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headgate.errors import NotBuiltError, SourceError
from headgate.source.api.split import SourceSplit
from headgate.source.base.split_reader import SplitReader, SplitsAddition, SplitsRemoval
from headgate.source.base.threads import AT_FETCH, Steps

if TYPE_CHECKING:
    from headgate.source.base.queue import FutureCompletingBlockingQueue
    from headgate.source.base.records import RecordsWithSplitIds

E = TypeVar("E")
SplitT = TypeVar("SplitT", bound=SourceSplit)


class SplitFetcherTask(ABC, Generic[SplitT]):
    """A short task that other threads enqueue; runs in the fetcher's thread."""

    @abstractmethod
    def run(self, reader: SplitReader[Any, SplitT], assigned: dict[str, SplitT]) -> None:
        """Run the task.

        Args:
            reader: the fetcher's split reader.
            assigned: the fetcher's splits, by their ids, which the task updates.
        """


class AddSplitsTask(SplitFetcherTask[SplitT]):
    """Adds splits to the split reader."""

    def __init__(self, splits: Sequence[SplitT]) -> None:
        self._splits = tuple(splits)

    def run(self, reader: SplitReader[Any, SplitT], assigned: dict[str, SplitT]) -> None:
        """Register the splits first, so that an error can name them."""
        assigned.update((split.split_id, split) for split in self._splits)
        reader.handle_splits_changes(SplitsAddition(self._splits))


class RemoveSplitsTask(SplitFetcherTask[SplitT]):
    """Removes splits from the split reader; ignores those that have finished."""

    def __init__(self, split_ids: Sequence[str]) -> None:
        self._split_ids = tuple(split_ids)

    def run(self, reader: SplitReader[Any, SplitT], assigned: dict[str, SplitT]) -> None:
        """Remove the splits from the reader, then from ``assigned``."""
        splits = tuple(assigned[i] for i in self._split_ids if i in assigned)
        if splits:
            reader.handle_splits_changes(SplitsRemoval(splits))
        for split in splits:
            del assigned[split.split_id]


class PauseOrResumeSplitsTask(SplitFetcherTask[SplitT]):
    """Pauses and resumes single splits; ignores finished and unknown ones."""

    def __init__(
        self, to_pause: Sequence[str], to_resume: Sequence[str], allow_unaligned_splits: bool
    ) -> None:
        self._to_pause = tuple(to_pause)
        self._to_resume = tuple(to_resume)
        self._allow_unaligned_splits = allow_unaligned_splits

    def run(self, reader: SplitReader[Any, SplitT], assigned: dict[str, SplitT]) -> None:
        """Pause and resume the splits; fail if the reader cannot, unless that is allowed.

        The ids are resolved here, not by the caller, because a task before this one may add splits.
        """
        to_pause = [assigned[i] for i in self._to_pause if i in assigned]
        to_resume = [assigned[i] for i in self._to_resume if i in assigned]
        if not to_pause and not to_resume:
            return
        try:
            reader.pause_or_resume_splits(to_pause, to_resume)
        except NotBuiltError:
            if not self._allow_unaligned_splits:
                raise


class WakeUpTask(SplitFetcherTask[SplitT]):
    """Does nothing; its arrival in the queue interrupts the fetch."""

    def run(self, reader: SplitReader[Any, SplitT], assigned: dict[str, SplitT]) -> None:
        """Do nothing."""


class FetchTask(Generic[E, SplitT]):
    """Fetches a batch and puts it into the queue; keeps a batch whose put was interrupted.

    Attributes:
        woken: True once another thread has interrupted the task.
        is_fetching: True while the task is in ``fetch()``, False while it is in the put.
        records: the fetched batch until it is in the queue.

    The fetcher's lock guards all three. A thread that wakes the fetcher sets ``woken`` under the
    lock and reads ``is_fetching`` to wake either the split reader or the put.
    """

    def __init__(
        self,
        reader: SplitReader[E, SplitT],
        queue: FutureCompletingBlockingQueue[RecordsWithSplitIds[E]],
        thread_index: int,
        lock: Any,
    ) -> None:
        self._reader = reader
        self._queue = queue
        self._thread_index = thread_index
        self._lock = lock
        self.woken = False
        self.is_fetching = False
        self.records: RecordsWithSplitIds[E] | None = None

    def begin(self) -> None:
        """Start the task; called under the fetcher's lock."""
        self.woken = False
        self.is_fetching = self.records is None

    def wake_up(self, was_fetching: bool) -> None:
        """Wake the fetch or the put; called without the lock, after ``woken`` was set."""
        if was_fetching:
            self._reader.wake_up()
        else:
            self._queue.wake_up_putting_thread(self._thread_index)

    def steps(self) -> Steps[frozenset[str]]:
        """Fetch unless there is a kept batch, then put.

        Returns:
            The splits that ended with the batch; none if the put was interrupted.
        """
        if self.is_fetching:
            yield AT_FETCH
            records = self._reader.fetch()
            if records is None:
                name = type(self._reader).__name__
                raise SourceError(
                    f"{name}.fetch() returned None", remedy="return RecordsBySplits({})"
                )
            yield None
            with self._lock:
                self.records = records
                self.is_fetching = False
                if self.woken:
                    return frozenset()
        batch = self.records
        if batch is None:
            return frozenset()
        # Before the put, after which the batch belongs to the reader's thread.
        finished = batch.finished_splits()
        yield None
        if not (yield from self._queue.put_steps(self._thread_index, batch)):
            return frozenset()
        self.records = None
        return finished
