"""The task sets of Spark's scheduler at this moment, read through py4j.

The status store is late: of tasks that start within 0.1 s it may count one for ten seconds.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from headgate.spark.driver.kept.spark_tasks import FailedTask, RunningTask
from headgate.spark.driver.kept.stages import StageCounts
from headgate.spark.driver.runs.losses import OURS
from headgate.spark.driver.waits.waiting import StageTasks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark import SparkContext

POOL: Final = "spark.scheduler.pool"
GROUP: Final = "spark.jobGroup.id"
TAGS: Final = "spark.job.tags"
DESCRIPTION: Final = "spark.job.description"
#: Most stages that are read; a log line names fewer.
_MAX_STAGES: Final = 50
#: Most tasks of a stage that are listed as running, and most attempts that failed; nobody looks at more.
_MAX_RUNNING: Final = 128
_MAX_FAILED: Final = 16
#: Most attempts of a stage that are counted as failed.
_MOST: Final = 10_000
#: Spark's id of the resource profile that all executors have without another one.
_DEFAULT_PROFILE: Final = 0


def stage_tasks(context: SparkContext) -> list[StageTasks]:
    """Return the stages that have tasks to run or to start, of whatever job."""
    found = []
    for task_set in _task_sets(context):
        tasks, stage = int(task_set.runningTasks()), int(task_set.stageId())
        said = _properties(task_set, DESCRIPTION, TAGS)
        found.append(
            StageTasks(
                stage,
                tasks,
                said.get(DESCRIPTION) or _name(context, stage),
                frozenset(said.get(TAGS, "").split(",")) - {""},
                max(0, int(task_set.numTasks()) - int(task_set.tasksSuccessful()) - tasks),
                bool(task_set.isBarrier()),
                _needs_executors(context, int(task_set.taskSet().resourceProfileId())),
            )
        )
        if len(found) == _MAX_STAGES:
            break
    return found


def _needs_executors(context: SparkContext, profile: int) -> bool:
    """Return True if a profile is about executors, not only about the share of them that a task takes."""
    if profile == _DEFAULT_PROFILE:
        return False
    manager = context._jsc.sc().resourceProfileManager()  # noqa: SLF001 - PySpark has no way to this
    return not manager.resourceProfileFromId(profile).executorResources().isEmpty()


def stage_counts(context: SparkContext, stages: Iterable[int]) -> dict[int, StageCounts]:
    """Return the counts of the tasks of these stages, of those that Spark knows."""
    running = dict.fromkeys(stages, 0)
    for task_set in _task_sets(context) if running else ():
        stage = int(task_set.stageId())
        if stage in running:
            running[stage] += int(task_set.runningTasks())
    tracker, found = context.statusTracker(), {}
    for stage, tasks in running.items():
        known = tracker.getStageInfo(stage)
        if known is not None:
            attempt = known.currentAttemptId
            # Spark's own number has also the attempts that succeeded and whose output was lost.
            failed = known.numFailedTasks and int(
                _listed(context, stage, attempt, "FAILED", _MOST).size()
            )
            found[stage] = StageCounts(attempt, tasks, known.numTasks, failed)
    return found


def running_tasks(context: SparkContext, stage: int, attempt: int) -> list[RunningTask]:
    """Return the tasks that run of a stage's attempt, at most 128: those that were launched first."""
    return [
        RunningTask(one["partitionId"], one["taskId"], one["host"], _seconds(one["launchTime"]))
        for one in _tasks(context, stage, attempt, "RUNNING", _MAX_RUNNING)
    ]


def failed_tasks(context: SparkContext, stage: int, attempt: int) -> list[FailedTask]:
    """Return attempts that failed at the tasks of a stage's attempt, at most 16: the first."""
    return [
        FailedTask(one["partitionId"], one["taskId"], one["host"], one.get("errorMessage") or "")
        for one in _tasks(context, stage, attempt, "FAILED", _MAX_FAILED)
    ]


def _listed(context: SparkContext, stage: int, attempt: int, state: str, most: int) -> Any:
    """Return the first tasks in a state, as the JVM's objects, without a lock of the scheduler."""
    jvm: Any = context._jvm  # noqa: SLF001 - PySpark has no way to this
    store: Any = context._jsc.sc().statusStore()  # noqa: SLF001
    states = jvm.java.util.List.of(jvm.org.apache.spark.status.api.v1.TaskStatus.valueOf(state))
    by_launch = jvm.scala.Option.apply("lt")
    return store.taskList(stage, attempt, 0, most, by_launch, True, states)


def _tasks(
    context: SparkContext, stage: int, attempt: int, state: str, most: int
) -> list[dict[str, Any]]:
    """Return the first tasks in a state as Spark's REST API has them, by one call."""
    jvm: Any = context._jvm  # noqa: SLF001 - PySpark has no way to this
    api = jvm.org.apache.spark.status.api.v1
    found = _listed(context, stage, attempt, state, most)
    listed: list[dict[str, Any]] = json.loads(
        api.JacksonMessageWriter().mapper().writeValueAsString(found)
    )
    return listed


def _seconds(text: str) -> float:
    """Return a time of Spark's REST API in seconds since 1970."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fGMT").replace(tzinfo=UTC).timestamp()


def running_attempts(context: SparkContext, stage: int) -> frozenset[int]:
    """Return the task attempts of a stage that Spark's scheduler has running, of all its attempts."""
    sets = [one for one in _task_sets(context) if int(one.stageId()) == stage]
    return frozenset().union(*(numbers(one.runningTasksSet()) for one in sets))


def numbers(collection: Any) -> frozenset[int]:
    """Return the numbers in a collection of Scala, by one call over the gateway."""
    return frozenset(map(int, filter(None, str(collection.mkString(",")).split(","))))


def run_with_action_of(context: SparkContext, stage: int) -> None:
    """Give the jobs of this thread the pool, job group and tags of the action that a stage belongs to.

    Not ``interruptOnCancel``: an interrupt during the start of a Python worker ends all workers of
    the executor.
    """
    for task_set in _task_sets(context):
        if int(task_set.stageId()) == stage:
            for name, value in _properties(task_set, POOL, GROUP, TAGS).items():
                if name != TAGS:
                    context.setLocalProperty(name, value)
                    continue
                # The action may be a producer job itself, with a tag of its own.
                for tag in value.split(","):
                    if tag and not tag.startswith(OURS):
                        context.addJobTag(tag)
            return


def _task_sets(context: SparkContext) -> Iterator[Any]:
    scheduler = context._jsc.sc().taskScheduler()  # noqa: SLF001 - PySpark has no way to this
    # An application that is stopping has none any more.
    pools = [] if scheduler is None else [scheduler.rootPool()]
    while pools:
        for entry in pools.pop().schedulableQueue().toArray():
            if entry.getClass().getSimpleName() == "Pool":
                pools.append(entry)
            else:
                yield entry


def _properties(task_set: Any, *names: str) -> dict[str, str]:
    properties = task_set.taskSet().properties()
    if properties is None:
        return {}
    said = {name: properties.getProperty(name) for name in names}
    return {name: str(value) for name, value in said.items() if value}


def _name(context: SparkContext, stage: int) -> str:
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - only where Spark is

    try:
        return str(context._jsc.sc().statusStore().lastStageAttempt(stage).name())  # noqa: SLF001
    except Py4JJavaError:
        return ""  # not in the store yet
