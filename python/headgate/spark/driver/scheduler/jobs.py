"""The Spark side of the coordinator: a thread per producer job, and one that watches Spark."""

from __future__ import annotations

import logging
import queue
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from headgate import errors
from headgate.control.cause import CANCELLED, Cause
from headgate.spark.driver.logs import of_run, say
from headgate.spark.driver.runs.epochs import RunState
from headgate.spark.driver.runs.losses import OURS
from headgate.spark.driver.runs.members import ENDED, Producer
from headgate.spark.driver.runs.readers import Readers
from headgate.spark.driver.scheduler.facts import SparkFacts, is_gone
from headgate.spark.driver.scheduler.rows import rdd_of
from headgate.spark.driver.scheduler.task_sets import run_with_action_of
from headgate.spark.driver.scheduler.threads import python_stack
from headgate.spark.driver.waits.stalls import Evidence, JobThread
from headgate.spark.driver.waits.standing import Standing
from headgate.spark.driver.waits.waiting import Snapshot, Waiting
from headgate.spark.progress import latest
from headgate.spark.progress.display import PROGRESS
from headgate.spark.progress.drawn import PipelinedRun
from headgate.spark.progress.facts import Facts
from headgate.spark.progress.stats import key_of, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark import RDD, SparkContext
    from pyspark.sql import DataFrame

    from headgate.source.coordination import CoordinatorThread
    from headgate.spark.driver.coordinator import Coordinator
    from headgate.spark.driver.runs.formation import StageFacts
    from headgate.spark.driver.runs.members import Consumer, Member, StageKey
    from headgate.spark.driver.runs.run import Run
    from headgate.spark.driver.server import Server
    from headgate.spark.tasks.task import SourcePlan

#: Seconds between two looks at Spark while consumers wait, and while none does.
_LOOK: Final = 0.25
_IDLE: Final = 1.0
#: Seconds between two looks for the consumers of a run that is about to start its producers.
_CHECK: Final = 0.05
#: Task attempts that an error names.
_NAMED: Final = 8


@dataclass(frozen=True, slots=True)
class Plan:
    """How to start the producers of an exchange.

    Attributes:
        producers: makes the producer DataFrame of a run and epoch.
        description: of the job, for Spark's UI.
        progress: the option of this name.
        rdd_id: of an RDD that is in each stage of consumers, and in no other one.
        facts: about the exchange, for its statistics.
        source: the source that producers read; None where they have an input.
        places_by_order: True if the place of a row depends on the rows before it.
    """

    producers: Callable[[int, int], DataFrame]
    description: str
    progress: str
    rdd_id: int
    facts: Facts = field(default_factory=Facts)
    source: SourcePlan | None = None
    places_by_order: bool = False


class Jobs:
    """The Spark side of a coordinator.

    Args:
        server: of the coordinator.
        context: the application.
        plans: exchange id -> plan; the application adds to it.
        withdrawn: called with each exchange that the coordinator has forgotten.
        look: called about once a second, in the thread that asks Spark.
        on_gone: called once, when the context has been stopped.
    """

    def __init__(
        self,
        server: Server,
        context: SparkContext,
        plans: dict[bytes, Plan],
        withdrawn: Callable[[bytes], None],
        look: Callable[[], None],
        on_gone: Callable[[], None],
    ) -> None:
        self._server = server
        self._context = context
        self._plans = plans
        self.withdrawn = withdrawn
        self._look_at_plans = look
        self._on_gone = on_gone
        self._facts = SparkFacts(context)
        self._waiting = Waiting(server.timing)
        self._standing = Standing(server.timing)
        self._asked: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stages: set[StageKey] = set()
        #: Stages of the runs that form, and those with consumers that Spark has not been seen to run.
        self._forming: set[StageKey] = set()
        self._unconfirmed: set[int] = set()
        self._awaited_outcomes: list[Consumer] = []
        self._verdicts: list[tuple[Member, float]] = []
        self._closing = False
        #: Run number -> id of the thread of its newest producer job, and the step it is in.
        self._threads: dict[int, tuple[int, str]] = {}
        #: The one thread of all enumerators, once there is one.
        self._enumerators: CoordinatorThread | None = None
        self._thread = threading.Thread(target=self._watch, name="headgate-spark", daemon=True)

    def start(self) -> None:
        """Start looking at Spark."""
        self._thread.start()

    # Called in the coordinator's thread.

    def submit(self, run: Run) -> None:
        """Start the producer job of a run in a new thread."""
        plan = self._plans[run.exchange_id]
        source, facts = plan.source, plan.facts
        latest.began(key_of(run), lambda: snapshot(run, time.monotonic(), facts))
        if source is not None:
            self._enumerate(run, source)
        name = f"headgate-job-{run.number}"
        consumers = frozenset(c.attempt for c in run.roster.live_consumers)
        arguments = (run, run.epoch, consumers)
        threading.Thread(target=self._job, args=arguments, name=name, daemon=True).start()

    def cancel(self, run: Run, epoch: int) -> None:
        """Cancel the producer job of an epoch."""
        named = tag(run.exchange_id, run.number, epoch)
        self._asked.put(lambda: self._context.cancelJobsWithTag(named))

    def ask_verdict(self, member: Member) -> None:
        """Ask Spark for the status of a task."""
        deadline = time.monotonic() + self._server.timing.verdict
        self._asked.put(lambda: self._verdicts.append((member, deadline)))

    def kill(self, member: Member, reason: str) -> None:
        """Kill a task that Spark takes for running, if it is one of its exchange."""
        self._asked.put(lambda: self._kill(member, reason))

    def epoch_ended(self, run: Run, epoch: int, cause: Cause) -> None:
        """Log the end of an epoch."""
        words = "run %d: epoch %d ended: %s"
        say(logging.WARNING, words, run.number, epoch, cause.summary, about=of_run(run, epoch))

    def ended(self, run: Run, cause: Cause | None) -> None:
        """Log the end of a run and close its readers."""
        how = "well" if cause is None else cause.summary
        say(logging.INFO, "run %d ended: %s", run.number, how, about=of_run(run))
        if run.readers is not None:
            run.readers.close()
        self._asked.put(lambda: latest.ended(key_of(run)))

    def _enumerate(self, run: Run, source: SourcePlan) -> None:
        from headgate.source.coordination import CoordinatorThread  # noqa: PLC0415 - sources only
        from headgate.spark.driver.scheduler.source_runs import SourceRun  # noqa: PLC0415 - sources only

        if self._enumerators is None:
            self._enumerators = CoordinatorThread()
        run.readers = Readers(run, SourceRun(source, run, self._enumerators, self._server.post))
        run.readers.start()

    def tick(self, coordinator: Coordinator) -> None:
        """Pass new stages to the watching thread; show progress."""
        stages = coordinator.stages | {run.key for run in coordinator.live_runs}
        is_new, self._stages = bool(stages - self._stages), stages
        self._unconfirmed = coordinator.members.unconfirmed
        if is_new:
            self._asked.put(_nothing)  # look at once
        forming = (run for run in coordinator.live_runs if run.state is RunState.FORMING)
        self._forming = {run.key for run in forming}
        self._awaited_outcomes = list(coordinator.outcomes.consumers.values())
        now = time.monotonic()
        PROGRESS.show(self, [self._drawn(run) for run in coordinator.live_runs], now)
        for level, line in self._standing.lines(coordinator.live_runs, now, self._name):
            say(level, "%s", line)
        if self._waiting.is_due(coordinator.live_runs, now):
            self._asked.put(self._say_who_waits)

    def _drawn(self, run: Run) -> PipelinedRun:
        plan = self._plans.get(run.exchange_id)
        return PipelinedRun(run) if plan is None else PipelinedRun(run, plan.progress, plan.facts)

    # In the watching thread.

    def _watch(self) -> None:
        while not self._closing:
            try:
                self._look()
                self._look_at_plans()
            except Exception as error:  # noqa: BLE001 - py4j raises anything when Spark stops
                if not is_gone(self._context):
                    say(logging.DEBUG, "Spark did not answer: %s", error)
                    time.sleep(_LOOK)
            if is_gone(self._context):
                self._closing = True
        self._on_gone()
        self._server.stop()
        if self._enumerators is not None:
            self._enumerators.close()

    def _look(self) -> None:
        try:
            self._asked.get(timeout=_LOOK if self._is_busy else _IDLE)()
            while not self._asked.empty():
                self._asked.get()()
        except queue.Empty:
            pass  # no request: look anyway
        if is_gone(self._context):
            return
        # Ask again: a request may have added the first stage in a while.
        if not self._is_busy:
            return
        self._answer_verdicts()
        self._report_outcomes()
        keys = self._stages
        known = self._facts.stages({stage for _, stage in keys}, self._unconfirmed)
        own = {key for key in keys if self._reads(key[0], known.get(key[1]))}
        facts = {key: known[key[1]] for key in own}
        foreign = {key for key in keys - own if key[1] in known}
        slots = self._facts.slots()
        blocked = self._facts.blocked({stage for _, stage in self._forming & own})

        def told() -> None:
            coordinator = self._server.coordinator
            coordinator.refuse(foreign)
            coordinator.slots = slots.there + slots.to_come
            coordinator.slot_facts = coordinator.whole(slots)
            coordinator.blocked = blocked
            coordinator.stage_facts(facts)
            if coordinator.stalls.look(coordinator.snapshot(slots), time.monotonic()):
                self._asked.put(self._examine_stall)

        self._server.post(told)

    def _say_who_waits(self) -> None:
        seen = self._snapshot()

        def told() -> None:
            for level, line in self._waiting.lines(seen(), time.monotonic()):
                say(level, "%s", line)

        self._server.post(told)

    def _examine_stall(self) -> None:
        seen = self._snapshot()
        computes, stacks = self._facts.driver_threads()
        jobs = {
            run: JobThread(step, python_stack(thread))
            for run, (thread, step) in list(self._threads.items())
        }

        def told() -> None:
            self._server.coordinator.stalls.judge(Evidence(seen(), computes, stacks, jobs))

        self._server.post(told)

    def _snapshot(self) -> Callable[[], Snapshot]:
        """Return what makes a snapshot in the coordinator's thread, of what Spark says now."""
        slots, stages, excluded = (
            self._facts.slots(),
            self._facts.stage_tasks(),
            self._facts.excluded(),
        )

        def seen() -> Snapshot:
            seen = self._server.coordinator.snapshot(slots)
            return replace(seen, stages=stages, name=self._name, excluded=excluded)

        return seen

    def _name(self, run: Run) -> str:
        plan = self._plans.get(run.exchange_id)
        words = "headgate, gone" if plan is None else plan.description
        return words.replace("headgate", "exchange", 1)

    def _reads(self, exchange_id: bytes, stage: StageFacts | None) -> bool:
        """Return True if a stage has consumers of an exchange."""
        plan = self._plans.get(exchange_id)
        return plan is not None and stage is not None and plan.rdd_id in stage.rdds

    def _is_own(self, member: Member) -> bool:
        """Return True if the stage that a task named is one of its exchange's consumers or producers.

        Nobody but Spark says so: whoever has the exchange's secret can name any task.
        """
        if isinstance(member, Producer):
            named = tag(member.exchange_id, member.named_run, member.epoch)
            return member.stage in self._facts.stages_with_tag(named)
        return self._reads(
            member.exchange_id, self._facts.stages([member.stage], ()).get(member.stage)
        )

    def _status(self, member: Member) -> tuple[str, str]:
        """Return the status and the error text of a task; empty if it is not one of its exchange."""
        try:
            if self._is_own(member):
                return self._facts.task(member.stage, member.attempt)
        except Exception as error:  # noqa: BLE001 - py4j's; other tasks are asked about all the same
            say(logging.DEBUG, "Spark did not say what became of a task: %s", error)
        return "", ""

    def _kill(self, member: Member, reason: str) -> None:
        status, _ = self._status(member)
        if status == "RUNNING":
            self._facts.kill(member.attempt, reason)
        elif status not in ENDED:
            words = (
                "task %d of stage %d is not killed, as Spark has no such task of exchange %s: %s"
            )
            name = member.exchange_id.hex()[:4]
            say(logging.WARNING, words, member.attempt, member.stage, name, reason)

    @property
    def _is_busy(self) -> bool:
        return bool(self._stages or self._verdicts or self._awaited_outcomes)

    def _answer_verdicts(self) -> None:
        now = time.monotonic()
        left = []
        for member, deadline in self._verdicts:
            status, text = self._status(member)
            if status in ENDED or now >= deadline:
                self._server.post(self._verdict(member, status, text))
            else:
                left.append((member, deadline))
        self._verdicts = left

    def _report_outcomes(self) -> None:
        for consumer in self._awaited_outcomes:
            status, text = self._status(consumer)
            if status in ENDED:
                self._server.post(self._outcome(consumer, status, text))

    def _outcome(self, consumer: Consumer, status: str, text: str) -> Callable[[], None]:
        def told() -> None:
            self._server.coordinator.task_ended(consumer, status, text, time.monotonic())

        return told

    def _verdict(self, member: Member, status: str, text: str) -> Callable[[], None]:
        def told() -> None:
            self._server.coordinator.verdict(member, status, text)

        return told

    # In the job's thread.

    def _job(self, run: Run, epoch: int, consumers: frozenset[int]) -> None:
        plan = self._plans[run.exchange_id]
        error: Cause | None = None
        partitions: set[int] = set()
        try:
            self._enter(run, "Spark's scheduler, which is asked for the pool of the action")
            self._check_action(run, epoch, consumers)
            self._join_action(run)
            self._context.setJobDescription(plan.description)
            self._context.addJobTag(tag(run.exchange_id, run.number, epoch))
            self._enter(run, "Spark's driver to plan the input of its producers")
            # As an RDD job: a failed SQL job interrupts its tasks, and an interrupt during the start of
            # a Python worker makes Spark restart the daemon, which kills all workers.
            producers = rdd_of(plan.producers(run.number, epoch))
            if not self._is_repeatable(plan, producers):
                self._server.post(
                    lambda: self._server.coordinator.indeterminate.add(run.exchange_id)
                )
            self._enter(run, "Spark's driver to submit its producer job")
            rows = producers.collect()
            partitions = {row["partition"] for row in rows}
        except Exception as failure:  # noqa: BLE001 - the cause of the run, whatever it is
            error = job_cause(failure)
        finally:
            self._left(run)
            coordinator = self._server.coordinator
            self._server.post(lambda: coordinator.job_ended(run.number, epoch, error, partitions))

    def _enter(self, run: Run, step: str) -> None:
        self._threads[run.number] = (threading.get_ident(), step)

    def _left(self, run: Run) -> None:
        thread, _ = self._threads[run.number]
        if thread == threading.get_ident():  # not the thread of a later epoch
            del self._threads[run.number]

    def _check_action(self, run: Run, epoch: int, consumers: frozenset[int]) -> None:
        """Wait until Spark is seen to run a consumer of the run: no other task may have producers started.

        A status store that fails stops no job: no task can make it fail.

        Raises:
            ProtocolError: Spark runs none of them.
        """
        deadline = time.monotonic() + self._server.timing.verdict
        while True:
            try:
                known = self._facts.stages([run.stage], {run.stage}).get(run.stage)
            except Exception as error:  # noqa: BLE001 - py4j's
                words = "run %d: Spark did not say who runs, so its producers start unchecked: %s"
                say(logging.WARNING, words, run.number, error, about=of_run(run, epoch))
                return
            running = frozenset() if known is None else known.running or frozenset()
            if self._reads(run.exchange_id, known) and running & consumers:
                return
            if run.epoch != epoch or run.is_over or time.monotonic() >= deadline:
                raise errors.ProtocolError(
                    f"no action asked for the producers of run {run.number}",
                    asked=f"a running consumer among task attempts {_named(consumers)}",
                    have=f"stage {run.stage}, in which Spark runs none of them",
                )
            time.sleep(_CHECK)

    def _join_action(self, run: Run) -> None:
        try:
            run_with_action_of(self._context, run.stage)
        except Exception as error:  # noqa: BLE001 - py4j's: the scheduler's insides differ by version
            words = "run %d: its producers run outside of the action's pool and group: %s"
            say(logging.WARNING, words, run.number, error, about=of_run(run))

    def _is_repeatable(self, plan: Plan, producers: RDD[Any]) -> bool:
        # Splits go to readers by timing, so the rows of a source have no order.
        has_order = plan.source is None
        return (has_order or not plan.places_by_order) and self._facts.is_repeatable(
            producers, by_order=plan.places_by_order
        )


def _named(attempts: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(attempts)[:_NAMED]))


def _nothing() -> None:
    """Wake the watching thread."""


def tag(exchange_id: bytes, run: int, epoch: int) -> str:
    """Return the tag of an epoch's job."""
    return f"{OURS}{exchange_id.hex()}-{run}-{epoch}"


def job_cause(failure: Exception) -> Cause:
    """Return the cause for a failed producer job that no worker has reported."""
    text = str(failure)
    if isinstance(failure, errors.ProtocolError):
        return Cause.of(failure)
    if any(words in text for words in ("SPARK_JOB_CANCELLED", "cancelled", "was shut down")):
        return CANCELLED
    if "exited unexpectedly" in text or "ExecutorLostFailure" in text:
        return Cause(errors.PeerLostError.code, "a producer is gone without a goodbye", text=text)
    first = text.strip().partition("\n")[0]
    return Cause(errors.ProducerFailedError.code, f"the producer job failed: {first}", text=text)
