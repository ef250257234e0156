"""The due times of an operator's watermarks, and the clock of idleness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.source.watermark.clock import Clock, PausableClock

if TYPE_CHECKING:
    from headgate.source.watermark.strategy import WatermarkStrategy

#: Seconds between two periodic watermarks.
WATERMARK_INTERVAL: Final = 0.2


class Timers:
    """The two periods of an operator, and the clock of idleness.

    Idleness counts only time in which a record could have been read. A caller that keeps a record
    for long is blocked, so at most one interval of each such gap counts, even if the caller did
    not report back-pressure.

    Args:
        strategy: defines the periods.
        clock: in seconds.

    Attributes:
        activity: the clock of idleness.
        due: time of the next periodic watermark or report; None for never.
        has_alignment: True if the strategy has an alignment group.
    """

    def __init__(self, strategy: WatermarkStrategy, clock: Clock) -> None:
        self._clock = clock
        self.activity = PausableClock(clock)
        self._has_idleness = strategy.idle_timeout is not None
        now = clock()
        is_periodic = strategy.generator is not None or self._has_idleness
        self._emit_at = now + WATERMARK_INTERVAL if is_periodic else None
        self.has_alignment = strategy.alignment is not None
        self._interval = strategy.alignment.update_interval if strategy.alignment else None
        self._report_at = None if self._interval is None else now + self._interval
        self._handed_out_at: float | None = None
        self._holds: set[str] = set()
        self.due = self._next()

    def must_emit(self, now: float) -> bool:
        """Return True if periodic watermarks are due, and start the next interval."""
        if self._emit_at is None or now < self._emit_at:
            return False
        self._emit_at = now + WATERMARK_INTERVAL
        self.due = self._next()
        return True

    def must_report(self, now: float) -> bool:
        """Return True if a report to the alignment group is due, and start the next interval."""
        if self._report_at is None or self._interval is None or now < self._report_at:
            return False
        self._report_at = now + self._interval
        self.due = self._next()
        return True

    def record_handed_out(self) -> None:
        """Record that the caller got a record."""
        if self._has_idleness:
            self.record_requested()
            self._handed_out_at = self.activity()

    def record_requested(self) -> None:
        """Record that the caller asked for the next record."""
        if self._handed_out_at is not None:
            gap = self.activity() - self._handed_out_at
            self._handed_out_at = None
            if gap > WATERMARK_INTERVAL:
                self.activity.skip(gap - WATERMARK_INTERVAL)

    def hold(self, reason: str) -> None:
        """Pause the clock of idleness as long as there is any reason."""
        self._holds.add(reason)
        self.activity.pause()

    def release(self, reason: str) -> None:
        """Remove a reason; resume the clock after the last one."""
        self._holds.discard(reason)
        if not self._holds:
            self.activity.resume()

    def set_back_pressured(self, is_back_pressured: bool) -> None:
        """Pause the clock while the caller cannot take records."""
        if is_back_pressured:
            self.hold("back-pressured")
        else:
            self.release("back-pressured")

    def _next(self) -> float | None:
        times = [time for time in (self._emit_at, self._report_at) if time is not None]
        return min(times, default=None)
