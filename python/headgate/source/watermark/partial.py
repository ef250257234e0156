"""The watermarks of a reader's splits, and their combination."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headgate.source.watermark.generator import MIN_WATERMARK, WatermarkOutput

if TYPE_CHECKING:
    from headgate.source.watermark.clock import Clock


class PartialWatermark(WatermarkOutput):
    """The watermark of one output, which only grows.

    Args:
        changed: called when this watermark grew, or became idle or active.

    Attributes:
        watermark: in ms; ``MIN_WATERMARK`` before the first one.
        is_idle: True while the combined watermark ignores this one.
        is_used: True once the output had a watermark or was idle.
    """

    __slots__ = ("_changed", "is_idle", "is_used", "watermark")

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.watermark = MIN_WATERMARK
        self.is_idle = False
        self.is_used = False

    def emit_watermark(self, timestamp: int) -> None:
        """Take a watermark; ignore one that is not higher."""
        if timestamp > self.watermark:
            self.watermark = timestamp
            self.is_idle = False
            self.is_used = True
            self._changed()

    def mark_idle(self) -> None:
        """Mark the output idle until its next record or watermark."""
        self.is_used = True
        if not self.is_idle:
            self.is_idle = True
            self._changed()

    def mark_active(self) -> None:
        """Mark the output active."""
        if self.is_idle:
            self.is_idle = False
            self._changed()


def combined_watermark(partials: Iterable[PartialWatermark]) -> int | None:
    """Return the smallest watermark of the active outputs; None if all are idle."""
    return min((p.watermark for p in partials if not p.is_idle), default=None)


class IdleTimer:
    """Detects that no event has happened for a time.

    Source: Flink's WatermarksWithIdleness.IdlenessTimer. The time begins with the first check that
    finds no new event, so events do not read the clock.

    Args:
        timeout: in seconds.
        clock: counts only the time in which an event could have happened.
    """

    __slots__ = ("_clock", "_last_events", "_since", "_timeout")

    def __init__(self, timeout: float, clock: Clock) -> None:
        self._timeout = timeout
        self._clock = clock
        self._last_events = 0
        self._since: float | None = None

    def is_idle(self, events: int) -> bool:
        """Return True if no event has happened for the timeout; ``events`` is the total so far."""
        if events != self._last_events:
            self._last_events, self._since = events, None
            return False
        now = self._clock()
        if self._since is None:
            self._since = now
            return False
        return now - self._since >= self._timeout
