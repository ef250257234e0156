"""The statistics of a run as values that JSON has, of a bounded size: the record has them."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from headgate.observe.worst import worst

if TYPE_CHECKING:
    from headgate.spark.progress.run_stats import RunStats
    from headgate.spark.progress.task_stats import TaskStats

#: Most tasks of a run that are listed one by one.
MOST_TASKS: Final = 512
#: Numbers that are added up of the others.
_SUMS: Final = ("rows", "bytes", "input_ms", "function_ms", "emit_ms", "blocked_ms")


def plain(stats: RunStats) -> dict[str, Any]:
    """Return the statistics as values that JSON has.

    ``tasks`` has at most 512 tasks: those that failed, those that run and have not reported, then
    those that worked or waited for downstream the longest, of producers and consumers alike. ``more_tasks`` has for
    each role the others: how many, in which states, and their sums.
    """
    listed, others = _parted(stats.tasks)
    told = asdict(replace(stats, tasks=tuple(listed)))
    told["tasks"] = list(told["tasks"])
    told["stages"] = list(told["stages"])
    told["failures"] = list(told["failures"])
    told["more_tasks"] = [
        {
            "role": role,
            "tasks": len(some),
            "states": dict(Counter(task.state for task in some)),
            **{n: sum(getattr(t, n) for t in some) for n in _SUMS},
        }
        for role in ("map", "reduce")
        if (some := [task for task in others if task.role == role])
    ]
    return told


def shares(stats: RunStats) -> dict[str, Any]:
    """Return what the history of a run needs of its statistics."""
    stages = [asdict(stage) for stage in stats.stages]
    return {"state": stats.state, "rows": stats.rows, "bytes": stats.bytes, "stages": stages}


def _parted(tasks: tuple[TaskStats, ...]) -> tuple[list[TaskStats], list[TaskStats]]:
    """Return the tasks to list, in their order, and the others."""
    if len(tasks) <= MOST_TASKS:
        return list(tasks), []
    producers, consumers = (
        sorted((t for t in tasks if t.role == role), key=_weight, reverse=True)
        for role in ("map", "reduce")
    )
    listed = {id(task) for task in worst((producers, consumers), MOST_TASKS)[0]}
    return [t for t in tasks if id(t) in listed], [t for t in tasks if id(t) not in listed]


def _weight(task: TaskStats) -> tuple[bool, bool, int, int]:
    is_bad = task.state in {"failed", "lost"}
    return is_bad, not task.has_reported, task.busy_ms + task.back_pressured_ms, task.rows
