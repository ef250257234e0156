"""Reading without blocking: by polling, and in event loops."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from headgate._arguments import patience, takes, timeout
from headgate.errors import ClosedError

if TYPE_CHECKING:
    import asyncio

    from headgate import _native
    from headgate.gate import DataInput

T_co = TypeVar("T_co", covariant=True)

#: Records that a task takes in a row before it yields to the other tasks of its loop.
_IN_A_ROW = 16
_NOTHING: Any = object()


class Pollable(ABC, Generic[T_co]):
    """Polling and ``async for``, for readers. One thread or one task may use a reader at a time."""

    def __init__(
        self,
        gate: DataInput,
        native: _native.RecordReader | _native.BufferReader,
    ) -> None:
        self._gate = gate
        self._pollable = native
        self._in_a_row = 0
        self._lock = threading.Lock()
        # Under _lock, which decides between the waiting task and close() who closes the descriptor.
        self._waits = False
        self._closed = False

    @abstractmethod
    def poll_next(self, default: Any = None) -> Any:
        """Return the next item, or `default` if there is none yet."""

    @property
    def is_available(self) -> bool:
        """True if a poll may return an item, find the end, or raise.

        The poll returns nothing if the next buffer is an event or only a part of a record.
        """
        return self._pollable.is_available()

    @takes(timeout=timeout)
    def wait_available(self, timeout: float | None = None) -> bool:
        """Wait until a poll may find something, :meth:`wake_up` is called, or a timer is due.

        It may return earlier, so call it in a loop.

        Args:
            timeout: seconds; no limit if not given.

        Returns:
            :attr:`is_available`.
        """
        return self._pollable.wait_available(patience(timeout))

    def wake_up(self) -> None:
        """End :meth:`wait_available` at once, or the next call of it; any thread may call it.

        A task of an event loop that waits polls again, and goes on waiting.
        """
        self._pollable.wake_up()

    def _until_timer(self) -> float | None:
        """Return the seconds after which a poll is due although no data arrives."""
        return None

    @property
    def is_finished(self) -> bool:
        """True once everything was read: all channels have ended, and no channel can be added."""
        return self._pollable.is_finished()

    def _is_over(self) -> bool:
        """Return True if a poll finds nothing because an end was reached."""
        return self.is_finished

    def __aiter__(self) -> Self:
        """Return the reader itself."""
        return self

    async def __anext__(self) -> T_co:
        """Wait in the running event loop for the next item.

        The loop watches one descriptor per reader; there is no thread. Cancelling a task that waits
        loses no item. Other tasks run at least once every 16 items.

        Raises:
            StopAsyncIteration: at the end.
            ClosedError: another task waits at this reader already; and the errors of iterating.
        """
        import asyncio

        try:
            if self._in_a_row >= _IN_A_ROW:
                self._in_a_row = 0
                await asyncio.sleep(0)
            item: T_co = self.poll_next(_NOTHING)
            while item is _NOTHING:
                if self._is_over():
                    raise StopAsyncIteration
                self._in_a_row = 0
                await self._wait(asyncio.get_running_loop())
                item = self.poll_next(_NOTHING)
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._close_descriptor()
            raise
        self._in_a_row += 1
        return item

    async def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if self._waits:
                raise ClosedError(
                    "another task waits at this reader already",
                    remedy="one task per reader · a gate and a reader for each task",
                )
            descriptor = self._pollable.open_descriptor()
            self._waits = True
        try:
            available = loop.create_future()
            loop.add_reader(descriptor, _wake, available)
            seconds = self._until_timer()
            timer = None if seconds is None else loop.call_later(seconds, _wake, available)
            try:
                await available
            finally:
                loop.remove_reader(descriptor)
                if timer is not None:
                    timer.cancel()
        finally:
            self._pollable.clear_descriptor()
            with self._lock:
                self._waits = False
                closed = self._closed
            if closed:
                self._pollable.close_descriptor()

    def _close_descriptor(self) -> None:
        with self._lock:
            if self._waits:
                return
        self._pollable.close_descriptor()

    def close(self) -> None:
        """Close the gate, so that the producers stop sending; a task that waits gets ClosedError.

        The gates of a union stay open; close each of them.
        """
        with self._lock:
            self._closed = True
        # Wakes a task that waits, which then closes the descriptor.
        self._gate.close()
        self._close_descriptor()


def _wake(available: asyncio.Future[None]) -> None:
    if not available.done():
        available.set_result(None)
