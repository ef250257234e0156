"""Lets the calls of a task wait for the rate of the job. Decision: ADR 0060."""

from __future__ import annotations

import json
from collections import deque
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from headgate.stream.graph.call_rates import PERIOD
from headgate.stream.operators.calls.answers import asks_for_less
from headgate.stream.operators.calls.tokens import CallTokens

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from headgate.stream.graph.call_rates import CallRate, TokenGrant, TokenLink
    from headgate.stream.graph.metrics import Metrics

#: Most characters of a value in messages; a longer one has a hash.
_LONGEST: Final = 100


class CallPace:
    """The calls of a task that wait for tokens. Used in the thread of their loop.

    Args:
        rate: of the calls.
        link: to what deals the tokens.
        places: most calls under way.
        metrics: has the rate and the waits.
        loop: of the calls.
    """

    def __init__(
        self,
        rate: CallRate,
        link: TokenLink,
        places: int,
        metrics: Metrics,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._column, self._link, self._loop = rate.column, link, loop
        self._tokens: CallTokens[asyncio.Future[None]] = CallTokens(places)
        self._rate = metrics.gauge("call_rate")
        self._rate.set(rate.highest)
        self._waiting = metrics.gauge("calls_waiting")
        self._waiting.set(0)
        self._slowed = metrics.counter("calls_slowed")
        self._histogram = metrics.histogram("call_wait_seconds")
        #: Of calls that are not in the histogram, which takes many at once.
        self._seconds: deque[float] = deque()
        self._is_soon = False
        self._timer: asyncio.TimerHandle | None = None
        self._reporting: asyncio.TimerHandle | None = None
        self._reported_at = loop.time() - PERIOD
        link.on_tokens = self._on_tokens

    def observe(self) -> None:
        """Count the waits that are over; in the task's thread."""
        seconds = [self._seconds.popleft() for _ in range(len(self._seconds))]
        if seconds:
            self._histogram.observe(seconds)

    def value_of(self, row: Any) -> str:
        """Return the value of a row whose calls have a rate of their own."""
        if self._column is None:
            return ""
        text = json.dumps(row[self._column], ensure_ascii=False)
        if len(text) <= _LONGEST:
            return text
        return f"{text[:_LONGEST]} {blake2b(text.encode(), digest_size=16).hexdigest()}"

    async def begin(self, value: str, *, has_place: bool) -> None:
        """Wait for a token.

        Args:
            value: see :meth:`value_of`.
            has_place: True if the call was under way before.
        """
        future: asyncio.Future[None] = self._loop.create_future()
        started = self._loop.time()
        self._tokens.wait(value, future, has_place=has_place)
        self._go_on_soon()
        await future
        self._seconds.append(self._loop.time() - started)

    def put_back(self, value: str) -> None:
        """Give a token back that is not used."""
        self._tokens.put_back(value)
        self._go_on_soon()

    def end(self, value: str, error: BaseException | None) -> None:
        """Note how an attempt has ended."""
        if error is not None and asks_for_less(error):
            self._slowed.add()
            self._tokens.slow_down(value)
            self._go_on_soon()

    def leave(self) -> None:
        """Note that a call is no longer under way."""
        self._tokens.leave()
        self._go_on_soon()

    def _on_tokens(self, tokens: Sequence[TokenGrant], rate: float) -> None:
        """Take tokens, from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._take, tokens, rate)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def _take(self, tokens: Sequence[TokenGrant], rate: float) -> None:
        self._rate.set(rate)
        self._tokens.take(tokens, self._loop.time())
        self._go_on()

    def _go_on_soon(self) -> None:
        """Let calls begin once all that happens now has happened."""
        if not self._is_soon:
            self._is_soon = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Let calls begin that may, and set timers for others and for the report."""
        self._is_soon = False
        for future in self._tokens.begin(self._loop.time()):
            if not future.done():  # it was cancelled
                future.set_result(None)
        self._waiting.set(self._tokens.num_waiting)
        due = self._tokens.due()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if due is None else self._loop.call_at(due, self._go_on)
        if self._tokens.has_news and self._reporting is None:
            at = max(self._loop.time(), self._reported_at + PERIOD)
            self._reporting = self._loop.call_at(at, self._report)

    def _report(self) -> None:
        self._reporting, self._reported_at = None, self._loop.time()
        reports = self._tokens.report()
        if reports:
            self._link.report(reports)
