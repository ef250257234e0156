"""The members of a run, the subpartitions they serve, and messages to them. No sockets, no Spark."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from headgate.spark.driver.members import Consumer, Effect, Member, Producer, Send, State
from headgate.spark.wire.messages import Message

if TYPE_CHECKING:
    from collections.abc import Iterable


class RunState(Enum):
    """The life of a run, in order."""

    FORMING = auto()
    """No producer has a slot yet: consumers may still join, or be handed over."""
    FLOWING = auto()
    """Consumers are started, producers come and go."""
    SEALED = auto()
    """The producer job has ended well; consumers need no other member any more."""
    RECOVERING = auto()
    """An epoch has ended: its tasks stop, and Spark starts lost consumers again."""
    FINISHING = auto()
    """No consumer needs more rows; the producer job is asked to end."""
    OVER = auto()
    """Ended; ``cause`` is None if it ended well."""


class Roster:
    """The tasks of a run, in this epoch and in former ones.

    Args:
        number: of the run, unique in the coordinator.
        exchange_id: the exchange it belongs to.
        stage: the stage of its consumers.
        effects: the list to append messages to.
    """

    def __init__(self, number: int, exchange_id: bytes, stage: int, effects: list[Effect]) -> None:
        self.number = number
        self.epoch = 0
        self.exchange_id = exchange_id
        self.stage = stage
        self.consumers: dict[int, Consumer] = {}
        #: Index of a consumer -> the subpartitions that it reads.
        self.serves: dict[int, list[int]] = {}
        self.producers: dict[int, Producer] = {}
        #: Second attempts of producers.
        self.parked: list[Producer] = []
        #: Producers of epochs that are over.
        self.former: list[Producer] = []
        self.state = RunState.FORMING
        self.effects = effects

    @property
    def indexes(self) -> set[int]:
        """The subpartitions that consumers of this run read or were to read."""
        return {index for served in self.serves.values() for index in served}

    @property
    def wanted(self) -> list[int]:
        """The subpartitions that a producer must fill now."""
        return sorted(
            index
            for kept, served in self.serves.items()
            if self.consumers[kept].is_present
            for index in served
        )

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

    def missing(self, consumer: Consumer) -> Consumer | None:
        """Return the lost consumer whose place a further attempt of its task can take."""
        mine = (self.exchange_id, self.stage) == (consumer.exchange_id, consumer.stage)
        if not mine or self.state not in {
            RunState.FORMING,
            RunState.FLOWING,
            RunState.RECOVERING,
        }:
            return None
        first = self.consumers.get(consumer.index)
        gone = first is not None and first.state in {State.LOST, State.FAILED}
        return first if gone else None

    def is_awaited(self, consumer: Consumer) -> bool:
        """Return True if a consumer, or a further attempt of its task, may need rows."""
        comes_back = self.state is RunState.RECOVERING and consumer.state is State.FAILED
        return consumer.is_present or comes_back

    def copies(self, producer: Producer) -> list[Producer]:
        """Return the second attempts of a producer that wait."""
        return [copy for copy in self.parked if copy.partition == producer.partition]

    def next_copy(self, producer: Producer) -> Producer | None:
        """Return a second attempt that takes over from a producer; None when there is none."""
        for copy in self.copies(producer):
            if copy.state is State.PARKED:
                self.parked.remove(copy)
                copy.state = State.LIVE
                return copy
        return None

    def adopt(self, given: Iterable[int], kept: int) -> None:
        """Let the consumer of ``kept`` serve indexes that were another run's."""
        self.serves[kept] = sorted({*self.serves[kept], *given})

    def hand_over(self, given: Iterable[int], kept: int) -> None:
        """Let the consumer of ``kept`` serve the ``given`` indexes too; their own tasks end."""
        for index in given:
            self.adopt(self.serves.pop(index), kept)
            self.leave(index)

    def leave(self, index: int) -> None:
        """Let the consumer of an index end, as another one serves it."""
        consumer = self.consumers.pop(index)
        consumer.leaving = True
        self.send(consumer, "END")

    def tell_all(self, members: Iterable[Member], kind: str, fields: dict[str, Any]) -> None:
        """Send the same message to those members that have a connection."""
        for member in members:
            if member.state in {State.LIVE, State.PARKED}:
                self.send(member, kind, fields)

    def send(self, member: Member, kind: str, fields: dict[str, Any] | None = None) -> None:
        """Send a message of this run and epoch."""
        message = Message(kind, self.number, self.epoch, fields or {})
        self.effects.append(Send(member.connection, message))
