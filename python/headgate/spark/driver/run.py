"""One run of an exchange: its consumers, its producer job, its first cause. No sockets, no Spark."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from headgate import errors
from headgate.errors import ProtocolError
from headgate.spark.driver.members import (
    AskVerdict,
    Cancel,
    Consumer,
    Effect,
    Ended,
    Member,
    Producer,
    Send,
    State,
    Submit,
)
from headgate.spark.wire.cause import CANCELLED, Cause
from headgate.spark.wire.messages import Message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.spark.driver.readers import Readers

#: Seconds that a quiet end waits for the producers before it cancels their job.
FINISH_GRACE: Final = 2.0
#: Seconds that a broken connection waits for a better cause: which process was lost, and why.
SUSPECT_GRACE: Final = 2.0
#: Spark's words for a task that does not run any more.
ENDED: Final = frozenset({"SUCCESS", "FAILED", "KILLED"})


class RunState(Enum):
    """The life of a run, in order."""

    FORMING = auto()
    """No producer has a slot yet: consumers may still join, or be handed over."""
    FLOWING = auto()
    """Consumers are started, producers come and go."""
    SEALED = auto()
    """The producer job has ended well: consumers know all channels."""
    FINISHING = auto()
    """No consumer wants more; the producer job is asked to end."""
    OVER = auto()
    """Ended; ``cause`` tells how."""


class Run:
    """The state machine of one run; every method appends what is to be done to ``effects``.

    Args:
        number: of the run, unique in the coordinator.
        exchange_id: the exchange it belongs to.
        stage: the stage of its consumers.
        effects: where to put what is to be done.
        now: seconds on a monotonic clock.
    """

    def __init__(
        self, number: int, exchange_id: bytes, stage: int, effects: list[Effect], now: float
    ) -> None:
        self.number = number
        self.epoch = 0
        self.exchange_id = exchange_id
        self.stage = stage
        self.state = RunState.FORMING
        self.cause: Cause | None = None
        self.started = now
        self.ended_at = 0.0
        self.job_ended = False
        self.job_is_active = False
        self.is_fixed = False
        self.consumers: dict[int, Consumer] = {}
        self.serves: dict[int, list[int]] = {}
        self.producers: dict[int, Producer] = {}
        self.parked: list[Producer] = []
        #: What producers that read a source said and were told; None where they have an input.
        self.readers: Readers | None = None
        #: Splits that readers have read to their end, and how many there are, where that is known.
        self.splits_done = 0
        self.splits_total: int | None = None
        #: Whether its producers read the splits of a source themselves.
        self.reads_splits = False
        #: Whether consumers hold all slots, so that no producer can start.
        self.waits_for_slots = False
        self._effects = effects
        self._suspect: tuple[Cause, float] | None = None
        self._deadline = 0.0
        self._recancel = 0.0

    @property
    def is_over(self) -> bool:
        """Whether nothing but clean-up is left to do."""
        return self.state is RunState.OVER

    @property
    def is_cancelled(self) -> bool:
        """Whether it was cancelled from outside."""
        return self.cause is not None and self.cause.is_cancelled

    @property
    def indexes(self) -> set[int]:
        """The subpartitions that somebody in this run wants or wanted."""
        return {index for served in self.serves.values() for index in served}

    @property
    def wanted(self) -> list[int]:
        """The subpartitions that a producer must build now."""
        return sorted(
            index
            for kept, served in self.serves.items()
            if self.consumers[kept].is_present
            for index in served
        )

    @property
    def members(self) -> Iterable[Member]:
        """All tasks that take part."""
        return [*self.consumers.values(), *self.producers.values(), *self.parked]

    def join(self, consumer: Consumer, adopted: Iterable[int] = ()) -> None:
        """Add a consumer while the run forms; ``adopted`` are further indexes that it serves."""
        consumer.run = self
        self.consumers[consumer.index] = consumer
        self.serves[consumer.index] = sorted({consumer.index, *adopted})

    def submit(self) -> None:
        """Start the producer job."""
        self._effects.append(Submit(self))

    def hand_over(self, given: Iterable[int], kept: int) -> None:
        """Let the consumer of ``kept`` serve the ``given`` indexes too; their own tasks end."""
        for index in given:
            self.serves[kept] = sorted({*self.serves[kept], *self.serves.pop(index)})
            consumer = self.consumers.pop(index)
            consumer.leaving = True
            self._send(consumer, "END")

    def dismiss(self, given: Iterable[int]) -> None:
        """Let consumers end whose indexes another run serves."""
        for index in given:
            del self.serves[index]
            consumer = self.consumers.pop(index)
            consumer.leaving = True
            self._send(consumer, "END")
        if not self.consumers:
            self._finish()

    def adopt(self, given: Iterable[int], kept: int) -> None:
        """Let the consumer of ``kept`` serve indexes that were another run's."""
        self.serves[kept] = sorted({*self.serves[kept], *given})

    def producer_arrived(self, producer: Producer) -> None:
        """A producer task asks what to do."""
        first = self.producers.get(producer.partition)
        if self.is_over and self.cause is not None:
            self._send(producer, "ABORT", self.cause.fields())
        elif self.state in {RunState.FINISHING, RunState.OVER} or (
            # Spark runs a task again whose result it lost; its rows were taken from the first one.
            first is not None and first.state is State.DONE
        ):
            producer.state = State.STOPPED
            self._send(producer, "FINISH")
        elif first is not None and not (self.readers and self.readers.may_replace(first)):
            producer.state = State.PARKED
            self.parked.append(producer)
            self._send(producer, "WAIT")
        else:
            self._go(producer)

    def reader_said(self, producer: Producer, message: Message) -> None:
        """A producer that reads a source says something to the enumerator.

        Raises:
            ProtocolError: it is not a message for now.
        """
        if self.readers is None:
            raise ProtocolError(f"a {message.kind} message in a run without a source")
        if producer.state is State.LIVE and not self.is_over:
            self.readers.said(producer, message)

    def tell(self, producer: Producer, kind: str, fields: dict[str, Any]) -> None:
        """Tell a reader what the enumerator said."""
        self._send(producer, kind, fields)

    def producer_registered(self, producer: Producer, place: dict[str, str | int]) -> None:
        """A producer's partition can be read from now on."""
        if producer.state is not State.LIVE or self.is_over:
            return
        producer.place = place
        for consumer in self._live_consumers():
            self._send(consumer, "PARTITION", self._partition(producer))

    def producer_done(self, producer: Producer) -> None:
        """A producer's data is taken; the acknowledgement lets its task end."""
        if producer.state is State.LIVE:
            producer.state = State.DONE
        self._send(producer, "OK")

    def job_finished(self, error: Cause | None, partitions: set[int]) -> None:
        """The producer job has ended: with an error, or with these partitions' results."""
        self.job_ended = True
        if self.is_over:
            return
        if self.state is RunState.FINISHING:
            self._end(None)
        elif error is not None and error.is_cancelled:
            self.cancel()
        elif error is not None:
            self._job_failed(error if self.readers is None else self.readers.better(error))
        else:
            self._seal(partitions)

    def consumer_ended(self, consumer: Consumer, state: State) -> None:
        """A consumer needs nothing more: it has all its rows, or stopped early."""
        consumer.state = state
        if self.is_over or self.consumers.get(consumer.index) is not consumer:
            return
        if self.state is not RunState.SEALED:
            for index in self.serves[consumer.index]:
                for producer in self._live_producers():
                    self._send(producer, "CONSUMER_GONE", {"index": index})
        if not any(c.is_present for c in self.consumers.values()):
            self._finish()

    def lost(self, member: Member) -> None:
        """A connection ended without a goodbye: ask Spark before deciding what it means."""
        if self.is_over or self.state is RunState.FINISHING:
            member.state = State.STOPPED
            return
        member.state = State.LOST
        self._effects.append(AskVerdict(member, self))
        if self.readers is not None and isinstance(member, Producer) and not member.place:
            self.readers.lost(member)
            self._replace(member)

    def producer_lost(self, producer: Producer, status: str, cause: Cause, now: float) -> None:
        """Spark has said what became of a producer's task, or does not know it either."""
        producer.state = State.FAILED
        if self.readers is None or producer.place:
            self.suspect(cause, now) if status == "KILLED" else self.fail(cause)
        elif status not in ENDED and self.producers.get(producer.partition) is producer:
            # For Spark it still runs, so no other attempt will come.
            self.fail(self.readers.losses.get(producer.partition, cause))

    def silent(self, member: Member, cause: Cause) -> None:
        """No heartbeat comes from a task. Spark thinks that it runs, so it is not asked."""
        if member.state is not State.LIVE or self.state is RunState.FINISHING:
            return
        member.state = State.FAILED
        if self.readers is not None and isinstance(member, Producer) and not member.place:
            self.readers.lost(member)
            self._replace(member)
        else:
            self.fail(cause)

    def suspect(self, cause: Cause, now: float) -> None:
        """A connection between workers broke: fail, unless a better cause comes soon."""
        if self._suspect is None and not self.is_over:
            self._suspect = (cause, now + SUSPECT_GRACE)

    def fail(self, cause: Cause) -> None:
        """End the run; only the first cause counts."""
        if self.is_over:
            return
        for member in self.members:
            if member.state in {State.LIVE, State.PARKED}:
                self._send(member, "ABORT", cause.fields())
        self._end(cause)

    def cancel(self) -> None:
        """End the run because somebody cancelled it, or its stage has ended."""
        self.fail(CANCELLED)

    def tick(self, now: float) -> None:
        """Do what time makes due."""
        if self.readers is not None and not self.is_over:
            self.readers.count()
        if self.ended_at == 0.0 and self.is_over:
            self.ended_at = now
        if self._suspect is not None and now >= self._suspect[1] and not self._asking():
            self.fail(self._suspect[0])
        if self.state is RunState.FINISHING:
            self._deadline = self._deadline or now + FINISH_GRACE
            if now >= self._deadline:
                self._end(None)
        if self.is_over and not self.job_ended and now >= self._recancel:
            # A job may be submitted after its tag was cancelled: say it until it has ended.
            self._effects.append(Cancel(self))
            self._recancel = now + 1.0

    def _asking(self) -> bool:
        return any(member.state is State.LOST for member in self.members)

    def _job_failed(self, error: Cause) -> None:
        lost = [p for p in self.producers.values() if p.state is State.LOST and p.place]
        if error.is_second_hand and lost:
            # Spark was asked about the very task that made the job fail: its name is worth a while.
            self._suspect = self._suspect or (error, 0.0)
        else:
            self.fail(error)

    def _replace(self, producer: Producer) -> None:
        for copy in self.parked:
            if copy.partition == producer.partition and copy.state is State.PARKED:
                self.parked.remove(copy)
                copy.state = State.LIVE
                self._go(copy)
                return

    def _go(self, producer: Producer) -> None:
        self._flow()
        self.producers[producer.partition] = producer
        if self.readers is not None:
            self.readers.replaced(producer)
        self._send(producer, "GO", {"wanted": self.wanted})

    def _flow(self) -> None:
        if self.state is not RunState.FORMING:
            return
        self.state = RunState.FLOWING
        for index, consumer in self.consumers.items():
            self._send(consumer, "START", {"indexes": self.serves[index]})

    def _seal(self, partitions: set[int]) -> None:
        taken = {p.partition for p in self.producers.values() if p.state is State.DONE}
        if taken != partitions:
            wrong = ", ".join(map(str, sorted(taken ^ partitions)[:8]))
            self.fail(
                Cause(
                    errors.IntegrityError.code,
                    f"producers {wrong} ended without a proof that their rows were taken",
                    have=f"{len(taken)} of {len(partitions)} producers",
                )
            )
            return
        self._flow()
        self.state = RunState.SEALED
        for consumer in self._live_consumers():
            self._send(consumer, "SEALED", {"producers": len(taken)})

    def _finish(self) -> None:
        if self.job_ended:
            self._end(None)
            return
        self.state = RunState.FINISHING
        for producer in (*self._live_producers(), *self.parked):
            self._send(producer, "FINISH")

    def _end(self, cause: Cause | None) -> None:
        self.state = RunState.OVER
        self.cause = cause
        self._effects.append(Ended(self, cause))

    def _live_consumers(self) -> list[Consumer]:
        return [c for c in self.consumers.values() if c.state is State.LIVE]

    def _live_producers(self) -> list[Producer]:
        return [p for p in self.producers.values() if p.state is State.LIVE]

    def _partition(self, producer: Producer) -> dict[str, Any]:
        return {"producer": producer.partition, "attempt": producer.attempt, **producer.place}

    def _send(self, member: Member, kind: str, fields: dict[str, Any] | None = None) -> None:
        message = Message(kind, self.number, self.epoch, fields or {})
        self._effects.append(Send(member.connection, message))
