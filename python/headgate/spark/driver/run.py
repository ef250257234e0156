"""One run of an exchange, and its epochs. No sockets, no Spark.

A member that is lost ends an epoch: producers stop, consumers begin again, in place or as a further
attempt of their task, and then a new producer job begins the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.spark.driver.epoch_jobs import EpochJobs
from headgate.spark.driver.losses import unproven
from headgate.spark.driver.members import (
    ENDED,
    AskVerdict,
    Cancel,
    Consumer,
    Effect,
    Ended,
    EpochEnded,
    Member,
    Producer,
    State,
    Submit,
)
from headgate.spark.driver.readers import is_gone
from headgate.spark.driver.recovery import Recovery, Retries
from headgate.spark.driver.roster import Roster, RunState
from headgate.spark.wire.cause import CANCELLED, Cause

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.spark.driver.readers import Readers

#: Seconds that a quiet end waits for the producers before it cancels their job.
FINISH_GRACE: Final = 2.0


class Run(Roster):
    """The state machine of one run; its methods append what is to be done to ``effects``.

    Args:
        number: of the run, unique in the coordinator.
        exchange_id: the exchange it belongs to.
        stage: the stage of its consumers.
        effects: where to put what is to be done.
        now: seconds on a monotonic clock.
        retries: how often things are tried again.
    """

    def __init__(
        self,
        number: int,
        exchange_id: bytes,
        stage: int,
        effects: list[Effect],
        now: float,
        retries: Retries = Retries(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(number, exchange_id, stage, effects)
        self.recovery = Recovery(retries)
        self.cause: Cause | None = None
        self.jobs = EpochJobs()
        #: What producers that read a source said and were told; None where they have an input.
        self.readers: Readers | None = None
        self.started = now
        self.ended_at = 0.0
        self.is_fixed = False
        #: Splits that readers have read to their end, and how many there are, where that is known.
        self.splits_done = 0
        self.splits_total: int | None = None
        self.reads_splits = False
        self.waits_for_slots = False
        self._deadline = 0.0

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

    def join(self, consumer: Consumer, adopted: Iterable[int] = ()) -> None:
        """Add a consumer while the run forms; ``adopted`` are further indexes that it serves."""
        consumer.run = self
        self.consumers[consumer.index] = consumer
        self.serves[consumer.index] = sorted({consumer.index, *adopted})

    def rejoin(self, consumer: Consumer) -> None:
        """Let a further attempt take the place of a lost consumer, between two epochs."""
        consumer.run = self
        self.consumers[consumer.index] = consumer

    def submit(self) -> None:
        """Start the producer job of the epoch."""
        self.jobs.submitted(self.epoch)
        self.effects.append(Submit(self))

    def dismiss(self, given: Iterable[int]) -> None:
        """Let consumers end whose indexes another run serves."""
        for index in given:
            del self.serves[index]
            self.leave(index)
        if not self.consumers:
            self._finish()

    def producer_arrived(self, producer: Producer) -> None:
        """A producer task asks what to do."""
        first = self.producers.get(producer.partition)
        if self.is_over and self.cause is not None:
            self.send(producer, "ABORT", self.cause.fields())
        elif self.state in {RunState.FINISHING, RunState.OVER} or (
            # Spark runs a task again whose result it lost; its rows were taken from the first one.
            first is not None and first.state is State.DONE
        ):
            producer.state = State.STOPPED
            self.send(producer, "FINISH")
        elif first is not None and not (self.readers and self.readers.may_replace(first)):
            producer.state = State.PARKED
            self.parked.append(producer)
            self.send(producer, "WAIT")
        else:
            self._go(producer)

    def producer_registered(self, producer: Producer, place: dict[str, str | int]) -> None:
        """A producer's partition can be read from now on."""
        if producer.state is not State.LIVE or self.is_over:
            return
        producer.place = place
        for consumer in self.live_consumers:
            self.send(consumer, "PARTITION", producer.partition_fields)

    def producer_done(self, producer: Producer) -> None:
        """A producer's data is taken; the acknowledgement lets its task end."""
        if producer.state is State.LIVE:
            producer.state = State.DONE
            self.tell_all(self.copies(producer), "FINISH", {})
        self.send(producer, "OK")

    def job_finished(self, epoch: int, error: Cause | None, partitions: set[int]) -> None:
        """A producer job has ended: with an error, or with these partitions' results."""
        self.jobs.ended(epoch)
        if self.is_over:
            return
        if self.state is RunState.FINISHING:
            self._finish()
        elif self.state is RunState.RECOVERING or epoch != self.epoch:
            self._former_job_failed(error)
        elif error is not None and error.is_cancelled:
            self.cancel()
        elif error is not None:
            self._job_failed(error if self.readers is None else self.readers.better(error))
        else:
            self._seal(partitions)

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

    def consumer_ready(self, consumer: Consumer) -> None:
        """A consumer has left the last epoch behind, and waits for the next one."""
        if consumer.state is State.LIVE and self.state is RunState.RECOVERING:
            consumer.ready = True

    def consumer_yielded(self, consumer: Consumer) -> None:
        """A consumer cannot begin again in place: rows have left it. Its task fails."""
        consumer.yielded = True
        if self.state is RunState.RECOVERING and self.recovery.retries.tasks < 2:
            self.recovery.refuse("rows had left a consumer, and Spark tries no task again here")

    def lost(self, member: Member, cause: Cause) -> None:
        """Ask Spark what became of it: a consumer may have ended well, a producer ends the epoch."""
        is_former = member.state is State.ENDING
        # Who was lost before it could be told may be what others heard of.
        explains = (
            self.state is RunState.RECOVERING
            and self.recovery.is_hearsay
            and not (isinstance(member, Producer) and member.has_heard)
        )
        if self.is_over or self.state is RunState.FINISHING or (is_former and not explains):
            member.state = State.STOPPED
            return
        member.state = State.LOST
        self.effects.append(AskVerdict(member, self))
        if is_former and self.jobs.left and not self.jobs.was_cancelled:
            # Spark had no reason to end it, and whoever lives says that it has heard.
            self.recovery.known_better(cause, member)
        elif isinstance(member, Producer) and not is_former and not self._give_back(member):
            self.end_epoch(cause, member)

    def producer_lost(self, producer: Producer, status: str, cause: Cause) -> None:
        """Spark has said what became of a producer's task, or does not know it either."""
        producer.state = State.FAILED
        if producer.epoch != self.epoch and not self.recovery.is_of(producer):
            if status == "FAILED" and is_gone(cause.text):
                self.recovery.known_better(cause, producer)
            return
        if status == "CANCELLED" and self.recovery.is_of(producer):
            # Whoever cancelled it did so for a reason, which may still come to be known.
            self.recovery.doubt(CANCELLED)
        elif status != "CANCELLED":
            self.recovery.known_better(cause, producer)
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
        if self.recovery.retries.tasks < 2 and not is_killed:
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
            self.end_epoch(cause, is_hearsay=True)

    def end_epoch(
        self, cause: Cause, member: Member | None = None, *, is_hearsay: bool = False
    ) -> None:
        """End the epoch for all; the next one begins when all are back.

        Args:
            cause: why.
            member: whose loss it is.
            is_hearsay: a worker heard it from a peer.
        """
        if self.state is RunState.RECOVERING and not is_hearsay:
            self.recovery.known_better(cause, member)
        if self.state not in {RunState.FORMING, RunState.FLOWING}:
            return
        self.recovery.epoch_ended(cause, member, is_hearsay=is_hearsay)
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
        """End the run because somebody cancelled it, or its stage has ended."""
        self.fail(CANCELLED)

    def stage_failed(self) -> None:
        """End the run as its stage has: what it recovered from was too much for Spark."""
        self.fail(self.recovery.verdict if self.state is RunState.RECOVERING else CANCELLED)

    def tick(self, now: float) -> None:
        """Do what time makes due."""
        if self.readers is not None and not self.is_over:
            self.readers.count()
        if self.ended_at == 0.0 and self.is_over:
            self.ended_at = now
        if self.state is RunState.RECOVERING:
            self._recover(now)
        if self.state is RunState.FINISHING:
            self._deadline = self._deadline or now + FINISH_GRACE
            if now >= self._deadline:
                self._end(None)
        current = None if self.is_over else self.epoch
        is_hearsay = current is not None and self.recovery.is_hearsay
        stale = self.jobs.to_cancel(current, now, is_hearsay=is_hearsay)
        self.effects += [Cancel(self, epoch) for epoch in stale]

    def _recover(self, now: float) -> None:
        if self.asks_spark:
            return
        is_explained = self.recovery.is_explained(now)
        if self.recovery.last.is_cancelled or self.recovery.refusal:
            if is_explained:
                self.fail(self.recovery.verdict)
            return
        awaited = [c for c in self.consumers.values() if self.is_awaited(c)]
        for consumer in awaited:
            if consumer.state is State.LIVE and consumer.yielded:
                self.send(consumer, "ABORT", self.recovery.last.fields())
                consumer.state = State.FAILED
        if self.job_ended and all(c.state is State.LIVE and c.ready for c in awaited):
            self.state = RunState.FORMING
            self.submit()

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

    def _former_job_failed(self, error: Cause | None) -> None:
        if error is None or error.is_cancelled:
            return
        self.recovery.job_failed(error)
        if not error.code.startswith("HG-3") and self.recovery.retries.tasks < 2:
            self.fail(error)

    def _job_failed(self, error: Cause) -> None:
        if error.code.startswith("HG-3") and self.readers is None:
            self.end_epoch(error, is_hearsay=True)
        else:
            self.fail(error)

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

    def _seal(self, partitions: set[int]) -> None:
        taken = {p.partition for p in self.producers.values() if p.state is State.DONE}
        if taken != partitions:
            self.fail(unproven(taken, partitions))
            return
        self._flow()
        self.state = RunState.SEALED
        for consumer in self.live_consumers:
            self.send(consumer, "SEALED", {"producers": len(taken)})

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
