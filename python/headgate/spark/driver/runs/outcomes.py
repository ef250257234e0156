"""Consumers whose task has an outcome that only Spark knows yet, and second attempts that wait for it.

No sockets, no Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.spark.driver.runs.members import Consumer, State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.spark.driver.timing import Timing


class PendingOutcomes:
    """Tasks whose outcome Spark is asked for.

    A consumer that stops early says nothing more, whether a LIMIT has enough rows or a function above
    the consumer is about to fail.

    Args:
        timing: how long to wait.
    """

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        #: Exchange and task attempt -> consumer whose outcome Spark is asked for.
        self.consumers: dict[tuple[bytes, int], Consumer] = {}
        #: Second attempt -> exchange and task attempt of the first one.
        self._copies: dict[Consumer, tuple[bytes, int]] = {}

    def begin(self, consumer: Consumer) -> None:
        """Ask Spark for the outcome of a consumer's task."""
        self.consumers[_key(consumer)] = consumer

    def first_attempt(self, consumer: Consumer, others: Iterable[Consumer]) -> Consumer | None:
        """Return the consumer that this one is a second attempt of, as under speculation.

        A second attempt also comes after a failure that Spark has not reported yet.
        """
        key = (*consumer.key, consumer.partition, consumer.index)
        for other in (*others, *self.consumers.values()):
            theirs = (*other.key, other.partition, other.index)
            counts = other.is_present or other.state is State.STOPPED
            if theirs == key and counts and other.attempt != consumer.attempt:
                return other
        return None

    def park(self, copy: Consumer, first: Consumer) -> None:
        """Let a second attempt wait for the outcome of the first one."""
        copy.state = State.PARKED
        self._copies[copy] = _key(first)
        self.begin(first)

    def end(self, consumer: Consumer) -> bool:
        """Stop asking, as Spark has answered; return False if nothing was asked."""
        return self.consumers.pop(_key(consumer), None) is not None

    def release(self, consumer: Consumer) -> list[Consumer]:
        """Return the second attempts of a consumer that are still there, live again."""
        copies = [copy for copy, first in self._copies.items() if first == _key(consumer)]
        for copy in copies:
            del self._copies[copy]
        free = [copy for copy in copies if copy.state is State.PARKED]
        for copy in free:
            copy.state = State.LIVE
        return free

    def forget(self, now: float, failed: Iterable[tuple[bytes, int]]) -> None:
        """Drop second attempts that are gone, and questions that are old or no longer matter.

        Args:
            now: seconds on a monotonic clock.
            failed: exchanges and stages that have failed already.
        """
        self._copies = {c: first for c, first in self._copies.items() if c.is_present}
        waited_for = set(self._copies.values())
        answered = set(failed)
        for attempt, consumer in list(self.consumers.items()):
            is_old = now - consumer.since > self._timing.outcome and attempt not in waited_for
            if is_old or consumer.key in answered:
                del self.consumers[attempt]


def _key(consumer: Consumer) -> tuple[bytes, int]:
    return consumer.exchange_id, consumer.attempt
