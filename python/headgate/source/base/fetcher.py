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

_NAMED = 5


class SplitFetcher(Generic[E, SplitT]):
    """Runs tasks first, then fetches while it has splits, else waits. After Flink's SplitFetcher.

    Everything but :meth:`steps` may be called by any thread. One lock guards the tasks, the splits
    and the flags; no code of others runs under it.

    Args:
        fetcher_id: its number; also its index among the threads that put into the queue.
        queue: where batches go.
        split_reader: what it fetches with; closed by the fetcher's thread.
        on_error: takes what was raised, in the fetcher's thread, before ``on_end``.
        on_end: called last, when the split reader is closed.
        allow_unaligned_splits: let pausing of splits pass that the split reader cannot pause.
        threads: makes its lock and parker.
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

    # What other threads ask for.

    def add_splits(self, splits: Sequence[SplitT]) -> None:
        """Read more splits."""
        self._enqueue(AddSplitsTask(splits))

    def remove_splits(self, split_ids: Sequence[str]) -> None:
        """Read splits no further; what was fetched of them is still emitted."""
        self._enqueue(RemoveSplitsTask(split_ids))

    def pause_or_resume_splits(self, to_pause: Sequence[str], to_resume: Sequence[str]) -> None:
        """Pause and resume single splits, by their ids; unknown ones are left out."""
        task: SplitFetcherTask[SplitT] = PauseOrResumeSplitsTask(
            to_pause, to_resume, self._allow_unaligned_splits
        )
        self._enqueue(task)

    def wake_up(self) -> None:
        """Bring the thread out of a fetch, a put or a wait; it goes on afterwards."""
        self._enqueue(WakeUpTask())

    def pause(self) -> None:
        """Stop after what runs now, tasks too, until :meth:`resume`."""
        with self._lock:
            self._paused = True
            fetching = self._interrupt()
        self._wake(fetching)

    def resume(self) -> None:
        """Go on after :meth:`pause`."""
        with self._lock:
            self._paused = False
        self._parker.unpark()

    def shutdown(self) -> None:
        """End the thread soon, paused or not; a fetched batch that no one took is given back."""
        with self._lock:
            self._closed = True
            fetching = self._interrupt()
        self._wake(fetching)

    def is_idle(self) -> bool:
        """Return whether there is neither a split nor a task: all it fetched is in the queue."""
        with self._lock:
            return self._running is None and not self._tasks and not self._assigned

    def assigned_splits(self) -> list[str]:
        """Return the ids of the unfinished splits."""
        with self._lock:
            return list(self._assigned)

    # What its thread does.

    def steps(self) -> Steps[None]:
        """Run until shutdown, then close the split reader.

        After an error it waits for shutdown too: the reader may be emitting a batch whose memory
        belongs to the split reader, and says by the shutdown that it has none in hand.
        """
        try:
            yield from self._loop()
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a reader raises ends the source
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
                # The reader has to look again whether everything is read.
                self._queue.notify_available()

    def _next_task(self) -> SplitFetcherTask[SplitT] | FetchTask[E, SplitT] | None:
        """Return what to do next, None for waiting; under the lock."""
        if self._paused:
            return None
        if self._tasks:
            return self._tasks.popleft()
        if not self._assigned:
            return None
        self._fetch.begin()
        return self._fetch

    def _run(self, task: Any) -> dict[str, SplitT]:
        """Run a task and return the splits after it."""
        assigned = dict(self._assigned)
        try:
            task.run(self.split_reader, assigned)
        except BaseException:
            self._assigned = assigned  # for the names in the error
            raise
        return assigned

    def _enqueue(self, task: SplitFetcherTask[SplitT]) -> None:
        with self._lock:
            self._tasks.append(task)
            fetching = self._interrupt()
        self._wake(fetching)

    def _interrupt(self) -> bool | None:
        """Note that the fetch task, if it runs, is to end; return whether it is in ``fetch()``."""
        if self._running is not self._fetch:
            return None
        self._fetch.woken = True
        return self._fetch.is_fetching

    def _wake(self, fetching: bool | None) -> None:
        """Wake what :meth:`_interrupt` found, without the lock: a split reader's code may run."""
        self._parker.unpark()
        if fetching is None:
            return
        try:
            self._fetch.wake_up(fetching)
        except BaseException as error:  # noqa: BLE001 - surfaces in the reader, as what fetch raises
            self._on_error(self._named(error))

    def _named(self, error: BaseException) -> SourceError:
        """Return the error with the names of the splits at work, the original as its cause."""
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
