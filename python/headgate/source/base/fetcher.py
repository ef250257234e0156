"""A fetcher: the thread that runs a split reader, and the bounded queue of the batches it has fetched."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from headgate.errors import NotBuiltError, OptionError, SourceError
from headgate.source.api.split import SourceSplit
from headgate.source.base.split_reader import (
    SplitReader,
    SplitsAddition,
    SplitsRemoval,
    cannot_pause_splits,
)

if TYPE_CHECKING:
    from headgate.source.base.records import RecordsWithSplitIds

E = TypeVar("E")
SplitT = TypeVar("SplitT", bound=SourceSplit)
Task = Callable[[], None]

_LOG: Final = logging.getLogger("headgate.source")

DEFAULT_CAPACITY: Final = 2
#: Longest wait of close for the thread, in seconds.
CLOSE_TIMEOUT: Final = 30.0
#: Seconds between two wake-ups of a split reader that close waits for.
_WAKE_AGAIN: Final = 0.1
#: Splits that an error names; it only counts the others.
_NAMED: Final = 5

#: A completed future, shared, so that the usual case is a comparison of identities.
AVAILABLE: Final[Future[None]] = Future()
AVAILABLE.set_result(None)


class Joinable(Protocol):
    """A running thread."""

    def join(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds for its end."""

    def is_alive(self) -> bool:
        """Return True until it has ended."""


class SplitFetcher(Generic[E, SplitT]):
    """Changes the splits of a split reader, then fetches while there are splits and room in the queue.

    The thread starts with the first split. It repeats :meth:`next_task` and the task that this returns; the reader's
    thread calls all other methods. One lock guards the fields; no code of a source runs under it.

    Args:
        split_reader_supplier: makes the split reader.
        queue_capacity: batches that may wait for the reader, at least 1.
        allow_unaligned_splits: True to ignore a pause that the split reader does not support.
        name: suffix of the thread's name, such as the reader's number.

    Attributes:
        split_reader: None before the first split.
        has_ended: True once the split reader is closed, after which the thread ends.

    Raises:
        OptionError: the capacity is below 1.
    """

    def __init__(
        self,
        split_reader_supplier: Callable[[], SplitReader[E, SplitT]],
        *,
        queue_capacity: int = DEFAULT_CAPACITY,
        allow_unaligned_splits: bool = False,
        name: str = "",
    ) -> None:
        if queue_capacity < 1:
            raise OptionError(
                "the element queue needs room for at least one batch",
                asked=f"queue_capacity={queue_capacity}",
                remedy=f"queue_capacity={DEFAULT_CAPACITY}",
            )
        self.split_reader: SplitReader[E, SplitT] | None = None
        self.has_ended = False
        self._supplier = split_reader_supplier
        self._capacity = queue_capacity
        self._allow_unaligned_splits = allow_unaligned_splits
        self._name = "-".join(filter(None, ("headgate-fetcher", name)))
        self._thread: Joinable | None = None
        self._wake_ups: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._changes: deque[Task] = deque()
        #: The assigned splits; the thread replaces the dict and never changes it.
        self._splits: dict[str, SplitT] = {}
        self._batches: deque[RecordsWithSplitIds[E]] = deque()
        #: A batch on its way to the queue, which has room for it.
        self._fetched: RecordsWithSplitIds[E] | None = None
        self._task: Task | None = None
        self._is_available = False
        self._future: Future[None] | None = None  # Created on request.
        self._error: SourceError | None = None
        self._is_closed = False

    # Called by the reader.

    def add_splits(self, splits: Sequence[SplitT]) -> None:
        """Read more splits."""
        if self.split_reader is None:
            self.split_reader = self._supplier()
        self._change(lambda: self._add(tuple(splits)))
        if self._thread is None:
            self._thread = self._start()

    def remove_splits(self, split_ids: Sequence[str]) -> None:
        """Stop reading splits; their fetched records are still emitted."""
        if self.split_reader is not None:
            self._change(lambda: self._remove(tuple(split_ids)))

    def pause_or_resume_splits(self, to_pause: Sequence[str], to_resume: Sequence[str]) -> None:
        """Pause and resume single splits, by their ids; unknown ids are ignored.

        Raises:
            NotBuiltError: the split reader cannot pause splits, and unaligned splits are not allowed.
        """
        if self.split_reader is None:
            return
        kind = type(self.split_reader)
        if kind.pause_or_resume_splits is not SplitReader.pause_or_resume_splits:
            self._change(lambda: self._pause_or_resume(tuple(to_pause), tuple(to_resume)))
        elif not self._allow_unaligned_splits:
            raise cannot_pause_splits(kind.__name__, to_pause, to_resume)

    def poll(self) -> RecordsWithSplitIds[E] | None:
        """Take the first batch, or None; reset the future if the queue is empty afterwards."""
        with self._lock:
            batch = self._batches.popleft() if self._batches else None
            if not self._batches:
                self._is_available = False
        if batch is not None:
            self._wake()
        return batch

    @property
    def is_idle(self) -> bool:
        """True if there is no split and no task, so that no batch follows those in the queue."""
        with self._lock:
            return self._is_idle()

    @property
    def is_empty(self) -> bool:
        """True if no batch is in the queue."""
        return not self._batches

    def available(self) -> Future[None]:
        """Return a future that completes when :meth:`poll` may return a batch, or there is an error.

        It is done exactly while the queue has a batch or :meth:`notify_available` was called since the last
        :meth:`poll` that left the queue empty.
        """
        with self._lock:
            if self._is_available:
                return AVAILABLE
            if self._future is None:
                self._future = Future()
                self._future.set_running_or_notify_cancel()  # Nobody can cancel it now.
            return self._future

    def notify_available(self) -> None:
        """Complete the future, even without a batch, so that the reader polls."""
        with self._lock:
            future = self._make_available()
        if future is not None:
            future.set_result(None)

    def check_errors(self) -> None:
        """Raise the first error; its notes contain later ones."""
        if self._error is not None:
            raise self._error

    def shut_down(self) -> None:
        """End the thread soon; does not wait for it."""
        with self._lock:
            self._is_closed = True
            is_fetching = self._is_fetching()
        self._interrupt(is_fetching)

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """End the thread, wait at most ``timeout`` seconds for it, and recycle the batches that are left."""
        self.shut_down()
        thread, self._thread = self._thread, None
        deadline = time.monotonic() + timeout
        while thread is not None and thread.is_alive():
            # A split reader may miss a wake-up that comes just before it blocks: wake it again.
            thread.join(min(_WAKE_AGAIN, max(0.0, deadline - time.monotonic())))
            if not thread.is_alive():
                break
            if time.monotonic() >= deadline:
                _LOG.warning(
                    "%s did not return from fetch() within %g s after wake_up(), reading split %s; its thread is left "
                    "behind",
                    type(self.split_reader).__name__,
                    timeout,
                    ", ".join(self._splits) or "none",
                )
                break
            self.shut_down()
        while (batch := self.poll()) is not None:
            batch.recycle()

    def _start(self) -> Joinable:
        """Run in a daemon thread, which does not delay the exit of the process."""
        thread = threading.Thread(target=self.run, name=self._name, daemon=True)
        thread.start()
        return thread

    # Called by the fetcher's thread.

    def run(self) -> None:
        """Run until the split reader is closed."""
        while not self.has_ended:
            task = self.next_task()
            if task is None:
                self._wake_ups.get()
            else:
                task()

    def next_task(self) -> Task | None:
        """Queue the batch of the task before, and return the next task; None to wait for a wake-up.

        After an error it waits for the end before the split reader is closed: the source reader may still emit a
        batch whose memory belongs to the split reader, and ends the thread only after it has recycled the batch.
        """
        with self._lock:
            had_task, self._task = self._task is not None, None
            batch = None
            if not self._is_closed:
                batch, self._fetched = self._fetched, None
            if batch is not None:
                self._batches.append(batch)
            if self._is_closed:
                self._task = self._end
            elif self._error is None and self._changes:
                self._task = self._changes.popleft()
            elif self._error is None and self._splits and len(self._batches) < self._capacity:
                self._task = self._fetch
            task = self._task
            future = None
            # If idle, the reader has to check again if everything is read.
            if batch is not None or (had_task and self._is_idle()):
                future = self._make_available()
        if future is not None:
            future.set_result(None)
        return None if task is None else lambda: self._perform(task)

    def _perform(self, task: Task) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - any exception of a reader ends the source
            self._fail(error)

    def _fetch(self) -> None:
        reader = self._reader
        batch = reader.fetch()
        if batch is None:
            raise SourceError(
                f"{type(reader).__name__}.fetch() returned None",
                remedy="return RecordsBySplits({})",
            )
        # Before the batch is in the queue, from where it belongs to the reader's thread.
        finished = batch.finished_splits()
        if finished:
            self._splits = {i: split for i, split in self._splits.items() if i not in finished}
        self._fetched = batch

    def _add(self, splits: tuple[SplitT, ...]) -> None:
        # First, so that an error can name them.
        self._splits = {**self._splits, **{split.split_id: split for split in splits}}
        self._reader.handle_splits_changes(SplitsAddition(splits))

    def _remove(self, split_ids: tuple[str, ...]) -> None:
        splits = tuple(self._splits[i] for i in split_ids if i in self._splits)
        if splits:
            self._reader.handle_splits_changes(SplitsRemoval(splits))
            self._splits = {i: s for i, s in self._splits.items() if i not in split_ids}

    def _pause_or_resume(self, to_pause: tuple[str, ...], to_resume: tuple[str, ...]) -> None:
        # The ids are resolved here, not by the caller, because a change before this one may add splits.
        pausing = [self._splits[i] for i in to_pause if i in self._splits]
        resuming = [self._splits[i] for i in to_resume if i in self._splits]
        if not pausing and not resuming:
            return
        try:
            self._reader.pause_or_resume_splits(pausing, resuming)
        except NotBuiltError:
            if not self._allow_unaligned_splits:
                raise

    def _end(self) -> None:
        batch, self._fetched = self._fetched, None
        if batch is not None:
            self._perform(batch.recycle)
        try:
            self._reader.close()
        finally:
            self.has_ended = True
            # They refer to this object.
            self._task = None
            self._changes.clear()

    # On any thread.

    @property
    def _reader(self) -> SplitReader[E, SplitT]:
        assert self.split_reader is not None  # noqa: S101 - set before the first change
        return self.split_reader

    def _make_available(self) -> Future[None] | None:
        """Return the future to complete without the lock, because completing it runs callbacks."""
        self._is_available = True
        future, self._future = self._future, None
        return future

    def _is_idle(self) -> bool:
        return self._task is None and not self._changes and not self._splits

    def _is_fetching(self) -> bool:
        return self._task == self._fetch

    def _change(self, change: Task) -> None:
        with self._lock:
            self._changes.append(change)
            is_fetching = self._is_fetching()
        self._interrupt(is_fetching)

    def _interrupt(self, is_fetching: bool) -> None:
        """Wake the thread; called without the lock, because a split reader's code may run."""
        self._wake()
        if is_fetching:
            self._perform(self._reader.wake_up)

    def _wake(self) -> None:
        if self._wake_ups.empty():
            self._wake_ups.put(None)

    def _fail(self, error: BaseException) -> None:
        named = failure_at(type(self.split_reader), list(self._splits), error)
        with self._lock:
            first = self._error
            if first is None:
                self._error = named
            elif first is not named:
                first.add_note(f"suppressed, raised later by a fetcher: {named!r}")
        self.notify_available()
        if self._is_closed:
            _LOG.warning("a fetcher failed while its reader closed: %s", named.summary)


def failure_at(kind: type[Any], splits: Sequence[str], error: BaseException) -> SourceError:
    """Return an error that names a class of the source and its splits, and has the original as its cause."""
    if isinstance(error, SourceError):
        return error
    more = f" and {len(splits) - _NAMED} more" if len(splits) > _NAMED else ""
    at_work = f"split {', '.join(splits[:_NAMED])}{more}" if splits else "no split"
    named = SourceError(
        f"{kind.__name__} failed at {at_work}: {type(error).__name__}: {error}".strip(),
        details={"splits": [*splits]},
    )
    named.__cause__ = error
    return named
