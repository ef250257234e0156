"""The watermarks of the splits of a reader, and what follows from them together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headgate.source.watermark.generator import MIN_WATERMARK, WatermarkOutput

if TYPE_CHECKING:
    from headgate.source.watermark.clock import Clock


class PartialWatermark(WatermarkOutput):
    """The watermark of one output: grows only; an idle one holds nobody back.

    Args:
        changed: called when this watermark grew, or became idle or active.

    Attributes:
        watermark: in ms; ``MIN_WATERMARK`` before the first.
        is_idle: whether it is left out.
        is_used: whether anything ever came of it.
    """

    __slots__ = ("_changed", "is_idle", "is_used", "watermark")

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.watermark = MIN_WATERMARK
        self.is_idle = False
        self.is_used = False

    def emit_watermark(self, timestamp: int) -> None:
        """Take a watermark; one that does not grow changes nothing."""
        if timestamp > self.watermark:
            self.watermark = timestamp
            self.is_idle = False
            self.is_used = True
            self._changed()

    def mark_idle(self) -> None:
        """Leave it out until its next record or watermark."""
        self.is_used = True
        if not self.is_idle:
            self.is_idle = True
            self._changed()

    def mark_active(self) -> None:
        """Count it in again."""
        if self.is_idle:
            self.is_idle = False
            self._changed()


def combined_watermark(partials: Iterable[PartialWatermark]) -> int | None:
    """Return the smallest watermark of those that are not idle; None where there is none."""
    return min((p.watermark for p in partials if not p.is_idle), default=None)


class IdleTimer:
    """Says when nothing has happened for a time.

    Source: Flink's WatermarksWithIdleness.IdlenessTimer: the time begins with the first look that
    finds nothing new, so records cost no look at the clock.

    Args:
        timeout: in seconds.
        clock: counts only the time in which something could have happened.
    """

    __slots__ = ("_clock", "_seen", "_since", "_timeout")

    def __init__(self, timeout: float, clock: Clock) -> None:
        self._timeout = timeout
        self._clock = clock
        self._seen = 0
        self._since: float | None = None

    def is_idle(self, events: int) -> bool:
        """Look, and return whether it is idle; ``events`` counts all that ever happened."""
        if events != self._seen:
            self._seen, self._since = events, None
            return False
        now = self._clock()
        if self._since is None:
            self._since = now
            return False
        return now - self._since >= self._timeout
