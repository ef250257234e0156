"""Creates, feeds and ends fetchers for one reader, and keeps what they raised."""

from __future__ import annotations

import itertools
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from headgate.source.api.split import SourceSplit
from headgate.source.base.fetcher import SplitFetcher
from headgate.source.base.queue import DEFAULT_CAPACITY, FutureCompletingBlockingQueue
from headgate.source.base.split_reader import SplitReader, cannot_pause_splits
from headgate.source.base.threads import THREADS, Threads, Worker

if TYPE_CHECKING:
    from headgate.errors import SourceError
    from headgate.source.base.records import RecordsWithSplitIds

E = TypeVar("E")
SplitT = TypeVar("SplitT", bound=SourceSplit)

_LOG: Final = logging.getLogger("headgate.source")

#: Seconds that close waits for fetchers.
CLOSE_TIMEOUT: Final = 30.0
#: Seconds between two wake-ups of a fetcher that close waits for.
_WAKE_AGAIN: Final = 0.1


class SplitFetcherManager(ABC, Generic[E, SplitT]):
    """Owns the element queue and the fetchers of a reader. All methods belong to the reader's thread.

    Args:
        split_reader_supplier: makes a split reader for each fetcher.
        queue_capacity: batches that may wait for the reader, at least 1.
        allow_unaligned_splits: let pausing of splits pass that a split reader cannot pause.
        name: of its threads, after ``headgate-fetcher``; the reader's number, say.
        threads: makes locks, parkers and threads.
    """

    def __init__(
        self,
        split_reader_supplier: Callable[[], SplitReader[E, SplitT]],
        *,
        queue_capacity: int = DEFAULT_CAPACITY,
        allow_unaligned_splits: bool = False,
        name: str = "",
        threads: Threads = THREADS,
    ) -> None:
        self.queue: FutureCompletingBlockingQueue[RecordsWithSplitIds[E]] = (
            FutureCompletingBlockingQueue(queue_capacity, threads=threads)
        )
        self._supplier = split_reader_supplier
        self._allow_unaligned_splits = allow_unaligned_splits
        self._name = "-".join(filter(None, ("headgate-fetcher", name)))
        self._threads = threads
        self._lock = threads.lock()  # guards what the fetchers' threads change too
        self._fetchers: dict[int, SplitFetcher[E, SplitT]] = {}
        self._error: SourceError | None = None
        self._workers: list[tuple[SplitFetcher[E, SplitT], Worker]] = []
        self._numbers = itertools.count()
        self._closed = False

    @abstractmethod
    def add_splits(self, splits: Sequence[SplitT]) -> None:
        """Give splits to fetchers."""

    @abstractmethod
    def remove_splits(self, split_ids: Sequence[str]) -> None:
        """Take splits from fetchers."""

    def pause_or_resume_splits(self, to_pause: Sequence[str], to_resume: Sequence[str]) -> None:
        """Pause and resume single splits, by their ids, in whatever fetcher has them.

        Raises:
            NotBuiltError: a split reader cannot, and that is not allowed.
        """
        for fetcher in self.fetchers():
            reader = fetcher.split_reader
            if type(reader).pause_or_resume_splits is not SplitReader.pause_or_resume_splits:
                fetcher.pause_or_resume_splits(to_pause, to_resume)
            elif not self._allow_unaligned_splits:
                raise cannot_pause_splits(type(reader).__name__, to_pause, to_resume)

    def fetchers(self) -> list[SplitFetcher[E, SplitT]]:
        """Return the fetchers that are neither shut down nor ended by an error."""
        with self._lock:
            return list(self._fetchers.values())

    def create_split_fetcher(self) -> SplitFetcher[E, SplitT]:
        """Return a new fetcher with a new split reader; it does not run yet."""
        return SplitFetcher(
            next(self._numbers),
            self.queue,
            self._supplier(),
            self._record_error,
            self._forget,
            allow_unaligned_splits=self._allow_unaligned_splits,
            threads=self._threads,
        )

    def start_fetcher(self, fetcher: SplitFetcher[E, SplitT]) -> None:
        """Run a fetcher in a thread of its own."""
        self._workers = [(f, w) for f, w in self._workers if not w.join(0)]
        with self._lock:
            self._fetchers[fetcher.fetcher_id] = fetcher
        worker = self._threads.start(fetcher.steps(), f"{self._name}-{fetcher.fetcher_id}")
        self._workers.append((fetcher, worker))

    def maybe_shutdown_finished_fetchers(self) -> bool:
        """Shut idle fetchers down; to be called when the reader has no batch in hand.

        A fetcher that is idle puts nothing more, so an empty queue *after* that says that all its
        batches were emitted and given back. Only then may its split reader, which may own their
        memory, be closed.

        Returns:
            Whether no fetcher is left.
        """
        for fetcher in self.fetchers():
            if fetcher.is_idle() and self.queue.is_empty():
                with self._lock:
                    self._fetchers.pop(fetcher.fetcher_id, None)
                fetcher.shutdown()
        with self._lock:
            return not self._fetchers

    def check_errors(self) -> None:
        """Raise what a fetcher raised first; what others raised later is in its notes."""
        if self._error is not None:
            raise self._error

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """End all fetchers; wait for them at most ``timeout`` seconds, then log which still run.

        Batches that are left in the queue are given back.
        """
        self._closed = True
        for fetcher, _ in self._workers:
            fetcher.shutdown()
        deadline = time.monotonic() + timeout
        for fetcher, worker in self._workers:
            # A split reader may miss a wake-up that comes just before it blocks: once more, then.
            while not worker.join(min(_WAKE_AGAIN, max(0.0, deadline - time.monotonic()))):
                if time.monotonic() >= deadline:
                    _LOG.warning(
                        "%s did not return from fetch() within %g s after wake_up(), reading split "
                        "%s; its thread is left behind",
                        type(fetcher.split_reader).__name__,
                        timeout,
                        ", ".join(fetcher.assigned_splits()) or "none",
                    )
                    break
                fetcher.shutdown()
        self._workers = []
        while (batch := self.queue.poll()) is not None:
            batch.recycle()

    def _record_error(self, error: SourceError) -> None:
        with self._lock:
            first = self._error
            if first is None:
                self._error = error
            elif first is not error:
                first.add_note(f"suppressed, of another fetcher or of its end: {error!r}")
        self.queue.notify_available()
        if self._closed:
            _LOG.warning("a fetcher failed while its reader closed: %s", error.summary)

    def _forget(self, fetcher: SplitFetcher[E, SplitT]) -> None:
        with self._lock:
            self._fetchers.pop(fetcher.fetcher_id, None)
        self.queue.forget_putting_thread(fetcher.fetcher_id)
        self.queue.notify_available()


class SingleThreadFetcherManager(SplitFetcherManager[E, SplitT]):
    """One fetcher for all splits, created when there is none."""

    def add_splits(self, splits: Sequence[SplitT]) -> None:
        """Give splits to the fetcher."""
        running = self.fetchers()
        fetcher = running[0] if running else self.create_split_fetcher()
        fetcher.add_splits(splits)
        if not running:
            self.start_fetcher(fetcher)

    def remove_splits(self, split_ids: Sequence[str]) -> None:
        """Take splits from the fetcher, if there is one."""
        for fetcher in self.fetchers():
            fetcher.remove_splits(split_ids)
