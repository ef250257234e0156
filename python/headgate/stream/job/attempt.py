"""One attempt of a streaming job: a run of all tasks, from a checkpoint on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headgate.stream.job.bottleneck import Shares, shares

if TYPE_CHECKING:
    from headgate.control.messages import Message
    from headgate.stream.job.checkpoints import CheckpointCoordinator
    from headgate.stream.job.sources import JobSources
    from headgate.stream.job.store import Completed

#: Stage and index of a task.
TaskId = tuple[int, int]


@dataclass(slots=True)
class Attempt:
    """One run of all tasks.

    Attributes:
        number: counts the attempts of this driver.
        name: unique among all drivers of the checkpoint folder.
        restored: what it continues from.
        placed: the worker of each task.
        sources: the enumerators.
        checkpoints: None until all tasks are connected.
        deployed: what workers said of their tasks' partitions.
        ended: tasks that have handled all rows.
        finished: tasks whose threads have ended.
        enumerators: states of the enumerators by checkpoint and uid.
        cancelling: workers that still have to cancel their tasks.
        figures: last report of each task.
        shares: what each task did between its last two reports.
        last_savepoint: folder of the savepoint that the last checkpoint is.
        is_last_asked: True once the last checkpoint was asked for.
        is_over: True once its tasks were told to end.
    """

    number: int
    name: str
    restored: Completed | None
    placed: dict[TaskId, int]
    sources: JobSources
    checkpoints: CheckpointCoordinator | None = None
    deployed: dict[int, Message] = field(default_factory=dict)
    ended: set[TaskId] = field(default_factory=set)
    finished: set[TaskId] = field(default_factory=set)
    enumerators: dict[int, dict[str, str]] = field(default_factory=dict)
    cancelling: set[int] = field(default_factory=set)
    figures: dict[TaskId, Mapping[str, Any]] = field(default_factory=dict)
    shares: dict[TaskId, Shares] = field(default_factory=dict)
    last_savepoint: str | None = None
    is_last_asked: bool = False
    is_over: bool = False

    @property
    def running(self) -> CheckpointCoordinator | None:
        """Its checkpoints while all tasks run; None before and after."""
        return None if self.is_over else self.checkpoints

    @property
    def has_ended(self) -> bool:
        """True once all tasks have handled all rows."""
        return len(self.ended) == len(self.placed)

    @property
    def has_finished(self) -> bool:
        """True once the threads of all tasks have ended."""
        return len(self.finished) == len(self.placed)

    def note(self, task: TaskId, figures: Mapping[str, Any]) -> None:
        """Take a task's report."""
        before = self.figures.get(task)
        self.figures[task] = figures
        if before is not None and (found := shares(before, figures)) is not None:
            self.shares[task] = found
