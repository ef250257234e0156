"""Consumers of which only Spark knows how their task ended, and the second attempts that wait for it.

No sockets, no Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.spark.driver.members import Consumer, State

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Seconds that Spark's word is waited for on a task that stopped early.
DOUBT: Final = 60.0


class Doubts:
    """A stop is quiet, as after a LIMIT, and so is the first sign of a failure above the consumer."""

    def __init__(self) -> None:
        #: Whose fate Spark is asked for: attempt -> consumer.
        self.consumers: dict[int, Consumer] = {}
        self._copies: dict[Consumer, int] = {}

    def begin(self, consumer: Consumer) -> None:
        """Ask what became of a consumer."""
        self.consumers[consumer.attempt] = consumer

    def first_attempt(self, consumer: Consumer, others: Iterable[Consumer]) -> Consumer | None:
        """Return the consumer of which this one is a second attempt, as under speculation.

        A second attempt also comes after a failure that has not been heard of here yet.
        """
        key = (consumer.exchange_id, consumer.stage, consumer.partition, consumer.index)
        for other in (*others, *self.consumers.values()):
            theirs = (other.exchange_id, other.stage, other.partition, other.index)
            counts = other.is_present or other.state is State.STOPPED
            if theirs == key and counts and not other.leaving and other.attempt != consumer.attempt:
                return other
        return None

    def park(self, copy: Consumer, first: Consumer) -> None:
        """Let a second attempt wait for the fate of the first one."""
        copy.state = State.PARKED
        self._copies[copy] = first.attempt
        self.begin(first)

    def end(self, consumer: Consumer) -> bool:
        """Stop asking, as Spark has answered; False when nobody asked."""
        return self.consumers.pop(consumer.attempt, None) is not None

    def let_go(self, consumer: Consumer) -> list[Consumer]:
        """Return the second attempts that need not wait any more, live again."""
        copies = [copy for copy, first in self._copies.items() if first == consumer.attempt]
        for copy in copies:
            del self._copies[copy]
        free = [copy for copy in copies if copy.state is State.PARKED]
        for copy in free:
            copy.state = State.LIVE
        return free

    def forget(self, now: float, failed: Iterable[tuple[bytes, int]]) -> None:
        """Drop what nobody needs: copies that are gone, doubts that are old or answered otherwise."""
        self._copies = {c: first for c, first in self._copies.items() if c.is_present}
        waited_for = set(self._copies.values())
        answered = set(failed)
        for attempt, consumer in list(self.consumers.items()):
            is_old = now - consumer.since > DOUBT and attempt not in waited_for
            if is_old or (consumer.exchange_id, consumer.stage) in answered:
                del self.consumers[attempt]
