"""One run of an exchange: its members' messages, up to its good end. No sockets, no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.control.cause import CANCELLED
from headgate.spark.driver.runs.epochs import Epochs, RunState
from headgate.spark.driver.runs.losses import OURS, is_cancel, is_gone, lost, unproven
from headgate.spark.driver.runs.members import (
    ENDED,
    AskVerdict,
    Consumer,
    Effect,
    Member,
    Producer,
    StageKey,
    State,
)
from headgate.spark.driver.runs.roster import Roster

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.control.cause import Cause
    from headgate.spark.driver.runs.epoch_causes import Retries
    from headgate.spark.driver.runs.readers import Readers
    from headgate.spark.driver.timing import Timing


class Run:
    """The state machine of one run; its methods append to ``effects``.

    Args:
        number: of the run, unique in the coordinator.
        exchange_id: the exchange it belongs to.
        stage: the stage of its consumers.
        effects: the list to append effects to.
        now: seconds on a monotonic clock.
        retries: how often to try again.
        timing: how long to wait.
    """

    def __init__(
        self,
        number: int,
        exchange_id: bytes,
        stage: int,
        effects: list[Effect],
        now: float,
        retries: Retries,
        timing: Timing,
    ) -> None:
        self.number = number
        self.exchange_id = exchange_id
        self.stage = stage
        self._effects = effects
        self._retries = retries
        self.roster = Roster(number, effects)
        self.epochs = Epochs(number, self.roster, effects, retries, timing)
        #: The readers of a source, if the producers are such; None where they have an input.
        self.readers: Readers | None = None
        self.started = now
        self.ended_at = 0.0
        #: Splits that were read to their end, and their total where it is known.
        self.splits_done = 0
        self.splits_total: int | None = None
        self.reads_splits = False
        self.waits_for_slots = False
        #: Runs whose producers are in the stage of its consumers, and the other way round.
        self.feeds: list[Run] = []
        self.fed_by: list[Run] = []

    @property
    def key(self) -> StageKey:
        """Its exchange and the stage of its consumers."""
        return self.exchange_id, self.stage

    @property
    def state(self) -> RunState:
        """The state of its epochs."""
        return self.epochs.state

    @property
    def is_over(self) -> bool:
        """True once the run has ended; only its tasks and jobs are left to end."""
        return self.epochs.is_over

    @property
    def epoch(self) -> int:
        """Number of the epoch that runs, or comes next."""
        return self.roster.epoch

    @property
    def cause(self) -> Cause | None:
        """Why the run failed; None before its end and after a good one."""
        return self.epochs.cause

    def fail(self, cause: Cause) -> None:
        """End the run; only the first cause counts."""
        self.epochs.fail(cause)

    def cancel(self) -> None:
        """End the run as cancelled; by the first cause if no further epoch was allowed."""
        self.epochs.cancel()

    def join(self, consumer: Consumer) -> None:
        """Add a consumer while the run forms, or a further attempt of a lost one between epochs."""
        consumer.run = self.number
        self.roster.consumers[consumer.index] = consumer

    def fed(self, others: Iterable[Run], stage: int) -> None:
        """Note which of the other runs have their consumers in this stage of its producers.

        What a worker names is enough here, as only the words of a verdict depend on it.
        """
        for other in others:
            if other.stage == stage and other is not self and other not in self.fed_by:
                self.fed_by.append(other)
                other.feeds.append(self)

    def missing(self, consumer: Consumer) -> Consumer | None:
        """Return the lost consumer whose place a further attempt of its task can take."""
        if self.key != consumer.key or self.state not in {
            RunState.FORMING,
            RunState.FLOWING,
            RunState.RECOVERING,
        }:
            return None
        first = self.roster.consumers.get(consumer.index)
        gone = first is not None and first.state in {State.LOST, State.FAILED}
        return first if gone else None

    def tick(self, now: float) -> None:
        """Do what time makes due."""
        if self.readers is not None and not self.is_over:
            self.readers.count()
        if self.ended_at == 0.0 and self.is_over:
            self.ended_at = now
        self.epochs.tick(now)

    # Producers.

    def producer_arrived(self, producer: Producer) -> None:
        """Answer a producer task that has connected."""
        first = self.roster.producers.get(producer.partition)
        if self.is_over and self.cause is not None:
            self.roster.send(producer, "ABORT", self.cause.fields())
        elif self.state in {RunState.FINISHING, RunState.OVER} or (
            # Spark lost the result of a task and runs it again; consumers have its rows already.
            first is not None and first.state is State.DONE
        ):
            producer.state = State.STOPPED
            self.roster.send(producer, "FINISH")
        elif first is not None and not (self.readers and self.readers.may_replace(first)):
            producer.state = State.PARKED
            self.roster.parked.append(producer)
            self.roster.send(producer, "WAIT")
        else:
            self._go(producer)

    def producer_registered(self, producer: Producer, place: dict[str, str | int]) -> None:
        """Tell the consumers of a producer's partition."""
        if producer.state is not State.LIVE or self.is_over:
            return
        producer.place = place
        for consumer in self.roster.live_consumers:
            self.roster.send(consumer, "PARTITION", producer.partition_fields)

    def producer_done(self, producer: Producer) -> None:
        """Acknowledge a producer whose rows were all taken, so that its task ends."""
        if producer.state is State.LIVE:
            producer.state = State.DONE
            self.roster.tell_all(self.roster.copies(producer), "FINISH", {})
        self.roster.send(producer, "OK")

    def job_finished(self, epoch: int, error: Cause | None, partitions: set[int]) -> None:
        """Handle the end of a producer job: an error, or the partitions whose tasks returned."""
        self.epochs.jobs.ended(epoch)
        if self.is_over:
            return
        if self.state is RunState.FINISHING:
            self.epochs.finish()
        elif self.state is RunState.RECOVERING or epoch != self.epoch:
            self._former_job_failed(error)
        elif error is not None and error.is_cancelled:
            self.cancel()
        elif error is not None:
            self._job_failed(error if self.readers is None else self.readers.better(error))
        else:
            self._seal(partitions)

    # Consumers.

    def consumer_ended(self, consumer: Consumer, state: State) -> None:
        """Handle a consumer that needs no more rows: it has all, stopped early or is gone."""
        consumer.state = state
        if self.is_over or self.roster.consumers.get(consumer.index) is not consumer:
            return
        if self.state is not RunState.SEALED:
            for producer in self.roster.live_producers:
                self.roster.send(producer, "CONSUMER_GONE", {"index": consumer.index})
        if not any(self.epochs.is_awaited(c) for c in self.roster.consumers.values()):
            self.epochs.finish()

    def consumer_ready(self, consumer: Consumer) -> None:
        """Handle a consumer that waits for the next epoch."""
        if consumer.state is State.LIVE and self.state is RunState.RECOVERING:
            consumer.ready = True

    def consumer_yielded(self, consumer: Consumer) -> None:
        """Handle a consumer that cannot begin again in place: rows have left it. Its task fails."""
        consumer.yielded = True
        if self.state is RunState.RECOVERING and self._retries.tasks < 2:
            self.epochs.causes.refuse(
                "rows had left a consumer, and Spark tries no task again here"
            )

    # Losses.

    def lost(self, member: Member, cause: Cause) -> None:
        """Handle a connection that closed without a DONE, STOPPED or FAILED message.

        Spark is asked for the status of the task: a consumer may have ended well. The loss of a
        producer ends the epoch.
        """
        is_former = member.state is State.ENDING
        # A report of a peer may be about a member whose loss was not known yet.
        explains = (
            self.state is RunState.RECOVERING
            and self.epochs.causes.is_unconfirmed
            and not (isinstance(member, Producer) and member.has_heard)
        )
        if self.is_over or self.state is RunState.FINISHING or (is_former and not explains):
            member.state = State.STOPPED
            return
        member.state = State.LOST
        self._effects.append(AskVerdict(member))
        if is_former and self.epochs.jobs.left and not self.epochs.jobs.was_cancelled:
            # Nothing had ended this task yet, so its loss is what its peers reported.
            self.epochs.causes.replace(cause, member)
        elif isinstance(member, Producer) and not is_former and not self._give_back(member):
            self._end_epoch(cause, member)

    def verdict(self, member: Member, status: str, text: str) -> None:
        """Handle Spark's status of a task whose connection closed before its last message."""
        if self.state in {RunState.FINISHING, RunState.OVER}:
            member.state = State.STOPPED
        elif isinstance(member, Producer):
            is_cancelled = status == "KILLED" and is_cancel(text)
            # Our own cancellation with its epoch does not explain the loss.
            cause = lost(member, "" if OURS in text else text)
            self.producer_lost(member, "CANCELLED" if is_cancelled else status, cause)
        elif isinstance(member, Consumer) and status == "SUCCESS":
            self.consumer_ended(member, State.STOPPED)
        elif isinstance(member, Consumer) and status == "KILLED" and is_cancel(text):
            member.state = State.FAILED
            self.cancel()
        elif isinstance(member, Consumer):
            self.consumer_lost(member, lost(member, text), is_killed=status == "KILLED")

    def producer_lost(self, producer: Producer, status: str, cause: Cause) -> None:
        """Handle Spark's answer about a producer's task; its status may be unknown."""
        producer.state = State.FAILED
        if producer.epoch != self.epoch and not self.epochs.causes.is_of(producer):
            if status == "FAILED" and is_gone(cause.text):
                self.epochs.causes.replace(cause, producer)
            return
        if status == "CANCELLED" and self.epochs.causes.is_of(producer):
            # Something made Spark cancel the task, and may still be reported.
            self.epochs.causes.replace_for_now(CANCELLED)
        elif status != "CANCELLED":
            self.epochs.causes.replace(cause, producer)
        current = self.roster.producers.get(producer.partition) is producer
        if (
            self.readers is not None
            and not producer.place
            and current
            and status not in {*ENDED, "CANCELLED"}
        ):
            # Spark takes the task for running, so it starts no other attempt.
            self._end_epoch(self.readers.losses.get(producer.partition, cause), producer)

    def consumer_lost(self, consumer: Consumer, cause: Cause, *, is_killed: bool = False) -> None:
        """Handle a failed or killed consumer: Spark retries a killed task always, a failed one maybe."""
        consumer.state = State.FAILED
        if self._retries.tasks < 2 and not is_killed:
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
            self._end_epoch(cause, member)

    def suspect(self, member: Member, cause: Cause) -> None:
        """Handle a broken connection between workers: both may live, but rows may be lost."""
        if self.state is RunState.SEALED and isinstance(member, Consumer):
            self.roster.send(member, "ABORT", cause.fields())
            self.consumer_ended(member, State.FAILED)
        else:
            self._end_epoch(cause, is_unconfirmed=True)

    def _end_epoch(
        self, cause: Cause, member: Member | None = None, *, is_unconfirmed: bool = False
    ) -> None:
        has_ended = self.epochs.end_epoch(cause, member, is_unconfirmed=is_unconfirmed)
        if has_ended and self.readers is not None:
            self.readers.close()
            self.readers = None

    def _former_job_failed(self, error: Cause | None) -> None:
        if error is None or error.is_cancelled:
            return
        self.epochs.causes.job_failed(error)
        if not error.code.startswith("HG-3") and self._retries.tasks < 2:
            self.fail(error)

    def _job_failed(self, error: Cause) -> None:
        if error.code.startswith("HG-3") and self.readers is None:
            self._end_epoch(error, is_unconfirmed=True)
        else:
            self.fail(error)

    def _seal(self, partitions: set[int]) -> None:
        done = {p.partition for p in self.roster.producers.values() if p.state is State.DONE}
        if done == partitions:
            self.epochs.seal(len(done))
        else:
            self.fail(unproven(done, partitions))

    def _without(self, consumer: Consumer, cause: Cause) -> None:
        if self.roster.consumers.get(consumer.index) is not consumer:
            return
        if self.state is RunState.SEALED:
            # The others have their rows; a further attempt of this one gets a run of its own.
            self.consumer_ended(consumer, State.FAILED)
        elif not consumer.yielded:
            self._end_epoch(cause, consumer)

    def _give_back(self, producer: Producer) -> bool:
        """Return True if a further attempt of a reader's task may take over: nothing was sent yet."""
        if self.readers is None or producer.place:
            return False
        self.readers.lost(producer)
        copy = self.roster.next_copy(producer)
        if copy is not None:
            self._go(copy)
        return True

    def _go(self, producer: Producer) -> None:
        self.epochs.flow()
        self.roster.producers[producer.partition] = producer
        producer.readers = self.readers
        if self.readers is not None:
            self.readers.replaced(producer)
        self.roster.send(producer, "GO", {"wanted": self.roster.wanted})
