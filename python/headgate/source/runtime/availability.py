"""The time of the next poll of a reader that had no data."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

#: Spurious completions in a row before polls are delayed.
PATIENCE: Final = 3

#: Delay of the next poll in seconds; it doubles each time, up to the longest.
SHORTEST_DELAY: Final = 0.001
LONGEST_DELAY: Final = 0.1


class Availability:
    """Waits for the future of a reader; delays polls if the future completes without data.

    Args:
        signal: called when the future completes, on the thread that completes it.

    Attributes:
        retry_at: time of the next poll without a signal, by the caller's clock; or None.
    """

    def __init__(self, signal: Callable[[Any], None]) -> None:
        self._signal = signal
        self._future: Future[None] | None = None
        self._subscribed: Future[None] | None = None
        self._empty = 0
        self.retry_at: float | None = None

    def should_poll(self, now: float) -> bool:
        """True if the reader should be polled now."""
        if self.retry_at is not None:
            return now >= self.retry_at
        return self._future is None or self._future.done()

    def found_data(self) -> None:
        """Record that the last poll found data."""
        self._empty = 0
        self._future = None
        self.retry_at = None

    def reset(self) -> None:
        """Poll the reader again even if its future is pending, because its input has changed."""
        self._future = None
        self.retry_at = None

    def found_nothing(self, future: Future[None], now: float) -> None:
        """Record that the last poll found no data, and the future that the reader returned."""
        self.retry_at = None
        self._future = future
        if not future.done():
            self._empty = 0
            if future is not self._subscribed:
                self._subscribed = future
                # Runs at once if the future has completed meanwhile.
                future.add_done_callback(self._signal)
            return
        self._empty += 1
        if self._empty > PATIENCE:
            doublings = min(self._empty - PATIENCE - 1, 10)
            self.retry_at = now + min(LONGEST_DELAY, SHORTEST_DELAY * 2**doublings)
