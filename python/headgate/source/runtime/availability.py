"""When to ask a reader again that had nothing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

#: How often a reader may have nothing right after it said that it had, before it is asked less often.
PATIENCE: Final = 3

#: Seconds until it is asked again then; doubled each time, up to the longest.
SHORTEST_DELAY: Final = 0.001
LONGEST_DELAY: Final = 0.1


class Availability:
    """Waits for the future of a reader; slows down one whose future is done without need.

    Args:
        signal: called when the future is done, on the thread that makes it so.

    Attributes:
        retry_at: when to ask again although nothing was signalled, by the caller's clock; or None.
    """

    def __init__(self, signal: Callable[[Any], None]) -> None:
        self._signal = signal
        self._future: Future[None] | None = None
        self._subscribed: Future[None] | None = None
        self._empty = 0
        self.retry_at: float | None = None

    def is_worthwhile(self, now: float) -> bool:
        """Whether to poll the reader now."""
        if self.retry_at is not None:
            return now >= self.retry_at
        return self._future is None or self._future.done()

    def had_more(self) -> None:
        """Learn that the last poll was not for nothing."""
        self._empty = 0
        self._future = None
        self.retry_at = None

    def forget(self) -> None:
        """Poll the reader again whatever its future says: something else has happened."""
        self._future = None
        self.retry_at = None

    def had_nothing(self, future: Future[None], now: float) -> None:
        """Learn that the last poll found nothing, and what the reader gave to wait for."""
        self.retry_at = None
        self._future = future
        if not future.done():
            self._empty = 0
            if future is not self._subscribed:
                self._subscribed = future
                # Called at once if it has become done meanwhile.
                future.add_done_callback(self._signal)
            return
        self._empty += 1
        if self._empty > PATIENCE:
            doublings = min(self._empty - PATIENCE - 1, 10)
            self.retry_at = now + min(LONGEST_DELAY, SHORTEST_DELAY * 2**doublings)
