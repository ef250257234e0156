"""How the epochs of a run, and the run itself, begin and end. No sockets, no Spark.

The loss of a member ends an epoch. Producers stop. Consumers begin again, in place or as a further
attempt of their task. Then a new producer job begins the next epoch (docs/adr/0010-epochs.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.spark.driver.epoch_causes import EpochCauses, Retries
from headgate.spark.driver.epoch_jobs import EpochJobs
from headgate.spark.driver.losses import is_gone
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
from headgate.spark.driver.roster import Roster, RunState
from headgate.spark.wire.cause import CANCELLED, Cause

if TYPE_CHECKING:
    from headgate.spark.driver.readers import Readers


class Epochs(Roster):
    """The epochs of a run, and how it ends.

    Args:
        number: of the run, unique in the coordinator.
        exchange_id: the exchange it belongs to.
        stage: the stage of its consumers.
        effects: the list to append effects to.
        retries: how often to try again.
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
        #: The readers of a source, if the producers are such; None where they have an input.
        self.readers: Readers | None = None

    @property
    def is_over(self) -> bool:
        """True once the run has ended; only its tasks and jobs are left to end."""
        return self.state is RunState.OVER

    @property
    def job_ended(self) -> bool:
        """True while the run has no producer job."""
        return not self.jobs.left

    @property
    def is_cancelled(self) -> bool:
        """True if the run was cancelled from outside."""
        return self.cause is not None and self.cause.is_cancelled

    def consumer_ended(self, consumer: Consumer, state: State) -> None:
        """Handle a consumer that needs no more rows: it has all, stopped early or is gone."""
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
        """Handle a connection that closed without a DONE, STOPPED or FAILED message.

        Spark is asked for the status of the task: a consumer may have ended well. The loss of a
        producer ends the epoch.
        """
        is_former = member.state is State.ENDING
        # A report of a peer may be about a member whose loss was not known yet.
        explains = (
            self.state is RunState.RECOVERING
            and self.causes.is_unconfirmed
            and not (isinstance(member, Producer) and member.has_heard)
        )
        if self.is_over or self.state is RunState.FINISHING or (is_former and not explains):
            member.state = State.STOPPED
            return
        member.state = State.LOST
        self.effects.append(AskVerdict(member))
        if is_former and self.jobs.left and not self.jobs.was_cancelled:
            # Nothing had ended this task yet, so its loss is what its peers reported.
            self.causes.replace(cause, member)
        elif isinstance(member, Producer) and not is_former and not self._give_back(member):
            self.end_epoch(cause, member)

    def producer_lost(self, producer: Producer, status: str, cause: Cause) -> None:
        """Handle Spark's answer about a producer's task; its status may be unknown."""
        producer.state = State.FAILED
        if producer.epoch != self.epoch and not self.causes.is_of(producer):
            if status == "FAILED" and is_gone(cause.text):
                self.causes.replace(cause, producer)
            return
        if status == "CANCELLED" and self.causes.is_of(producer):
            # Something made Spark cancel the task, and may still be reported.
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
            # Spark takes the task for running, so it starts no other attempt.
            self.end_epoch(self.readers.losses.get(producer.partition, cause), producer)

    def consumer_lost(self, consumer: Consumer, cause: Cause, *, is_killed: bool = False) -> None:
        """Handle a failed or killed consumer: Spark retries a killed task always, a failed one maybe."""
        consumer.state = State.FAILED
        if self.causes.retries.tasks < 2 and not is_killed:
            self.fail(cause)
        else:
            self._without(consumer, cause)

    def silent(self, member: Member, cause: Cause) -> None:
        """Handle a task without heartbeats. Spark takes it for running and was told to kill it."""
        if member.state is not State.LIVE or self.state is RunState.FINISHING:
            return
        member.state = State.FAILED
        if isinstance(member, Consumer):
            self._without(member, cause)
        elif isinstance(member, Producer) and not self._give_back(member):
            self.end_epoch(cause, member)

    def suspect(self, member: Member, cause: Cause) -> None:
        """Handle a broken connection between workers: both may live, but rows may be lost."""
        if self.state is RunState.SEALED and isinstance(member, Consumer):
            self.send(member, "ABORT", cause.fields())
            self.consumer_ended(member, State.FAILED)
        else:
            self.end_epoch(cause, is_unconfirmed=True)

    def end_epoch(
        self, cause: Cause, member: Member | None = None, *, is_unconfirmed: bool = False
    ) -> None:
        """End the epoch for all members; the next one begins when all are ready.

        Args:
            cause: why it ends.
            member: the member that was lost, if one is known.
            is_unconfirmed: True if a worker reported it of a peer.
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
        self.effects.append(EpochEnded(self.number, self.epoch, cause))
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
        """End the run as cancelled; by the first cause if no further epoch was allowed."""
        is_last = self.state is RunState.RECOVERING and self.causes.refusal
        self.fail(self.causes.verdict if is_last else CANCELLED)

    def stage_failed(self) -> None:
        """End the run because its stage failed: by the cause of the last epoch's end, if there is one."""
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
        """Return True if a further attempt of a reader's task may take over: nothing was sent yet."""
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
        self.effects.append(Ended(self.number, cause))
