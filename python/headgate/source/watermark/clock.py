"""A clock that can be paused, so that idleness does not grow while no record could be read."""

from __future__ import annotations

from collections.abc import Callable

Clock = Callable[[], float]


class PausableClock:
    """Counts the seconds of another clock, except while it is paused.

    Source: Flink's PausableRelativeClock (FLINK-35886).

    Args:
        base: the clock to read.
    """

    __slots__ = ("_base", "_lost", "_paused_at")

    def __init__(self, base: Clock) -> None:
        self._base = base
        self._lost = 0.0
        self._paused_at: float | None = None

    def __call__(self) -> float:
        """Return the counted seconds."""
        now = self._base() if self._paused_at is None else self._paused_at
        return now - self._lost

    @property
    def is_paused(self) -> bool:
        """True while the clock is paused."""
        return self._paused_at is not None

    def pause(self) -> None:
        """Pause the clock; has no effect on a paused one."""
        if self._paused_at is None:
            self._paused_at = self._base()

    def resume(self) -> None:
        """Resume the clock; has no effect on a running one."""
        if self._paused_at is not None:
            self._lost += self._base() - self._paused_at
            self._paused_at = None

    def skip(self, seconds: float) -> None:
        """Subtract seconds that were counted."""
        self._lost += seconds
