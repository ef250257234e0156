"""Rates of calls: deals tokens to the tasks of jobs in this process. Decision: ADR 0060."""

from __future__ import annotations

import math
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from headgate.errors import StreamError
from headgate.stream.graph.call_rates import PERIOD
from headgate.stream.job.tokens import RateLimits, Tokens

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from headgate.control.messages import Message
    from headgate.stream.graph.call_rates import CallRate
    from headgate.stream.graph.stages import JobGraph, TaskId
    from headgate.stream.job.attempt import Attempt


class RateMaster(Protocol):
    """The coordinator of a job."""

    def call(self, action: Callable[[], None]) -> None:
        """Call an action on its thread; from any."""

    def guarded(self, action: Callable[[], None]) -> None:
        """Call an action, and let its errors fail the job."""

    def to_task(self, attempt: Attempt, kind: str, task: TaskId, fields: dict[str, Any]) -> None:
        """Send a message to a task of an attempt that runs."""


class _SharedRate:
    """The tokens of a rate, for all operators and jobs that share it.

    Args:
        rate: see there.

    Attributes:
        lock: held to use the rest.
        tokens: see there.
        jobs: those that use it, each in its own thread.
        dealt_at: time of the last deal.
    """

    def __init__(self, rate: CallRate) -> None:
        self.rate = rate
        self.lock = threading.Lock()
        self.tokens = Tokens(RateLimits(rate.highest, rate.lowest))
        self.jobs: set[JobRates] = set()
        self.dealt_at = -math.inf


#: Rates with a name that jobs of this process use.
_NAMED: Final[dict[str, _SharedRate]] = {}
_NAMING: Final = threading.Lock()


class JobRates:
    """The rates of one job. Used in the thread of its coordinator, but for :meth:`claim`.

    Args:
        graph: the job.
        loop: of the coordinator.
        master: the coordinator.
    """

    def __init__(
        self, graph: JobGraph, loop: asyncio.AbstractEventLoop, master: RateMaster
    ) -> None:
        nodes = [node for stage in graph.stages for node in stage.operators]
        self._wishes = {node.uid: node.rate for node in nodes if node.rate is not None}
        self._loop, self._master = loop, master
        #: By operator.
        self._rates: dict[str, _SharedRate] = {}
        self._attempt: Attempt | None = None
        self._timers: dict[_SharedRate, asyncio.TimerHandle] = {}

    def claim(self) -> None:
        """Share the rates with jobs that run.

        Raises:
            StreamError: one has another rate under the same name.
        """
        with _NAMING:
            for uid, rate in self._wishes.items():
                shared = _SharedRate(rate)
                if rate.name is not None:
                    shared = _NAMED.setdefault(rate.name, shared)
                    _check_same(rate, shared.rate)
                with shared.lock:
                    shared.jobs.add(self)
                self._rates[uid] = shared

    def close(self) -> None:
        """Leave the rates; one that nobody uses is forgotten."""
        self.end_attempt()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        with _NAMING:
            for shared in self._rates.values():
                with shared.lock:
                    shared.jobs.discard(self)
                name = shared.rate.name
                if name is not None and not shared.jobs:
                    _NAMED.pop(name, None)
        self._rates.clear()

    def begin(self, attempt: Attempt) -> None:
        """Deal tokens to the tasks of an attempt.

        A driver before this one may have dealt tokens up to now, so a job that begins with a checkpoint saves up none.
        """
        self._attempt = attempt
        if attempt.number == 1 and attempt.restored is not None:
            for shared in set(self._rates.values()):
                with shared.lock:
                    if shared.jobs == {self}:
                        shared.tokens.begin_empty(time.monotonic())

    def end_attempt(self) -> None:
        """Take no report of the attempt any more; the tokens of its tasks count as used, since some may have been."""
        self._attempt = None
        for shared in set(self._rates.values()):
            with shared.lock:
                shared.tokens.forget(self._is_of_this_job, time.monotonic())
                others = shared.jobs - {self}
            for job in others:
                job.look_soon(shared)
            self._look(shared)

    def _is_of_this_job(self, holder: Any) -> bool:
        return holder[0][0] is self

    def report(self, attempt: Attempt, message: Message) -> None:
        """Take the report of a task."""
        shared = self._rates[message["operator"]]
        task = (self, attempt.number, tuple(message["task"]), message["operator"])
        now = time.monotonic()
        with shared.lock:
            for value, wanted, used, returned, slowed in message["values"]:
                shared.tokens.report(
                    (task, value), now, wanted=wanted, used=used, returned=returned, slowed=slowed
                )
        self._look(shared)

    def look_soon(self, shared: _SharedRate) -> None:
        """Deal what there is now, from the thread of another job."""
        with suppress(ReferenceError):  # that job is gone
            self._master.call(lambda: self._look(shared))

    def _look(self, shared: _SharedRate) -> None:
        """Set the timer of the next deal."""
        timer = self._timers.pop(shared, None)
        if timer is not None:
            timer.cancel()
        with shared.lock:
            due = shared.tokens.due()
            # Tokens that come one by one are dealt together.
            at = None if due is None else max(due, shared.dealt_at + PERIOD)
        if at is not None and self._rates:
            delay = max(0.0, at - time.monotonic())
            self._timers[shared] = self._loop.call_later(delay, self._deal_guarded, shared)

    def _deal_guarded(self, shared: _SharedRate) -> None:
        self._master.guarded(lambda: self._deal(shared))

    def _deal(self, shared: _SharedRate) -> None:
        with shared.lock:
            now = time.monotonic()
            dealt = shared.tokens.deal(now)
            rate, shared.dealt_at = shared.tokens.lowest_rate, now
        tasks: dict[Any, list[list[Any]]] = {}
        for (task, value), number in dealt.items():
            tasks.setdefault(task, []).append([value, number])
        for task, values in tasks.items():
            task[0].send(*task[1:], values, rate)
        self._look(shared)

    def send(
        self, attempt: int, task: TaskId, operator: str, values: list[list[Any]], rate: float
    ) -> None:
        """Send tokens to a task, from any thread; those of an attempt that is over are lost."""
        fields = {"operator": operator, "values": values, "rate": rate}

        def send() -> None:
            current = self._attempt
            if current is not None and current.number == attempt:
                self._master.to_task(current, "TOKENS", task, fields)

        with suppress(ReferenceError):  # the job is gone
            self._master.call(send)


def _check_same(rate: CallRate, before: CallRate) -> None:
    if (rate.highest, rate.lowest, rate.column is None) == (
        before.highest,
        before.lowest,
        before.column is None,
    ):
        return
    by = {True: "", False: " for each value"}
    raise StreamError(
        f"two rates are named {rate.name!r}",
        asked=f"{rate.highest:g}/s, at least {rate.lowest:g}/s{by[rate.column is None]}",
        have=f"{before.highest:g}/s, at least {before.lowest:g}/s{by[before.column is None]}",
        remedy="the same rate=, rate_min= and rate_by= for all that share it · another rate_name=",
    )
