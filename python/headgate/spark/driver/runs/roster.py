"""The members of a run, the subpartitions they serve, and messages to them. No sockets, no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.spark.driver.runs.members import Consumer, Effect, Member, Producer, Send, State
from headgate.spark.wire.messages import Message

if TYPE_CHECKING:
    from collections.abc import Iterable


class Roster:
    """The tasks of a run, in this epoch and in former ones.

    Args:
        run: number of the run.
        effects: the list to append messages to.
    """

    def __init__(self, run: int, effects: list[Effect]) -> None:
        self._run = run
        self._effects = effects
        self.epoch = 0
        self.consumers: dict[int, Consumer] = {}
        self.producers: dict[int, Producer] = {}
        #: Second attempts of producers.
        self.parked: list[Producer] = []
        #: Producers of epochs that are over.
        self.former: list[Producer] = []

    @property
    def wanted(self) -> list[int]:
        """The subpartitions that a producer must fill now."""
        return sorted(index for index, consumer in self.consumers.items() if consumer.is_present)

    @property
    def members(self) -> Iterable[Member]:
        """All tasks of this epoch and of former ones."""
        return [*self.consumers.values(), *self.producers.values(), *self.parked, *self.former]

    @property
    def live_consumers(self) -> list[Consumer]:
        """Consumers with a connection."""
        return [c for c in self.consumers.values() if c.state is State.LIVE]

    @property
    def live_producers(self) -> list[Producer]:
        """Producers with a connection that were told to go."""
        return [p for p in self.producers.values() if p.state is State.LIVE]

    @property
    def asks_spark(self) -> bool:
        """True while Spark's answer about a member is pending."""
        return any(member.state is State.LOST for member in self.members)

    def copies(self, producer: Producer) -> list[Producer]:
        """Return the second attempts at a producer's partition, which wait."""
        return [copy for copy in self.parked if copy.partition == producer.partition]

    def next_copy(self, producer: Producer) -> Producer | None:
        """Return a second attempt that takes over from a producer; None when there is none."""
        for copy in self.copies(producer):
            if copy.state is State.PARKED:
                self.parked.remove(copy)
                copy.state = State.LIVE
                return copy
        return None

    def begin_epoch(self) -> None:
        """Begin the next epoch: it has the same consumers, and no producer yet."""
        self.former += [*self.producers.values(), *self.parked]
        self.producers, self.parked = {}, []
        self.epoch += 1

    def tell_all(self, members: Iterable[Member], kind: str, fields: dict[str, Any]) -> None:
        """Send the same message to those members that have a connection."""
        for member in members:
            if member.state in {State.LIVE, State.PARKED}:
                self.send(member, kind, fields)

    def send(self, member: Member, kind: str, fields: dict[str, Any] | None = None) -> None:
        """Send a message of this run and epoch."""
        message = Message(kind, self._run, self.epoch, fields or {})
        self._effects.append(Send(member.connection, message))
