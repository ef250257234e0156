"""A fetcher: the loop of one thread that runs a split reader and fills the element queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headgate.errors import SourceError
from headgate.source.api.split import SourceSplit
from headgate.source.base.tasks import (
    AddSplitsTask,
    FetchTask,
    PauseOrResumeSplitsTask,
    RemoveSplitsTask,
    SplitFetcherTask,
    WakeUpTask,
)
from headgate.source.base.threads import THREADS, Steps, Threads

if TYPE_CHECKING:
    from headgate.source.base.queue import FutureCompletingBlockingQueue
    from headgate.source.base.records import RecordsWithSplitIds
    from headgate.source.base.split_reader import SplitReader

E = TypeVar("E")
SplitT = TypeVar("SplitT", bound=SourceSplit)

#: Splits that an error names; it only counts the others.
_NAMED = 5


class SplitFetcher(Generic[E, SplitT]):
    """Flink's SplitFetcher: runs its tasks, then fetches while it has splits, otherwise waits.

    Any thread may call any method but :meth:`steps`. One lock guards the tasks, the splits and the
    flags; no code of a source runs under it.

    Args:
        fetcher_id: the fetcher's number, and its index among the threads that put into the queue.
        queue: takes the fetched batches.
        split_reader: reads the splits; the fetcher's thread closes it.
        on_error: gets an exception, in the fetcher's thread, before ``on_end``.
        on_end: called last, after the split reader is closed.
        allow_unaligned_splits: True to ignore a pause that the split reader does not support.
        threads: makes the lock and the parker.
    """

    def __init__(
        self,
        fetcher_id: int,
        queue: FutureCompletingBlockingQueue[RecordsWithSplitIds[E]],
        split_reader: SplitReader[E, SplitT],
        on_error: Callable[[SourceError], None],
        on_end: Callable[[SplitFetcher[E, SplitT]], None],
        *,
        allow_unaligned_splits: bool = False,
        threads: Threads = THREADS,
    ) -> None:
        self.fetcher_id = fetcher_id
        self.split_reader = split_reader
        self._queue = queue
        self._on_error = on_error
        self._on_end = on_end
        self._allow_unaligned_splits = allow_unaligned_splits
        self._lock = threads.lock()
        self._parker = threads.parker()
        self._tasks: deque[SplitFetcherTask[SplitT]] = deque()
        self._assigned: dict[str, SplitT] = {}
        self._fetch = FetchTask(split_reader, queue, fetcher_id, self._lock)
        self._running: SplitFetcherTask[SplitT] | FetchTask[E, SplitT] | None = None
        self._paused = False
        self._closed = False

    # Called by other threads.

    def add_splits(self, splits: Sequence[SplitT]) -> None:
        """Read more splits."""
        self._enqueue(AddSplitsTask(splits))

    def remove_splits(self, split_ids: Sequence[str]) -> None:
        """Stop reading splits; their fetched records are still emitted."""
        self._enqueue(RemoveSplitsTask(split_ids))

    def pause_or_resume_splits(self, to_pause: Sequence[str], to_resume: Sequence[str]) -> None:
        """Pause and resume single splits, by their ids; unknown ids are ignored."""
        task: SplitFetcherTask[SplitT] = PauseOrResumeSplitsTask(
            to_pause, to_resume, self._allow_unaligned_splits
        )
        self._enqueue(task)

    def wake_up(self) -> None:
        """Interrupt a fetch, a put or a wait of the thread, which continues afterwards."""
        self._enqueue(WakeUpTask())

    def pause(self) -> None:
        """Run neither fetches nor tasks after the current one until :meth:`resume`."""
        with self._lock:
            self._paused = True
            fetching = self._interrupt()
        self._wake(fetching)

    def resume(self) -> None:
        """Continue after :meth:`pause`."""
        with self._lock:
            self._paused = False
        self._parker.unpark()

    def shutdown(self) -> None:
        """End the thread soon, even if it is paused; a batch outside the queue is recycled."""
        with self._lock:
            self._closed = True
            fetching = self._interrupt()
        self._wake(fetching)

    def is_idle(self) -> bool:
        """Return True if there is no split and no task: all fetched batches are in the queue."""
        with self._lock:
            return self._running is None and not self._tasks and not self._assigned

    def assigned_splits(self) -> list[str]:
        """Return the ids of the unfinished splits."""
        with self._lock:
            return list(self._assigned)

    # Runs in the fetcher's thread.

    def steps(self) -> Steps[None]:
        """Run until shutdown, then close the split reader.

        After an error it also waits for the shutdown before it closes the split reader: the source
        reader may still emit a batch whose memory belongs to the split reader, and calls shutdown
        only after it has recycled the batch.
        """
        try:
            yield from self._loop()
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - any exception of a reader ends the source
            self._on_error(self._named(error))
        while True:
            yield None
            with self._lock:
                if self._closed:
                    break
            yield self._parker
        try:
            batch, self._fetch.records = self._fetch.records, None
            if batch is not None:
                batch.recycle()
        except BaseException as error:  # noqa: BLE001 - see above
            self._on_error(self._named(error))
        try:
            self.split_reader.close()
        except BaseException as error:  # noqa: BLE001 - see above
            self._on_error(self._named(error))
        yield None
        self._on_end(self)

    def _loop(self) -> Steps[None]:
        fetch = self._fetch
        while True:
            yield None
            with self._lock:
                if self._closed:
                    return
                task = self._running = self._next_task()
            if task is None:
                yield self._parker
                continue
            assigned: dict[str, SplitT] | None = None
            finished: frozenset[str] = frozenset()
            if task is fetch:
                finished = yield from fetch.steps()
            else:
                assigned = self._run(task)
            yield None
            with self._lock:
                if assigned is not None:
                    self._assigned = assigned
                for split_id in finished:
                    self._assigned.pop(split_id, None)
                self._running = None
                idle = not self._assigned and not self._tasks
            if idle:
                yield None
                # The reader has to check again if everything is read.
                self._queue.notify_available()

    def _next_task(self) -> SplitFetcherTask[SplitT] | FetchTask[E, SplitT] | None:
        """Return the next task, or None to wait; called under the lock."""
        if self._paused:
            return None
        if self._tasks:
            return self._tasks.popleft()
        if not self._assigned:
            return None
        self._fetch.begin()
        return self._fetch

    def _run(self, task: Any) -> dict[str, SplitT]:
        """Run a task and return the assigned splits after it."""
        assigned = dict(self._assigned)
        try:
            task.run(self.split_reader, assigned)
        except BaseException:
            self._assigned = assigned  # The error names these splits.
            raise
        return assigned

    def _enqueue(self, task: SplitFetcherTask[SplitT]) -> None:
        with self._lock:
            self._tasks.append(task)
            fetching = self._interrupt()
        self._wake(fetching)

    def _interrupt(self) -> bool | None:
        """Mark a running fetch task as woken.

        Returns:
            True if the task is in ``fetch()``, False if it is in a put, None if it does not run.
        """
        if self._running is not self._fetch:
            return None
        self._fetch.woken = True
        return self._fetch.is_fetching

    def _wake(self, fetching: bool | None) -> None:
        """Wake the thread; called without the lock, because a split reader's code may run."""
        self._parker.unpark()
        if fetching is None:
            return
        try:
            self._fetch.wake_up(fetching)
        except BaseException as error:  # noqa: BLE001 - raised by the reader
            self._on_error(self._named(error))

    def _named(self, error: BaseException) -> SourceError:
        """Return an error that names the assigned splits and has the original as its cause."""
        if isinstance(error, SourceError):
            return error
        splits = self.assigned_splits()
        more = f" and {len(splits) - _NAMED} more" if len(splits) > _NAMED else ""
        at_work = f"split {', '.join(splits[:_NAMED])}{more}" if splits else "no split"
        named = SourceError(
            f"{type(self.split_reader).__name__} failed at {at_work}: "
            f"{type(error).__name__}: {error}".strip(),
            details={"splits": splits},
        )
        named.__cause__ = error
        return named
