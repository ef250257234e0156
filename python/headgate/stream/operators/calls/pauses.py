"""Lets the calls of a task wait while a breaker says so, and tells of it."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from headgate.errors import SchemaMismatchError
from headgate.stream.operators.calls.breaker import CallBreaker

if TYPE_CHECKING:
    import asyncio

    from headgate.stream.graph.metrics import Metrics

_LOG: Final = logging.getLogger("headgate.stream")


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
        self._waiting: deque[asyncio.Future[int]] = deque()
        #: Time of the timer that is set.
        self._timer: float | None = None
        self._pauses = metrics.counter("call_pauses")
        self._gauge = metrics.gauge("calls_paused")
        self._gauge.set(0)

    async def begin(self) -> int:
        """Wait until a call may begin; return what :meth:`end` takes."""
        period = self._breaker.begin(self._loop.time())
        if period is not None:
            return period
        future: asyncio.Future[int] = self._loop.create_future()
        self._waiting.append(future)
        self._go_on()
        return await future

    def is_current(self, period: int) -> bool:
        """Return True if a call that :meth:`begin` has let pass may still begin."""
        return self._breaker.is_current(period)

    def end(self, period: int, error: BaseException | None) -> None:
        """Note how a call has ended, and let others begin.

        Args:
            period: what :meth:`begin` returned.
            error: of the call; None if it succeeded. A result of another schema is an answer of the service.
        """
        now, breaker = self._loop.time(), self._breaker
        has_failed = error is not None and not isinstance(error, SchemaMismatchError)
        if breaker.end(now, period, has_failed=has_failed):
            resumes_at = breaker.resumes_at
            self._gauge.set(resumes_at is not None)
            if resumes_at is None:
                _LOG.info("%s: all calls go on", self._name)
            else:
                self._pauses.add()
                _LOG.warning(
                    "%s: no call for %g s, since more than a share of %g has failed; the last error is a %s",
                    self._name,
                    resumes_at - now,
                    self._share,
                    type(error).__name__,
                )
        self._go_on()

    def _go_on(self) -> None:
        """Let calls begin that may, and set a timer for the others."""
        now = self._loop.time()
        while self._waiting:
            if self._waiting[0].done():
                self._waiting.popleft()  # it was cancelled
                continue
            period = self._breaker.begin(now)
            if period is None:
                break
            self._waiting.popleft().set_result(period)
        resumes_at = self._breaker.resumes_at
        if self._waiting and resumes_at is not None and now < resumes_at != self._timer:
            self._timer = resumes_at
            self._loop.call_at(resumes_at, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._go_on()
