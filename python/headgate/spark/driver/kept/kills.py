"""Kills by the kernel in the control groups of a run's tasks: why a worker was lost that could not say it.

Spark's JVM sees a closed socket, whatever ended a Python worker.

Decision: ADR 0052.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate._process import MemoryGroup, memory_group_now
from headgate.observe.numbers import size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.spark.tasks.report import TaskReport

_REMEDY: Final = (
    "What helps: more memory for Python (spark.executor.memoryOverhead, or a larger limit of the container), fewer tasks at "
    "once in an executor, a smaller memory="
)


class RunKills:
    """The groups of a run's tasks, with the kills in each when the run began and as they were seen last.

    Args:
        group: that of the driver, if all tasks run beside it.
    """

    def __init__(self, group: MemoryGroup | None) -> None:
        now = None if group is None else memory_group_now(group)
        #: Key of a group -> kills before, the newest count, names of the hosts of its tasks.
        self._groups: dict[tuple[str, int, int], tuple[int, MemoryGroup, frozenset[str]]] = {}
        #: True once the counts are those of the end.
        self._is_settled = False
        if now is not None:
            self._groups[now.key] = now.kills, now, frozenset()

    def add(self, report: TaskReport) -> None:
        """Take the counts of a task that has ended."""
        memory = report.memory
        if memory is not None and memory.group is not None:
            self._add(memory.kills_before, memory.group, report.record.host)

    def look(self, *, is_over: bool) -> None:
        """Read the counts of groups that this process sees, for the last time if the run is over."""
        if not self._is_settled:
            self._is_settled = is_over
            for before, group, _ in list(self._groups.values()):
                now = memory_group_now(group)
                if now is not None:
                    self._add(before, now, "")

    def _add(self, before: int, group: MemoryGroup, host: str) -> None:
        hosts = frozenset({host} - {""})
        earlier = self._groups.get(group.key)
        if earlier is not None:
            before, hosts = min(before, earlier[0]), hosts | earlier[2]
            group = group if group.kills > earlier[1].kills else earlier[1]
        self._groups[group.key] = before, group, hosts

    def sentences(self) -> Iterator[str]:
        """Yield a sentence for each group in which the kernel has killed a process since the run began."""
        for before, group, hosts in list(self._groups.values()):
            kills = group.kills - before
            if kills:
                where = f" on {', '.join(sorted(hosts))}" if hosts else ""
                limit = "no limit" if group.limit is None else f"a limit of {size(group.limit)}"
                yield (
                    f"since the run began, the kernel has killed {kills} process{'es' * (kills > 1)} for want of memory in the "
                    f"cgroup of tasks{where}, which has {limit}. {_REMEDY}"
                )
