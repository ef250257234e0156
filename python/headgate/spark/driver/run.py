"""One run of an exchange: its members' messages, up to its good end. No sockets, no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.spark.driver.epoch_causes import Retries
from headgate.spark.driver.epochs import Epochs
from headgate.spark.driver.losses import unproven
from headgate.spark.driver.members import Cancel, Consumer, Effect, Producer, State, Submit
from headgate.spark.driver.roster import RunState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.spark.wire.cause import Cause

#: Seconds that a quiet end waits for the producers before it cancels their job.
FINISH_GRACE: Final = 2.0


class Run(Epochs):
    """The state machine of one run; its methods append to ``effects``.

    Args:
        number: of the run, unique in the coordinator.
        exchange_id: the exchange it belongs to.
        stage: the stage of its consumers.
        effects: the list to append effects to.
        now: seconds on a monotonic clock.
        retries: how often to try again.
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
        super().__init__(number, exchange_id, stage, effects, retries)
        self.started = now
        self.ended_at = 0.0
        self.is_fixed = False
        #: Splits that were read to their end, and their total where it is known.
        self.splits_done = 0
        self.splits_total: int | None = None
        self.reads_splits = False
        self.waits_for_slots = False
        self._deadline = 0.0

    def join(self, consumer: Consumer, adopted: Iterable[int] = ()) -> None:
        """Add a consumer while the run forms; ``adopted`` are further indexes that it serves."""
        consumer.run = self.number
        self.consumers[consumer.index] = consumer
        self.serves[consumer.index] = sorted({consumer.index, *adopted})

    def rejoin(self, consumer: Consumer) -> None:
        """Let a further attempt take the place of a lost consumer, between two epochs."""
        consumer.run = self.number
        self.consumers[consumer.index] = consumer

    def submit(self) -> None:
        """Start the producer job of the epoch."""
        self.jobs.submitted(self.epoch)
        self.effects.append(Submit(self.number))

    def dismiss(self, given: Iterable[int]) -> None:
        """End the consumers of indexes that another run serves."""
        for index in given:
            del self.serves[index]
            self.leave(index)
        if not self.consumers:
            self._finish()

    def producer_arrived(self, producer: Producer) -> None:
        """Answer a producer task that has connected."""
        first = self.producers.get(producer.partition)
        if self.is_over and self.cause is not None:
            self.send(producer, "ABORT", self.cause.fields())
        elif self.state in {RunState.FINISHING, RunState.OVER} or (
            # Spark lost the result of a task and runs it again; consumers have its rows already.
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
        """Tell the consumers of a producer's partition."""
        if producer.state is not State.LIVE or self.is_over:
            return
        producer.place = place
        for consumer in self.live_consumers:
            self.send(consumer, "PARTITION", producer.partition_fields)

    def producer_done(self, producer: Producer) -> None:
        """Acknowledge a producer whose rows were all taken, so that its task ends."""
        if producer.state is State.LIVE:
            producer.state = State.DONE
            self.tell_all(self.copies(producer), "FINISH", {})
        self.send(producer, "OK")

    def job_finished(self, epoch: int, error: Cause | None, partitions: set[int]) -> None:
        """Handle the end of a producer job: an error, or the partitions whose tasks returned."""
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

    def consumer_ready(self, consumer: Consumer) -> None:
        """Handle a consumer that waits for the next epoch."""
        if consumer.state is State.LIVE and self.state is RunState.RECOVERING:
            consumer.ready = True

    def consumer_yielded(self, consumer: Consumer) -> None:
        """Handle a consumer that cannot begin again in place: rows have left it. Its task fails."""
        consumer.yielded = True
        if self.state is RunState.RECOVERING and self.causes.retries.tasks < 2:
            self.causes.refuse("rows had left a consumer, and Spark tries no task again here")

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
        is_unconfirmed = current is not None and self.causes.is_unconfirmed
        stale = self.jobs.to_cancel(current, now, is_unconfirmed=is_unconfirmed)
        self.effects += [Cancel(self.number, epoch) for epoch in stale]

    def _recover(self, now: float) -> None:
        if self.asks_spark:
            return
        is_explained = self.causes.is_explained(now)
        if self.causes.last.is_cancelled or self.causes.refusal:
            if is_explained:
                self.fail(self.causes.verdict)
            return
        awaited = [c for c in self.consumers.values() if self.is_awaited(c)]
        for consumer in awaited:
            if consumer.state is State.LIVE and consumer.yielded:
                self.send(consumer, "ABORT", self.causes.last.fields())
                consumer.state = State.FAILED
        if self.job_ended and all(c.state is State.LIVE and c.ready for c in awaited):
            self.state = RunState.FORMING
            self.submit()

    def _former_job_failed(self, error: Cause | None) -> None:
        if error is None or error.is_cancelled:
            return
        self.causes.job_failed(error)
        if not error.code.startswith("HG-3") and self.causes.retries.tasks < 2:
            self.fail(error)

    def _job_failed(self, error: Cause) -> None:
        if error.code.startswith("HG-3") and self.readers is None:
            self.end_epoch(error, is_unconfirmed=True)
        else:
            self.fail(error)

    def _seal(self, partitions: set[int]) -> None:
        taken = {p.partition for p in self.producers.values() if p.state is State.DONE}
        if taken != partitions:
            self.fail(unproven(taken, partitions))
            return
        self._flow()
        self.state = RunState.SEALED
        for consumer in self.live_consumers:
            self.send(consumer, "SEALED", {"producers": len(taken)})
