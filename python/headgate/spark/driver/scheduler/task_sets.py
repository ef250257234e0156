"""The task sets of Spark's scheduler at this moment, read through py4j.

The status store is late: of tasks that start within 0.1 s it may count one for ten seconds.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from headgate.spark.driver.kept.outcome import failure_of
from headgate.spark.driver.kept.spark_tasks import RunningTask
from headgate.spark.driver.kept.stages import StageCounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark import SparkContext

    from headgate.observe.record import Failure

#: Most tasks of a stage that are listed as running, and most attempts that failed; nobody looks at more.
_MAX_RUNNING: Final = 128
_MAX_FAILED: Final = 16
#: Most attempts of a stage that are counted as failed.
_MOST: Final = 10_000


def stage_counts(context: SparkContext, stages: Iterable[int]) -> dict[int, StageCounts]:
    """Return the counts of the tasks of these stages, of those that Spark knows."""
    running = dict.fromkeys(stages, 0)
    for task_set in _task_sets(context) if running else ():
        stage = int(task_set.stageId())
        if stage in running:
            running[stage] += int(task_set.runningTasks())
    tracker, counts = context.statusTracker(), {}
    for stage, tasks in running.items():
        info = tracker.getStageInfo(stage)
        if info is not None:
            attempt = info.currentAttemptId
            # Spark's own number has also the attempts that succeeded and whose output was lost.
            failed = info.numFailedTasks and int(
                _listed(context, stage, attempt, "FAILED", _MOST).size()
            )
            counts[stage] = StageCounts(attempt, tasks, info.numTasks, failed)
    return counts


def running_tasks(context: SparkContext, stage: int, attempt: int) -> list[RunningTask]:
    """Return the tasks that run of a stage's attempt, at most 128: those that were launched first."""
    return [
        RunningTask(task["partitionId"], task["taskId"], task["host"], _seconds(task["launchTime"]))
        for task in _tasks(context, stage, attempt, "RUNNING", _MAX_RUNNING)
    ]


def failed_tasks(context: SparkContext, stage: int, attempt: int) -> list[Failure]:
    """Return attempts that failed at the tasks of a stage's attempt, at most 16: the first."""
    return [
        failure_of(t["partitionId"], t["taskId"], t["host"], t.get("errorMessage") or "")
        for t in _tasks(context, stage, attempt, "FAILED", _MAX_FAILED)
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
    tasks = _listed(context, stage, attempt, state, most)
    text = api.JacksonMessageWriter().mapper().writeValueAsString(tasks)
    return json.loads(text)  # type: ignore[no-any-return]


def _seconds(text: str) -> float:
    """Return a time of Spark's REST API in seconds since 1970."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fGMT").replace(tzinfo=UTC).timestamp()


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
