"""The queue between fetchers and reader: a put may block, a poll never does."""

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


#: A completed future, shared, so that the usual case is a comparison of identities.
AVAILABLE: Final[Future[None]] = _done()


class _Putter:
    """A thread that puts.

    Attributes:
        parker: parks the thread while the queue is full.
        woken: True if the thread's put has to return False.
    """

    __slots__ = ("parker", "woken")

    def __init__(self, threads: Threads) -> None:
        self.parker = threads.parker()
        self.woken = False


class FutureCompletingBlockingQueue(Generic[E]):
    """A bounded queue with many putting threads and one reader, which waits on a future.

    The future is done exactly while the queue holds an element or :meth:`notify_available` was
    called since the last :meth:`poll` that left the queue empty. After Flink's class of the same
    name.

    Args:
        capacity: in elements, at least 1.
        threads: makes the lock and the parkers.

    Raises:
        OptionError: the capacity is below 1.
    """

    def __init__(self, capacity: int = DEFAULT_CAPACITY, *, threads: Threads = THREADS) -> None:
        if capacity < 1:
            raise OptionError(
                "the element queue needs room for at least one batch",
                asked=f"queue_capacity={capacity}",
                remedy=f"queue_capacity={DEFAULT_CAPACITY}",
            )
        self._capacity = capacity
        self._threads = threads
        self._lock = threads.lock()
        self._elements: deque[E] = deque()
        self._available = False
        self._future: Future[None] | None = None  # Created on request.
        self._putters: dict[int, _Putter] = {}
        self._waiting: deque[_Putter] = deque()

    def put(self, thread_index: int, element: E) -> bool:
        """Append an element; block while the queue is full.

        Returns:
            False if :meth:`wake_up_putting_thread` interrupted the wait; nothing is appended then.
        """
        return drive(self.put_steps(thread_index, element))

    def put_steps(self, thread_index: int, element: E) -> Steps[bool]:
        """Return the steps of :meth:`put`."""
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
        """Make the thread's waiting put, or else its next put into a full queue, return False."""
        with self._lock:
            putter = self._putters.get(thread_index)
            if putter is None:
                putter = self._putters[thread_index] = _Putter(self._threads)
            putter.woken = True
        putter.parker.unpark()

    def forget_putting_thread(self, thread_index: int) -> None:
        """Drop the state of a thread that has ended."""
        with self._lock:
            self._putters.pop(thread_index, None)

    def poll(self) -> E | None:
        """Take the first element, or None; reset the future if the queue is empty afterwards."""
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
        """Return True if there is no element."""
        return self.size() == 0

    def remaining_capacity(self) -> int:
        """Return the number of elements that can be put without waiting."""
        with self._lock:
            return self._capacity - len(self._elements)

    def get_availability_future(self) -> Future[None]:
        """Return a future that completes when :meth:`poll` may return an element."""
        with self._lock:
            if self._available:
                return AVAILABLE
            if self._future is None:
                self._future = Future()
                self._future.set_running_or_notify_cancel()  # Nobody can cancel it now.
            return self._future

    def notify_available(self) -> None:
        """Complete the future, even without an element, so that the reader polls."""
        with self._lock:
            future = self._make_available()
        if future is not None:
            future.set_result(None)

    def _make_available(self) -> Future[None] | None:
        """Set availability under the lock.

        Returns:
            The future to complete without the lock, because completing it runs callbacks.
        """
        self._available = True
        future, self._future = self._future, None
        return future
