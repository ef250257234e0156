"""How the epochs of a run begin and end, and the run with them. No sockets, no Spark.

A member that is lost ends an epoch: producers stop, consumers begin again, in place or as a further
attempt of their task, and then a new producer job begins the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.spark.driver.epoch_causes import EpochCauses, Retries
from headgate.spark.driver.epoch_jobs import EpochJobs
from headgate.spark.driver.members import (
    ENDED,
    AskVerdict,
    Consumer,
    Effect,
    Ended,
    EpochEnded,
    Member,
    Producer,
    State,
)
from headgate.spark.driver.readers import is_gone
from headgate.spark.driver.roster import Roster, RunState
from headgate.spark.wire.cause import CANCELLED, Cause

if TYPE_CHECKING:
    from headgate.spark.driver.readers import Readers


class Epochs(Roster):
    """What a loss does to a run, and its end.

    Args:
        number: of the run, unique in the coordinator.
        exchange_id: the exchange it belongs to.
        stage: the stage of its consumers.
        effects: where to put what is to be done.
        retries: how often things are tried again.
    """

    def __init__(
        self,
        number: int,
        exchange_id: bytes,
        stage: int,
        effects: list[Effect],
        retries: Retries,
    ) -> None:
        super().__init__(number, exchange_id, stage, effects)
        self.causes = EpochCauses(retries)
        self.cause: Cause | None = None
        self.jobs = EpochJobs()
        #: What producers that read a source said and were told; None where they have an input.
        self.readers: Readers | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing but clean-up is left to do."""
        return self.state is RunState.OVER

    @property
    def job_ended(self) -> bool:
        """Whether no producer job of it is left."""
        return not self.jobs.left

    @property
    def is_cancelled(self) -> bool:
        """Whether it was cancelled from outside."""
        return self.cause is not None and self.cause.is_cancelled

    def consumer_ended(self, consumer: Consumer, state: State) -> None:
        """A consumer needs nothing more: it has all its rows, or stopped early, or is gone."""
        consumer.state = state
        if self.is_over or self.consumers.get(consumer.index) is not consumer:
            return
        if self.state is not RunState.SEALED:
            for index in self.serves[consumer.index]:
                for producer in self.live_producers:
                    self.send(producer, "CONSUMER_GONE", {"index": index})
        if not any(self.is_awaited(c) for c in self.consumers.values()):
            self._finish()

    def lost(self, member: Member, cause: Cause) -> None:
        """Ask Spark what became of it: a consumer may have ended well, a producer ends the epoch."""
        is_former = member.state is State.ENDING
        # Who was lost before it could be told may be what others heard of.
        explains = (
            self.state is RunState.RECOVERING
            and self.causes.is_unconfirmed
            and not (isinstance(member, Producer) and member.has_heard)
        )
        if self.is_over or self.state is RunState.FINISHING or (is_former and not explains):
            member.state = State.STOPPED
            return
        member.state = State.LOST
        self.effects.append(AskVerdict(member, self))
        if is_former and self.jobs.left and not self.jobs.was_cancelled:
            # Spark had no reason to end it, and whoever lives says that it has heard.
            self.causes.replace(cause, member)
        elif isinstance(member, Producer) and not is_former and not self._give_back(member):
            self.end_epoch(cause, member)

    def producer_lost(self, producer: Producer, status: str, cause: Cause) -> None:
        """Spark has said what became of a producer's task, or does not know it either."""
        producer.state = State.FAILED
        if producer.epoch != self.epoch and not self.causes.is_of(producer):
            if status == "FAILED" and is_gone(cause.text):
                self.causes.replace(cause, producer)
            return
        if status == "CANCELLED" and self.causes.is_of(producer):
            # Whoever cancelled it did so for a reason, which may still come to be known.
            self.causes.replace_for_now(CANCELLED)
        elif status != "CANCELLED":
            self.causes.replace(cause, producer)
        current = self.producers.get(producer.partition) is producer
        if (
            self.readers is not None
            and not producer.place
            and current
            and status not in {*ENDED, "CANCELLED"}
        ):
            # For Spark it still runs, so no other attempt will come.
            self.end_epoch(self.readers.losses.get(producer.partition, cause), producer)

    def consumer_lost(self, consumer: Consumer, cause: Cause, *, is_killed: bool = False) -> None:
        """A consumer's task failed, which Spark may try again, or was killed, which it always does."""
        consumer.state = State.FAILED
        if self.causes.retries.tasks < 2 and not is_killed:
            self.fail(cause)
        else:
            self._without(consumer, cause)

    def silent(self, member: Member, cause: Cause) -> None:
        """No heartbeat comes from a task. Spark thinks that it runs, and is told to try it again."""
        if member.state is not State.LIVE or self.state is RunState.FINISHING:
            return
        member.state = State.FAILED
        if isinstance(member, Consumer):
            self._without(member, cause)
        elif isinstance(member, Producer) and not self._give_back(member):
            self.end_epoch(cause, member)

    def suspect(self, member: Member, cause: Cause) -> None:
        """A connection between workers broke: none is known to be lost, but rows may be."""
        if self.state is RunState.SEALED and isinstance(member, Consumer):
            self.send(member, "ABORT", cause.fields())
            self.consumer_ended(member, State.FAILED)
        else:
            self.end_epoch(cause, is_unconfirmed=True)

    def end_epoch(
        self, cause: Cause, member: Member | None = None, *, is_unconfirmed: bool = False
    ) -> None:
        """End the epoch for all; the next one begins when all are back.

        Args:
            cause: why.
            member: whose loss it is.
            is_unconfirmed: a worker heard it from a peer.
        """
        if self.state is RunState.RECOVERING and not is_unconfirmed:
            self.causes.replace(cause, member)
        if self.state not in {RunState.FORMING, RunState.FLOWING}:
            return
        self.causes.epoch_ended(cause, member, is_unconfirmed=is_unconfirmed)
        producers = [*self.producers.values(), *self.parked]
        started = [c for c in self.live_consumers if c.started]
        self.tell_all([*started, *producers], "EPOCH_ENDED", cause.fields())
        for consumer in started:
            consumer.started = consumer.ready = False
        for producer in producers:
            if producer.state in {State.LIVE, State.PARKED}:
                producer.state = State.ENDING
        self.effects.append(EpochEnded(self, self.epoch, cause))
        if self.readers is not None:
            self.readers.close()
            self.readers = None
        self.former += producers
        self.producers, self.parked = {}, []
        self.state = RunState.RECOVERING
        self.jobs.epoch_ended()
        self.epoch += 1

    def fail(self, cause: Cause) -> None:
        """End the run; only the first cause counts."""
        if self.is_over:
            return
        self.tell_all(self.members, "ABORT", cause.fields())
        self._end(cause)

    def cancel(self) -> None:
        """End the run because somebody cancelled it, or Spark its tasks: after the last try, of that."""
        is_last = self.state is RunState.RECOVERING and self.causes.refusal
        self.fail(self.causes.verdict if is_last else CANCELLED)

    def stage_failed(self) -> None:
        """End the run as its stage has: what it recovered from was too much for Spark."""
        self.fail(self.causes.verdict if self.state is RunState.RECOVERING else CANCELLED)

    def _without(self, consumer: Consumer, cause: Cause) -> None:
        if self.consumers.get(consumer.index) is not consumer:
            return
        if self.state is RunState.SEALED:
            # The others have their rows; a further attempt of this one gets a run of its own.
            self.consumer_ended(consumer, State.FAILED)
        elif not consumer.yielded:
            self.end_epoch(cause, consumer)

    def _give_back(self, producer: Producer) -> bool:
        """Let a further attempt of a reader's task take over, where nothing was sent yet."""
        if self.readers is None or producer.place:
            return False
        self.readers.lost(producer)
        copy = self.next_copy(producer)
        if copy is not None:
            self._go(copy)
        return True

    def _go(self, producer: Producer) -> None:
        self._flow()
        self.producers[producer.partition] = producer
        producer.readers = self.readers
        if self.readers is not None:
            self.readers.replaced(producer)
        self.send(producer, "GO", {"wanted": self.wanted})

    def _flow(self) -> None:
        if self.state is not RunState.FORMING:
            return
        self.state = RunState.FLOWING
        for consumer in self.live_consumers:
            consumer.started = True
            self.send(consumer, "START", {"indexes": self.serves[consumer.index]})

    def _finish(self) -> None:
        if self.job_ended:
            self._end(None)
            return
        self.state = RunState.FINISHING
        self.tell_all([*self.live_producers, *self.parked], "FINISH", {})

    def _end(self, cause: Cause | None) -> None:
        self.state = RunState.OVER
        self.cause = cause
        self.effects.append(Ended(self, cause))
