"""Facts of Spark's status store, read through py4j. Every call may raise when Spark stops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.spark.driver.runs.formation import StageFacts
from headgate.spark.driver.scheduler.slots import SlotCounter
from headgate.spark.driver.scheduler.task_sets import numbers, running_attempts, stage_tasks
from headgate.spark.driver.scheduler.threads import driver_threads

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from pyspark import RDD, SparkContext

    from headgate.spark.driver.waits.waiting import SlotFacts, StageTasks

_MAX_TASKS = 20_000


class SparkFacts:
    """Facts of one application.

    PySpark has no public way to the status of a task, so this uses the JVM's status store.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._slots = SlotCounter(context)

    @property
    def _scala(self) -> Any:
        return self._context._jsc.sc()  # noqa: SLF001 - see the class

    def stages(self, stages: Iterable[int], running_of: Container[int]) -> dict[int, StageFacts]:
        """Return the last attempts of these stages, if Spark knows them.

        Args:
            stages: their ids.
            running_of: stages whose running attempts are asked for too.
        """
        found = {}
        for stage in stages:
            data = self._stage(stage)
            if data is not None:
                found[stage] = StageFacts(
                    str(data.status().toString()),
                    data.numTasks(),
                    data.numCompleteTasks(),
                    _rdds(data),
                    running_attempts(self._context, stage) if stage in running_of else None,
                )
        return found

    def stages_with_tag(self, tag: str) -> set[int]:
        """Return the stages of the jobs that have a tag."""
        tracker = self._scala.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForTag(tag)]
        return {stage for job in jobs if job.isDefined() for stage in job.get().stageIds()}

    def task(self, stage: int, attempt: int) -> tuple[str, str]:
        """Return the status and the error text of a task attempt; empty when unknown."""
        data = self._stage(stage)
        if data is None:
            return "", ""
        store = self._scala.statusStore()
        for stage_attempt in range(data.attemptId(), -1, -1):
            tasks = store.taskList(stage, stage_attempt, _MAX_TASKS)
            for number in range(tasks.size()):
                task = tasks.apply(number)
                if task.taskId() == attempt:
                    said = task.errorMessage()
                    return str(task.status()), str(said.get()) if said.isDefined() else ""
        return "", ""

    @staticmethod
    def is_repeatable(rows: RDD[Any], *, by_order: bool) -> bool:
        """Return True if every row gets the same place when the rows are computed again.

        Args:
            rows: of the producers.
            by_order: True if a row's place depends on the rows before it.
        """
        level = str(rows._jrdd.rdd().outputDeterministicLevel().toString())  # noqa: SLF001 - see the class
        return level == "DETERMINATE" or (level == "UNORDERED" and not by_order)

    def kill(self, attempt: int, reason: str) -> None:
        """End a task attempt; Spark starts another one, and does not count this one as failed."""
        # Without an interrupt: one that hits the start of a worker makes Spark restart the daemon.
        self._scala.killTaskAttempt(attempt, False, reason)

    def slots(self) -> SlotFacts:
        """Return how many tasks can run at the same time, and how many do."""
        return self._slots.look()

    def stage_tasks(self) -> list[StageTasks]:
        """Return the stages that have tasks to run or to start, of whatever job."""
        return stage_tasks(self._context)

    def excluded(self) -> tuple[str, ...]:
        """Return the ids of the executors that Spark gives no further task to."""
        executors = self._scala.statusStore().executorList(True)
        found = (executors.apply(number) for number in range(executors.size()))
        return tuple(str(e.id()) for e in found if e.isExcluded() or e.excludedInStages().size())

    def driver_threads(self) -> tuple[bool, str]:
        """Return True if a thread of the driver computes, and the stacks of all threads."""
        return driver_threads(self._scala)

    def blocked(self, stages: Iterable[int]) -> int:
        """Return how many tasks wait for a cached partition that one of these stages computes.

        Such a task holds a slot without being a consumer.
        """
        persisted = numbers(self._scala.getPersistentRDDs().keySet())
        if not persisted:
            return 0
        ours: set[int] = set()
        for stage in stages:
            ours |= _rdds(self._stage(stage)) & persisted
        active = self._scala.statusTracker().getActiveStageIds() if ours else ()
        sharing = [stage for stage in active if _rdds(self._stage(stage)) & ours]
        return sum(self._waits_for_a_block(task) for s in sharing for task in self._running(s))

    def _running(self, stage: int) -> Iterator[Any]:
        attempt = self._stage(stage).attemptId()
        tasks = self._scala.statusStore().taskList(stage, attempt, _MAX_TASKS)
        for number in range(tasks.size()):
            task = tasks.apply(number)
            if str(task.status()) == "RUNNING":
                yield task

    def _waits_for_a_block(self, task: Any) -> bool:
        dump = self._scala.getTaskThreadDump(task.taskId(), task.executorId())
        return dump.isDefined() and "BlockInfoManager" in str(dump.get().toString())

    def _stage(self, stage: int) -> Any:
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - only where Spark is

        try:
            return self._scala.statusStore().lastStageAttempt(stage)
        except Py4JJavaError:
            return None  # not in the store yet, or evicted


def is_gone(context: SparkContext) -> bool:
    """Return True once the application has been stopped."""
    return context._jsc is None  # noqa: SLF001 - as PySpark checks it


def _rdds(stage: Any) -> frozenset[int]:
    return frozenset() if stage is None else numbers(stage.rddIds())
