"""The coordinator: turns messages of workers and facts of Spark into effects. No sockets, no Spark.

An effect is an action for the caller: send a message, start or cancel a job, kill a task. One thread
owns the coordinator (see server.py), so it has no locks. Time is an argument.

All tables are by exchange. An error in this code ends the exchange that it is about, and no other one.
"""

from __future__ import annotations

import contextlib
from array import array
from dataclasses import replace
from typing import TYPE_CHECKING

from headgate.control.cause import CANCELLED, Cause
from headgate.errors import HeadgateError, ProtocolError
from headgate.spark.driver.runs.bounded import BoundedDict
from headgate.spark.driver.runs.epochs import RunState
from headgate.spark.driver.runs.formation import ExchangeFacts, Formation, StageFacts
from headgate.spark.driver.runs.indeterminate import IndeterminateExchanges
from headgate.spark.driver.runs.losses import bug, foreign, is_gone, lost, silent
from headgate.spark.driver.runs.members import (
    Broken,
    Consumer,
    Effect,
    Ended,
    Kill,
    Member,
    Producer,
    Send,
    StageKey,
    State,
    Withdrawn,
)
from headgate.spark.driver.runs.membership import Membership
from headgate.spark.driver.runs.outcomes import PendingOutcomes
from headgate.spark.driver.runs.run import Run
from headgate.spark.driver.waits.deadlocks import Deadlocks
from headgate.spark.driver.waits.stalls import Stalls
from headgate.spark.driver.waits.waiting import SlotFacts, Snapshot
from headgate.spark.wire.messages import Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from headgate.spark.driver.runs.epoch_causes import Retries
    from headgate.spark.driver.timing import Timing


class Coordinator:
    """All runs of one Spark application.

    Args:
        retries: how often to try again.
        timing: how long to wait.
    """

    def __init__(self, retries: Retries, timing: Timing) -> None:
        self._retries = retries
        self._timing = timing
        self.effects: list[Effect] = []
        self.exchanges: dict[bytes, ExchangeFacts] = {}
        self.runs: dict[int, Run] = {}
        self.members = Membership()
        self.slots = 0
        #: The slots of this moment, as Spark's scheduler has them.
        self.slot_facts: SlotFacts | None = None
        #: Tasks that hold a slot and wait for a cached partition.
        self.blocked = 0
        self.formation = Formation(self._new_run, timing)
        self._deadlocks = Deadlocks(timing)
        self.stalls = Stalls(timing)
        self.outcomes = PendingOutcomes(timing)
        #: Exchange and stage -> cause, to answer Spark's retries of a failed stage.
        self._failed = BoundedDict[Cause]()
        self.indeterminate = IndeterminateExchanges()
        #: Exchanges that no DataFrame has any more.
        self._withdrawn: set[bytes] = set()
        self._numbers = 0

    @property
    def consumers(self) -> list[Consumer]:
        """All consumers that have a connection."""
        return self.members.consumers

    @property
    def counted(self) -> list[Consumer]:
        """The consumers that Spark has been seen to run; all of them until it has answered."""
        return self.consumers if self.slot_facts is None else self.members.confirmed

    @property
    def live_runs(self) -> list[Run]:
        """The runs that have not ended."""
        return [run for run in self.runs.values() if not run.is_over]

    @property
    def stages(self) -> set[StageKey]:
        """The stages that consumers have named, by exchange."""
        return self.members.stages

    def snapshot(self, slots: SlotFacts) -> Snapshot:
        """Return the runs that have not ended and the consumers, beside slots that were just read."""
        return Snapshot(self.live_runs, self.counted, self.blocked, self.whole(slots))

    def whole(self, slots: SlotFacts) -> SlotFacts:
        """Return the slots without the tasks that take only a share of a core."""
        shares = {c.attempt for c in self.counted if c.is_present and not c.holds_slot}
        return replace(slots, busy=max(0, slots.busy - len(shares))) if shares else slots

    def take_effects(self) -> list[Effect]:
        """Return the effects since the last call, and those that they cause in turn."""
        effects, self.effects[:] = list(self.effects), []
        for effect in effects:
            run = self.runs.get(effect.run) if isinstance(effect, Ended) else None
            if run is not None and run.cause is not None:
                self._refuse(run.key, run.cause)
        return effects + (self.take_effects() if self.effects else [])

    def message(self, connection: int, exchange_id: bytes, message: Message, now: float) -> None:
        """Handle a message of an authenticated worker.

        Raises:
            ProtocolError: a message that this worker may not send now.
            InternalError: an error in this code, which has ended the worker's exchange.
        """
        if exchange_id not in self.exchanges:
            raise ProtocolError(f"a {message.kind} message of an exchange that is gone")
        try:
            self._message(connection, exchange_id, message, now)
            self.members.heard(connection, now)
        except HeadgateError:
            raise
        except Exception as error:
            cause = self.broke(exchange_id, f"a {message.kind} message", error)
            raise cause.error() from error

    def _message(self, connection: int, exchange_id: bytes, message: Message, now: float) -> None:
        member = self.members.get(connection)
        if message.kind == "CONSUMER" and member is None:
            self._consumer(connection, exchange_id, message, now)
        elif message.kind == "PRODUCER" and member is None:
            self._producer(connection, exchange_id, message)
        elif isinstance(member, Consumer):
            self._of_consumer(member, message)
        elif isinstance(member, Producer):
            self._of_producer(member, message)
        else:
            raise ProtocolError(f"an unexpected {message.kind} message")

    def closed(self, connection: int, error: HeadgateError | None = None) -> None:
        """Handle the end of a connection; ``error`` is why we closed it, if we did."""
        member = self.members.pop(connection, None)
        if member is None or not member.is_present:
            return
        member.broken = error
        with self._contained(member.exchange_id, "the end of a connection"):
            self._closed(member)

    def _closed(self, member: Member) -> None:
        run = self.runs.get(member.run)
        if isinstance(member, Consumer):
            self.formation.drop(member)
        speaks = member.state in {State.LIVE, State.ENDING}
        if run is None or run.is_over or not speaks:
            member.state = State.FAILED
        else:
            run.lost(member, lost(member, ""))

    def silent(self, connection: int, host: str, seconds: float) -> None:
        """Handle a worker without heartbeats, whose connection is closed.

        Spark still believes that its task runs. The driver has Spark kill it, so that Spark starts
        the next attempt.
        """
        member = self.members.pop(connection, None)
        if member is None:
            return
        cause = silent(member, host, seconds)
        # Also after its last message: Spark waits until its task ends.
        self.effects.append(Kill(member, cause.summary))
        if not member.is_present:
            return
        with self._contained(member.exchange_id, "the silence of a worker"):
            run = self.runs.get(member.run)
            if isinstance(member, Consumer):
                self.formation.drop(member)
            if run is not None and not run.is_over:
                run.silent(member, cause)
            member.state = State.FAILED

    def verdict(self, member: Member, status: str, text: str) -> None:
        """Handle Spark's status of a task whose connection closed before its last message."""
        run = self.runs.get(member.run)
        if member.state is State.LOST and run is None:
            member.state = State.STOPPED
        elif member.state is State.LOST and run is not None:
            with self._contained(member.exchange_id, "the status of a task"):
                run.verdict(member, status, text)

    def task_ended(self, consumer: Consumer, status: str, text: str, now: float) -> None:
        """Handle the end of a task that stopped early, or that a second attempt waits for.

        A consumer that stops early sends no error, as after a LIMIT. If its task failed in a function
        above the consumer, its retries get that error and do not run the producers again.
        """
        if self.outcomes.end(consumer) and status != "SUCCESS":
            with self._contained(consumer.exchange_id, "the outcome of a task"):
                self._task_ended(consumer, status, text, now)

    def _task_ended(self, consumer: Consumer, status: str, text: str, now: float) -> None:
        is_news = consumer.is_present or consumer.state is State.STOPPED
        if status == "FAILED" and is_news and not (is_gone(text) and self._retries.tasks > 1):
            self._fail_stage(consumer, lost(consumer, text))
            return
        if consumer.is_present:
            # The end of its connection has not been handled yet.
            self.formation.drop(consumer)
            consumer.state = State.FAILED
            run = self.runs.get(consumer.run)
            if run is not None:
                run.consumer_lost(consumer, lost(consumer, text))
        for copy in self.outcomes.release(consumer):
            self._arrive(copy, now)

    def stage_facts(self, facts: Mapping[StageKey, StageFacts]) -> None:
        """Update the stages that have consumers, of those that are stages of their exchange."""
        self.formation.facts.update(facts)
        self.members.confirm(facts)
        for key, fact in facts.items():
            if fact.has_ended:
                with self._contained(key[0], "the end of a stage"):
                    self._stage_ended(key, well=fact.status == "COMPLETE")

    def refuse(self, keys: Iterable[StageKey]) -> None:
        """Turn away the consumers that name a stage which does not read their exchange."""
        for key in keys:
            with self._contained(key[0], "a stage of another exchange"):
                cause = foreign(*key)
                self._refuse(key, cause)
                for run in [run for run in self.live_runs if run.key == key]:
                    run.fail(cause)
                for consumer in [c for c in self.consumers if c.key == key]:
                    consumer.state = State.FAILED

    def job_ended(self, number: int, epoch: int, error: Cause | None, partitions: set[int]) -> None:
        """Handle the end of the producer job of an epoch."""
        run = self.runs.get(number)
        if run is not None:
            with self._contained(run.exchange_id, "the end of a producer job"):
                run.job_finished(epoch, error, partitions)

    def tick(self, now: float) -> None:
        """Form runs, end one if none can go on, and do what is due."""
        counted = self.counted
        held = {c.attempt for c in counted if c.is_present and c.holds_slot}
        # Until Spark has answered, count only our own tasks.
        slots = self.slot_facts or SlotFacts(self.slots, len(held) + self.blocked)
        ended, all_held = self.formation.ended(self.consumers), 0 < self.slots <= len(held)
        for key in self.formation.keys:
            with self._contained(key[0], "the forming of a run"):
                gone = len(ended.get(key[1], ()))
                for run in self.formation.form(key, gone, now, slots_are_held=all_held):
                    self.runs[run.number] = run
                    mixed = self.indeterminate.refusal(run)
                    run.epochs.submit() if mixed is None else run.fail(mixed)
        if self.slots:
            runs = list(self.runs.values())
            self._deadlocks.check(Snapshot(runs, counted, self.blocked, slots), now)
        for run in list(self.runs.values()):
            with self._contained(run.exchange_id, "a run"):
                forms = run.state is RunState.FORMING
                run.waits_for_slots = forms and 0 < slots.there <= len(held)
                run.tick(now)
        self._forget(now)

    def withdraw(self, exchange_id: bytes) -> None:
        """Forget an exchange that no DataFrame has any more, once its last run is over."""
        self._withdrawn.add(exchange_id)

    def broke(self, exchange_id: bytes, doing: str, error: Exception) -> Cause:
        """End all that an exchange has, because of an error in this code; return the cause."""
        cause = bug(doing, error)
        self.effects.append(Broken(exchange_id, cause))
        without_run = [c for c in self.consumers if c.is_present and not c.run]
        for consumer in [c for c in without_run if c.exchange_id == exchange_id]:
            self.formation.drop(consumer)
            consumer.state = State.FAILED
            self._abort(consumer, cause)
        for run in [run for run in self.live_runs if run.exchange_id == exchange_id]:
            run.fail(cause)
        return cause

    @contextlib.contextmanager
    def _contained(self, exchange_id: bytes, doing: str) -> Iterator[None]:
        """Let an error in the code below end this exchange alone."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a bug: the exchange and the log get its cause
            self.broke(exchange_id, doing, error)

    def close(self) -> None:
        """End everything: the Spark context is gone."""
        for run in self.live_runs:
            run.cancel()
        for consumer in list(self.formation.waiting):
            self._abort(consumer, CANCELLED)
        self.formation.waiting.clear()

    def _consumer(self, connection: int, exchange: bytes, message: Message, now: float) -> None:
        fields = (message["stage"], message["partition"], message["attempt"])
        facts = self.exchanges[exchange]
        consumer = Consumer(
            connection, exchange, *fields, index=message["index"], holds_slot=facts.holds_slots
        )
        partitions = facts.num_partitions
        if consumer.index >= partitions:
            raise ProtocolError(f"a consumer of subpartition {consumer.index}, of {partitions}")
        first = self.outcomes.first_attempt(consumer, self.consumers)
        self.members[connection] = consumer
        cause = self._failed.get(consumer.key)
        if cause is not None:
            self._abort(consumer, cause)
        elif first is not None:
            self.outcomes.park(consumer, first)
            self._send(consumer, "WAIT")
        else:
            self._arrive(consumer, now)

    def _arrive(self, consumer: Consumer, now: float) -> None:
        for run in self.live_runs:
            first = run.missing(consumer)
            if first is not None:
                if first.state is State.LOST:
                    # Spark has started it again: there is no need to wait for its status.
                    run.consumer_lost(first, lost(first, ""))
                run.join(consumer)
                return
        self.formation.arrive(consumer, self.live_runs, now)

    def _producer(self, connection: int, exchange_id: bytes, message: Message) -> None:
        if not self.exchanges[exchange_id].num_partitions:
            raise ProtocolError("a producer of a kept exchange, which has none that connect")
        fields = (message["stage"], message["partition"], message["attempt"])
        producer = Producer(
            connection, exchange_id, *fields, epoch=message.epoch, named_run=message.run
        )
        self.members[connection] = producer
        run = self.runs.get(message.run)
        if run is None or run.exchange_id != exchange_id or run.epoch != message.epoch:
            self._abort(producer, CANCELLED)
            return
        producer.run = run.number
        run.fed(self.runs.values(), producer.stage)
        run.producer_arrived(producer)

    def _of_consumer(self, consumer: Consumer, message: Message) -> None:
        if message.run not in {0, consumer.run}:
            raise ProtocolError(f"a {message.kind} message of another run")
        run = self.runs.get(consumer.run)
        match message.kind:
            case "PROGRESS":
                _count(consumer, message)
            case "DONE" | "STOPPED":
                _count(consumer, message)
                ended = message.kind == "DONE" and run is not None and run.epochs.job_ended
                if run is not None:
                    run.consumer_ended(consumer, State.DONE if ended else State.STOPPED)
                consumer.state = State.DONE if ended else State.STOPPED
                if ended:
                    self.indeterminate.yielded(consumer)
                if message.kind == "STOPPED" and run is not None and not run.epochs.is_cancelled:
                    self.outcomes.begin(consumer)
                self.formation.drop(consumer)
                self._send(consumer, "OK")
            case "READY" if run is not None:
                run.consumer_ready(consumer)
            case "YIELDED" if run is not None:
                run.consumer_yielded(consumer)
            case "FAILED":
                self._failure(consumer, run, message)
            case _:
                raise ProtocolError(f"an unexpected {message.kind} message of a consumer")

    def _of_producer(self, producer: Producer, message: Message) -> None:
        run = self.runs.get(producer.run)
        if run is None or (message.run, message.epoch) != (run.number, producer.epoch):
            raise ProtocolError(f"a {message.kind} message of another run")
        if producer.epoch != run.epoch and message.kind != "FAILED":
            # Sent before it knew of the end of its epoch, except for READY.
            producer.has_heard |= message.kind == "READY"
            return
        match message.kind:
            case "PROGRESS":
                _count(producer, message)
            case "REGISTERED":
                run.producer_registered(producer, dict(message.fields))
            case "READER" | "SPLIT_REQUEST" | "SPLITS_FINISHED" | "SOURCE_EVENT" | "WATERMARK":
                if run.readers is None:
                    raise ProtocolError(f"a {message.kind} message in a run without a source")
                run.readers.said(producer, message)
            case "DONE":
                _count(producer, message)
                run.producer_done(producer)
            case "STOPPED":
                producer.state = State.STOPPED
                self._send(producer, "OK")
            case "FAILED":
                self._failure(producer, run, message)
            case _:
                raise ProtocolError(f"an unexpected {message.kind} message of a producer")

    def _failure(self, member: Member, run: Run | None, message: Message) -> None:
        cause = Cause.from_fields(message.fields)
        if run is None:
            member.state = State.FAILED
            if isinstance(member, Consumer):
                self.formation.drop(member)
        elif cause.is_second_hand:
            # The member waits for the end of the epoch or of the run.
            if run.is_over:
                self._abort(member, run.cause or CANCELLED)
            elif message.epoch == run.epoch:
                run.suspect(member, cause)
        else:
            member.state = State.FAILED
            if not cause.is_cancelled:
                run.fail(cause)

    def _stage_ended(self, key: StageKey, *, well: bool) -> None:
        for run in self.live_runs:
            if run.key != key or run.roster.asks_spark:
                continue
            if not well:
                run.epochs.stage_failed()
                continue
            for consumer in [c for c in run.roster.consumers.values() if run.epochs.is_awaited(c)]:
                if consumer.is_present:
                    self._abort(consumer, CANCELLED)
                run.consumer_ended(consumer, State.STOPPED)
        for consumer in [c for c in self.formation.waiting if c.key == key]:
            self.formation.drop(consumer)
            self._abort(consumer, CANCELLED)

    def _fail_stage(self, consumer: Consumer, cause: Cause) -> None:
        run = self.runs.get(consumer.run)
        if run is not None and not run.is_over:
            run.fail(cause)
        else:
            self._refuse(consumer.key, cause)

    def _refuse(self, key: StageKey, cause: Cause) -> None:
        """Abort the waiting and all later consumers of this exchange and stage with a cause."""
        self._failed.add(key, cause)
        for consumer in self.consumers:
            if consumer.key == key and (
                consumer in self.formation.waiting or consumer.state is State.PARKED
            ):
                self.formation.drop(consumer)
                consumer.state = State.FAILED
                self._abort(consumer, cause)

    def _forget(self, now: float) -> None:
        connected = {member.run for member in self.members.values()}
        stages = self.stages
        for number, run in list(self.runs.items()):
            gone = not any(member.is_present for member in run.roster.members)
            if not (run.is_over and run.epochs.job_ended and gone and now > run.ended_at):
                stages.add(run.key)
            # Connected members may still send messages of their run, and new effects name it.
            elif run.ended_at and number not in connected:
                del self.runs[number]
        self.outcomes.forget(now, self._failed)
        self.formation.forget(stages)
        for exchange_id in self._withdrawn - {run.exchange_id for run in self.runs.values()}:
            self._withdrawn.discard(exchange_id)
            self.exchanges.pop(exchange_id, None)
            self._failed.drop(exchange_id)
            self.indeterminate.drop(exchange_id)
            self.effects.append(Withdrawn(exchange_id))

    def _new_run(self, exchange_id: bytes, stage: int, now: float) -> Run:
        self._numbers += 1
        retries, timing = self._retries, self._timing
        return Run(self._numbers, exchange_id, stage, self.effects, now, retries, timing)

    def _abort(self, member: Member, cause: Cause) -> None:
        self._send(member, "ABORT", cause.fields())

    def _send(self, member: Member, kind: str, fields: dict[str, Any] | None = None) -> None:
        run = self.runs.get(member.run)
        number, epoch = (run.number, run.epoch) if run is not None else (0, 0)
        self.effects.append(Send(member.connection, Message(kind, number, epoch, fields or {})))


def _count(member: Member, message: Message) -> None:
    for name, value in message.fields.items():
        setattr(member, name, array("q", value) if name == "edges" else value)
