"""The due times of an operator's watermarks, and the clock of idleness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.source.watermark.clock import Clock, PausableClock

if TYPE_CHECKING:
    from headgate.source.watermark.strategy import WatermarkStrategy

#: Seconds between two periodic watermarks, unless the owner says otherwise; and between two looks at a reader without
#: records, which may be idle, or whose generator may read the clock.
WATERMARK_INTERVAL: Final = 0.2


class Timers:
    """The two periods of an operator, and the clock of idleness.

    Idleness counts only time in which a record could have been read: not the back-pressure that the
    caller reports. A caller that keeps a record for long is blocked, so of each such gap at most one
    interval counts.

    Args:
        strategy: defines the periods.
        clock: in seconds.
        watermark_interval: seconds between two watermarks while there are records. Without records a reader is looked at
            after the default interval, so a short one wakes nobody up who is idle.

    Attributes:
        activity: the clock of idleness.
        due: time of the next periodic watermark or report; None for never.
        has_idleness: True if the strategy has an idle timeout.
        has_alignment: True if the strategy has an alignment group.
    """

    def __init__(
        self,
        strategy: WatermarkStrategy,
        clock: Clock,
        watermark_interval: float = WATERMARK_INTERVAL,
    ) -> None:
        self._clock = clock
        self._shortest = watermark_interval
        self._longest = max(watermark_interval, WATERMARK_INTERVAL)
        self.activity = PausableClock(clock)
        self.has_idleness = strategy.idle_timeout is not None
        now = clock()
        is_periodic = strategy.generator is not None or self.has_idleness
        self._emitted_at = now
        self._emit_at = now + self._longest if is_periodic else None
        self.has_alignment = strategy.alignment is not None
        self._interval = strategy.alignment.update_interval if strategy.alignment else None
        self._report_at = None if self._interval is None else now + self._interval
        self._handed_out_at: float | None = None
        self.due = self._next()

    def must_emit(self, now: float) -> bool:
        """Return True if periodic watermarks are due, and start the next interval."""
        if self._emit_at is None or now < self._emit_at:
            return False
        self._emitted_at = now
        self._emit_at = now + self._longest
        self.due = self._next()
        return True

    def record_emitted(self) -> None:
        """Record that the reader has emitted a record, whose watermark is due soon."""
        soon = self._emitted_at + self._shortest
        if self._emit_at is not None and soon < self._emit_at:
            self._emit_at = soon
            self.due = self._next()

    def must_report(self, now: float) -> bool:
        """Return True if a report to the alignment group is due, and start the next interval."""
        if self._report_at is None or self._interval is None or now < self._report_at:
            return False
        self._report_at = now + self._interval
        self.due = self._next()
        return True

    def record_handed_out(self) -> None:
        """Record that the caller got a record."""
        if self.has_idleness:
            self.record_requested()
            self._handed_out_at = self.activity()

    def record_requested(self) -> None:
        """Record that the caller asked for the next record."""
        if self._handed_out_at is not None:
            gap = self.activity() - self._handed_out_at
            self._handed_out_at = None
            if gap > WATERMARK_INTERVAL:
                self.activity.skip(gap - WATERMARK_INTERVAL)

    def back_pressured_for(self, seconds: float) -> None:
        """Take time off the clock in which the caller could not take records; a clock that is paused lost it already."""
        if not self.activity.is_paused:
            self.activity.skip(seconds)

    def _next(self) -> float | None:
        times = [time for time in (self._emit_at, self._report_at) if time is not None]
        return min(times, default=None)
