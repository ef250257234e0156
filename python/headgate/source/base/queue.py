"""The queue between fetchers and reader: the fetchers' side blocks, the reader's side never does."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import Final, Generic, TypeVar

from headgate.errors import OptionError
from headgate.source.base.threads import THREADS, Steps, Threads, drive

E = TypeVar("E")

DEFAULT_CAPACITY: Final = 2


def _done() -> Future[None]:
    future: Future[None] = Future()
    future.set_result(None)
    return future


#: The one future for "available already", so that the usual case is a comparison of identities.
AVAILABLE: Final[Future[None]] = _done()


class _Putter:
    """A thread that had to wait to put: its parker, and whether it was woken meanwhile."""

    __slots__ = ("parker", "woken")

    def __init__(self, threads: Threads) -> None:
        self.parker = threads.parker()
        self.woken = False


class FutureCompletingBlockingQueue(Generic[E]):
    """A bounded queue of many putting threads and one reader, which waits on a future.

    The future is done exactly when the queue holds an element or :meth:`notify_available` was
    called since the last :meth:`poll` that left it empty. After Flink's class of the same name.

    Args:
        capacity: in elements, at least 1.
        threads: makes its lock and parkers.

    Raises:
        OptionError: a capacity below 1.
    """

    def __init__(self, capacity: int = DEFAULT_CAPACITY, *, threads: Threads = THREADS) -> None:
        if capacity < 1:
            raise OptionError(
                "the element queue needs room for one batch at least",
                asked=f"queue_capacity={capacity}",
                remedy=f"queue_capacity={DEFAULT_CAPACITY}",
            )
        self._capacity = capacity
        self._threads = threads
        self._lock = threads.lock()
        self._elements: deque[E] = deque()
        self._available = False
        self._future: Future[None] | None = None  # made when it is asked for
        self._putters: dict[int, _Putter] = {}
        self._waiting: deque[_Putter] = deque()

    def put(self, thread_index: int, element: E) -> bool:
        """Append an element; block while the queue is full.

        Returns:
            False when :meth:`wake_up_putting_thread` came while it was full: nothing was appended.
        """
        return drive(self.put_steps(thread_index, element))

    def put_steps(self, thread_index: int, element: E) -> Steps[bool]:
        """Do what :meth:`put` does, as steps."""
        while True:
            with self._lock:
                putter = self._putters.get(thread_index)
                if len(self._elements) < self._capacity:
                    self._elements.append(element)
                    future = self._make_available()
                    if putter is not None and putter in self._waiting:
                        self._waiting.remove(putter)
                    break
                if putter is None:
                    putter = self._putters[thread_index] = _Putter(self._threads)
                if putter.woken:
                    putter.woken = False
                    if putter in self._waiting:
                        self._waiting.remove(putter)
                    return False
                if putter not in self._waiting:
                    self._waiting.append(putter)
            yield putter.parker
        if future is not None:
            future.set_result(None)
        return True

    def wake_up_putting_thread(self, thread_index: int) -> None:
        """Make the thread's put return False: the waiting one, or the next that finds it full."""
        with self._lock:
            putter = self._putters.get(thread_index)
            if putter is None:
                putter = self._putters[thread_index] = _Putter(self._threads)
            putter.woken = True
        putter.parker.unpark()

    def forget_putting_thread(self, thread_index: int) -> None:
        """Drop what is kept about a thread that has ended."""
        with self._lock:
            self._putters.pop(thread_index, None)

    def poll(self) -> E | None:
        """Take the first element, or None; leaves a new open future when it leaves nothing."""
        with self._lock:
            if not self._elements:
                self._available = False
                return None
            element = self._elements.popleft()
            if not self._elements:
                self._available = False
            putter = self._waiting.popleft() if self._waiting else None
        if putter is not None:
            putter.parker.unpark()
        return element

    def peek(self) -> E | None:
        """Return the first element without taking it, or None."""
        with self._lock:
            return self._elements[0] if self._elements else None

    def size(self) -> int:
        """Return the number of elements."""
        with self._lock:
            return len(self._elements)

    def is_empty(self) -> bool:
        """Return whether there is no element."""
        return self.size() == 0

    def remaining_capacity(self) -> int:
        """Return how many elements fit in now."""
        with self._lock:
            return self._capacity - len(self._elements)

    def get_availability_future(self) -> Future[None]:
        """Return a future that is done when :meth:`poll` is worth while."""
        with self._lock:
            if self._available:
                return AVAILABLE
            if self._future is None:
                self._future = Future()
                self._future.set_running_or_notify_cancel()  # who waits cannot cancel it
            return self._future

    def notify_available(self) -> None:
        """Complete the future though there may be no element: the reader has a reason to look."""
        with self._lock:
            future = self._make_available()
        if future is not None:
            future.set_result(None)

    def _make_available(self) -> Future[None] | None:
        """Note availability; return the future to complete after the lock: it runs callbacks."""
        self._available = True
        future, self._future = self._future, None
        return future
