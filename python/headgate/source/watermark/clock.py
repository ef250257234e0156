"""A clock that can be held: idleness must not grow while nobody could have read anything."""

from __future__ import annotations

from collections.abc import Callable

Clock = Callable[[], float]


class PausableClock:
    """Seconds of another clock, without those for which this one was paused.

    Source: Flink's PausableRelativeClock (FLINK-35886).

    Args:
        base: the clock that goes on.
    """

    __slots__ = ("_base", "_lost", "_paused_at")

    def __init__(self, base: Clock) -> None:
        self._base = base
        self._lost = 0.0
        self._paused_at: float | None = None

    def __call__(self) -> float:
        """Return the seconds that counted."""
        now = self._base() if self._paused_at is None else self._paused_at
        return now - self._lost

    @property
    def is_paused(self) -> bool:
        """Whether it stands still."""
        return self._paused_at is not None

    def pause(self) -> None:
        """Stand still; a second time changes nothing."""
        if self._paused_at is None:
            self._paused_at = self._base()

    def resume(self) -> None:
        """Go on from where it stood."""
        if self._paused_at is not None:
            self._lost += self._base() - self._paused_at
            self._paused_at = None

    def skip(self, seconds: float) -> None:
        """Take back seconds that counted."""
        self._lost += seconds
