"""Creates, feeds and shuts down the fetchers of one reader, and keeps their errors."""

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

#: Longest wait of close for the fetchers, in seconds.
CLOSE_TIMEOUT: Final = 30.0
#: Seconds between two wake-ups of a fetcher that close waits for.
_WAKE_AGAIN: Final = 0.1


class SplitFetcherManager(ABC, Generic[E, SplitT]):
    """Owns the element queue and the fetchers of a reader. Only the reader's thread calls it.

    Args:
        split_reader_supplier: makes a split reader for each fetcher.
        queue_capacity: batches that may wait for the reader, at least 1.
        allow_unaligned_splits: True to ignore a pause that a split reader does not support.
        name: suffix of the threads' names, such as the reader's number.
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
        #: Guards ``_fetchers`` and ``_error``, which the fetchers' threads change too.
        self._lock = threads.lock()
        self._fetchers: dict[int, SplitFetcher[E, SplitT]] = {}
        self._error: SourceError | None = None
        self._workers: list[tuple[SplitFetcher[E, SplitT], Worker]] = []
        self._numbers = itertools.count()
        self._closed = False

    @abstractmethod
    def add_splits(self, splits: Sequence[SplitT]) -> None:
        """Assign splits to fetchers."""

    @abstractmethod
    def remove_splits(self, split_ids: Sequence[str]) -> None:
        """Remove splits from fetchers."""

    def pause_or_resume_splits(self, to_pause: Sequence[str], to_resume: Sequence[str]) -> None:
        """Pause and resume single splits, by their ids, in the fetchers that have them.

        Raises:
            NotBuiltError: a split reader cannot pause splits, and unaligned splits are not allowed.
        """
        for fetcher in self.fetchers():
            reader = fetcher.split_reader
            if type(reader).pause_or_resume_splits is not SplitReader.pause_or_resume_splits:
                fetcher.pause_or_resume_splits(to_pause, to_resume)
            elif not self._allow_unaligned_splits:
                raise cannot_pause_splits(type(reader).__name__, to_pause, to_resume)

    def fetchers(self) -> list[SplitFetcher[E, SplitT]]:
        """Return the fetchers that were not shut down and have not failed."""
        with self._lock:
            return list(self._fetchers.values())

    def create_split_fetcher(self) -> SplitFetcher[E, SplitT]:
        """Return a new fetcher with a new split reader, not yet started."""
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
        """Run a fetcher in its own thread."""
        self._workers = [(f, w) for f, w in self._workers if not w.join(0)]
        with self._lock:
            self._fetchers[fetcher.fetcher_id] = fetcher
        worker = self._threads.start(fetcher.steps(), f"{self._name}-{fetcher.fetcher_id}")
        self._workers.append((fetcher, worker))

    def maybe_shutdown_finished_fetchers(self) -> bool:
        """Shut idle fetchers down; called while the reader holds no batch.

        An idle fetcher puts no more batches, so if the queue is empty *after* the fetcher is idle,
        all its batches were emitted and recycled. Only then may its split reader be closed, which
        may own their memory.

        Returns:
            True if no fetcher is left.
        """
        for fetcher in self.fetchers():
            if fetcher.is_idle() and self.queue.is_empty():
                with self._lock:
                    self._fetchers.pop(fetcher.fetcher_id, None)
                fetcher.shutdown()
        with self._lock:
            return not self._fetchers

    def check_errors(self) -> None:
        """Raise the first error of a fetcher; its notes contain later ones."""
        if self._error is not None:
            raise self._error

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Shut all fetchers down, wait at most ``timeout`` seconds, and log those that still run.

        Batches that are left in the queue are recycled.
        """
        self._closed = True
        for fetcher, _ in self._workers:
            fetcher.shutdown()
        deadline = time.monotonic() + timeout
        for fetcher, worker in self._workers:
            # A split reader may miss a wake-up that comes just before it blocks: wake it again.
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
                first.add_note(f"suppressed, raised later by a fetcher: {error!r}")
        self.queue.notify_available()
        if self._closed:
            _LOG.warning("a fetcher failed while its reader closed: %s", error.summary)

    def _forget(self, fetcher: SplitFetcher[E, SplitT]) -> None:
        with self._lock:
            self._fetchers.pop(fetcher.fetcher_id, None)
        self.queue.forget_putting_thread(fetcher.fetcher_id)
        self.queue.notify_available()


class SingleThreadFetcherManager(SplitFetcherManager[E, SplitT]):
    """Uses one fetcher for all splits, and creates it when there is none."""

    def add_splits(self, splits: Sequence[SplitT]) -> None:
        """Assign splits to the fetcher."""
        running = self.fetchers()
        fetcher = running[0] if running else self.create_split_fetcher()
        fetcher.add_splits(splits)
        if not running:
            self.start_fetcher(fetcher)

    def remove_splits(self, split_ids: Sequence[str]) -> None:
        """Remove splits from the fetcher, if there is one."""
        for fetcher in self.fetchers():
            fetcher.remove_splits(split_ids)
