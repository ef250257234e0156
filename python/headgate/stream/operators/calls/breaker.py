"""When calls pause because too many have failed: rules without clock or I/O. Decision: ADR 0060."""

from __future__ import annotations

from collections import deque
from typing import Final

#: Outcomes that count: so many of the last ones, none older than so many seconds; with fewer nothing is known.
MOST: Final = 100
LEAST: Final = 20
AGE: Final = 60.0
#: Seconds of the first pause, of which each further one has twice as many, and of the longest.
FIRST: Final = 1.0
LONGEST: Final = 60.0
#: Single calls that have to succeed, one after the other, behind a pause.
SINGLES: Final = 3


class CallBreaker:
    """Says whether a call may begin, by how those before have ended. Times are in seconds, of any clock.

    Source: resilience4j's CircuitBreaker, with a window of a number of calls.

    Args:
        share: calls pause if more than this share of the last ones have failed; above 0 and below 1.

    Attributes:
        resumes_at: the time from which single calls may begin; None if any may.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self.resumes_at: float | None = None
        #: Time of the last calls' ends, and whether they failed.
        self._outcomes: deque[tuple[float, bool]] = deque()
        self._failures = 0
        #: Number of the time between two changes: what began in an earlier one counts no more.
        self._period = 0
        #: Pauses since calls went well, single calls that went well since the last one, and if one is under way.
        self._pauses = self._successes = 0
        self._is_single = False

    def is_current(self, period: int) -> bool:
        """Return True if no pause has begun or ended since the begin of a period."""
        return period == self._period

    def begin(self, now: float) -> int | None:
        """Return the period in which a call begins, for :meth:`end`; None if it may not begin now."""
        if self.resumes_at is not None:
            if self._is_single or now < self.resumes_at:
                return None
            self._is_single = True
        return self._period

    def end(self, now: float, period: int, *, has_failed: bool) -> bool:
        """Note how a call has ended; return True if that is the begin or the end of a pause.

        Args:
            now: the time.
            period: in which it began.
            has_failed: True if it failed.
        """
        if period != self._period:
            return False
        if self.resumes_at is None:
            return self._note(now, has_failed=has_failed)
        self._is_single = False
        self._successes += not has_failed
        if has_failed:
            self._pause(now)
        elif self._successes == SINGLES:
            self.resumes_at, self._pauses = None, 0
            self._period += 1
        else:
            return False
        return True

    def _note(self, now: float, *, has_failed: bool) -> bool:
        outcomes = self._outcomes
        outcomes.append((now, has_failed))
        self._failures += has_failed
        while len(outcomes) > MOST or outcomes[0][0] < now - AGE:
            self._failures -= outcomes.popleft()[1]
        is_pause = len(outcomes) >= LEAST and self._failures > self._share * len(outcomes)
        if is_pause:
            self._pause(now)
        return is_pause

    def _pause(self, now: float) -> None:
        self.resumes_at = now + min(LONGEST, FIRST * 2**self._pauses)
        # The longest pause needs no larger power.
        self._pauses = min(self._pauses + 1, 30)
        self._successes, self._is_single = 0, False
        self._period += 1
        self._outcomes.clear()
        self._failures = 0
