"""Memory of a task in a worker, which Spark uses for one task after another.

Decision: ADR 0052.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from headgate._process import MemoryGroup, memory_group, oom_kills, reset_peak


@dataclass(frozen=True, slots=True)
class MemoryOfTask:
    """The counts that the kernel keeps of the memory of a task's process.

    Attributes:
        peak_is_of_task: False if the peak of the process is that since the process began, as the kernel refused a reset.
        group: the group in which the process ran its first task, with the kills in it so far; None if none is seen.
        kills_before: kills in the group when the task began.
    """

    peak_is_of_task: bool
    group: MemoryGroup | None
    kills_before: int


_newest: MemoryOfTask | None = None


def begin_task() -> None:
    """Let the peak of this process begin anew, for the task that begins now."""
    global _newest  # noqa: PLW0603 - a worker runs one task at a time
    group = _group_now()
    _newest = MemoryOfTask(reset_peak(), group, 0 if group is None else group.kills)


def memory_of_task() -> MemoryOfTask | None:
    """Return what is known of the task that runs; None before the first one."""
    return None if _newest is None else replace(_newest, group=_group_now())


def _group_now() -> MemoryGroup | None:
    group = _group()
    kills = None if group is None else oom_kills(Path(group.folder))
    return group if group is None or kills is None else replace(group, kills=kills)


@cache
def _group() -> MemoryGroup | None:
    """Return the group of this process, which is looked for once: to find it takes ten times as long as to read its count."""
    return memory_group()
