"""When calls pause because too many have failed: the rules, without a clock, and the calls that wait. Decision: ADR 0060."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from headgate.errors import SchemaMismatchError, UnsupportedTypeError
from headgate.stream.graph.call_functions import Refusal

if TYPE_CHECKING:
    import asyncio

    from headgate.stream.graph.metrics import Metrics

_LOG: Final = logging.getLogger("headgate.stream")

#: Errors after which the service is well, and a further attempt would have none else.
ANSWERS: Final = (SchemaMismatchError, UnsupportedTypeError, Refusal)
#: Outcomes that count: so many of the last ones, none older than so many seconds; with fewer nothing is known.
MOST: Final = 100
LEAST: Final = 20
AGE: Final = 60.0
#: Seconds of the first pause, of which each further one has twice as many, and of the longest.
FIRST: Final = 1.0
LONGEST: Final = 60.0
#: Characters of an error that are shown.
_LONGEST_TEXT: Final = 200
#: Single calls that have to succeed, one after the other, behind a pause.
SINGLES: Final = 3


def described(error: BaseException) -> str:
    """Return the class and the text of an error on one line, of at most 200 characters."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - a user's error need not have a text
        text = ""
    return f"{type(error).__name__}: {text}".removesuffix(": ")[:_LONGEST_TEXT]


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

    def may_begin(self, now: float) -> bool:
        """Return True if a call may begin now."""
        return self.resumes_at is None or (now >= self.resumes_at and not self._is_single)

    def begin(self, now: float) -> int | None:
        """Return the period in which a call begins, for :meth:`end`; None if it may not begin now."""
        if not self.may_begin(now):
            return None
        self._is_single = self.resumes_at is not None
        return self._period

    def is_single(self, period: int) -> bool:
        """Return True if a call that began in a period is the single one that tries the service."""
        return period == self._period and self.resumes_at is not None

    def end(
        self, now: float, period: int, *, has_failed: bool, has_failed_before: bool = False
    ) -> bool:
        """Note how a call has ended; return True if that is the begin or the end of a pause.

        Args:
            now: the time.
            period: in which it began.
            has_failed: True if it failed.
            has_failed_before: True if an earlier attempt of it was a single one that failed. Once another one has
                succeeded its failure is that of its row, and says nothing of the service.
        """
        if period != self._period:
            return False
        if self.resumes_at is None:
            return self._note(now, has_failed=has_failed)
        self._is_single = False
        if has_failed and has_failed_before and self._successes:
            return False
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


class CallPauses:
    """The calls of a task that wait for the end of a pause. Used in the thread of their loop.

    Args:
        name: of the calls, for the log.
        share: see :class:`CallBreaker`.
        metrics: counts the pauses.
        loop: of the calls.
    """

    def __init__(
        self, name: str, share: float, metrics: Metrics, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._name, self._share, self._loop = name, share, loop
        self._breaker = CallBreaker(share)
        #: Each with the number of its call.
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        #: Calls that were the single one in this outage, and failed: others are next.
        self._tried: set[int] = set()
        #: Time of the timer that is set.
        self._timer: float | None = None
        self._pauses = metrics.counter("call_pauses")
        self._gauge = metrics.gauge("calls_paused")
        self._gauge.set(0)

    async def wait(self, call: int) -> None:
        """Wait until a call may begin, by its number. Others may then begin before it, since it may wait for something else first."""
        while not self._breaker.may_begin(self._loop.time()):
            future: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append((call, future))
            self._go_on()
            await future

    def begin(self) -> int | None:
        """Begin a call; return what :meth:`end` takes, None if it may not begin after all."""
        return self._breaker.begin(self._loop.time())

    def end(self, call: int, period: int, error: BaseException | None) -> None:
        """Note how a call has ended, and let others begin.

        Args:
            call: its number.
            period: what :meth:`begin` returned.
            error: of the call; None if it succeeded. What is an answer of the service is no failure of it.
        """
        now, breaker = self._loop.time(), self._breaker
        has_failed = error is not None and not isinstance(error, ANSWERS)
        has_failed_before = call in self._tried
        if has_failed and breaker.is_single(period):
            self._tried.add(call)
        if breaker.end(now, period, has_failed=has_failed, has_failed_before=has_failed_before):
            resumes_at = breaker.resumes_at
            self._gauge.set(resumes_at is not None)
            if resumes_at is None:
                self._tried.clear()
                _LOG.info("%s: all calls go on", self._name)
            elif error is not None:
                self._pauses.add()
                _LOG.warning(
                    "%s: no call for %g s, since more than a share of %g has failed; the last error is %s",
                    self._name,
                    resumes_at - now,
                    self._share,
                    described(error),
                )
        self._go_on()

    def _go_on(self) -> None:
        """Let the calls look again that wait, if one may begin, or set a timer for them."""
        now, resumes_at = self._loop.time(), self._breaker.resumes_at
        if self._breaker.may_begin(now):
            # One that has failed as the single call has its turn behind the others: its row may be what fails.
            waiting = sorted(self._waiting, key=lambda waiter: waiter[0] in self._tried)
            self._waiting = []
            for _, future in waiting:
                if not future.done():  # it was cancelled
                    future.set_result(None)
        elif self._waiting and resumes_at is not None and now < resumes_at != self._timer:
            self._timer = resumes_at
            self._loop.call_at(resumes_at, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._go_on()
