"""One attempt of a streaming job: a run of all tasks, from a checkpoint on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate.control.messages import Message
    from headgate.stream.graph.stages import JobGraph, TaskId
    from headgate.stream.job.checkpoints import CheckpointCoordinator
    from headgate.stream.job.sources import JobSources
    from headgate.stream.job.store import Completed


@dataclass(slots=True)
class Attempt:
    """One run of all tasks.

    Attributes:
        number: counts the attempts of this driver.
        name: unique among all drivers of the checkpoint folder.
        restored: what it continues from.
        worker_of: number of each task's worker.
        sources: the enumerators.
        checkpoints: None until all tasks are connected.
        deployed: what workers said of their tasks' partitions.
        ended: tasks that have handled all rows.
        finished: tasks whose threads have ended.
        enumerators: states of the enumerators by checkpoint and uid.
        cancelling: workers that still have to cancel their tasks.
        figures: last report of each task.
        earlier: the report before that.
        is_over: True once its tasks were told to end.
    """

    number: int
    name: str
    restored: Completed | None
    worker_of: dict[TaskId, int]
    sources: JobSources
    checkpoints: CheckpointCoordinator | None = None
    deployed: dict[int, Message] = field(default_factory=dict)
    ended: set[TaskId] = field(default_factory=set)
    finished: set[TaskId] = field(default_factory=set)
    enumerators: dict[int, dict[str, str]] = field(default_factory=dict)
    cancelling: set[int] = field(default_factory=set)
    figures: dict[TaskId, Mapping[str, Any]] = field(default_factory=dict)
    earlier: dict[TaskId, Mapping[str, Any]] = field(default_factory=dict)
    is_over: bool = False

    @property
    def running(self) -> CheckpointCoordinator | None:
        """Its checkpoints while all tasks run; None before and after."""
        return None if self.is_over else self.checkpoints

    @property
    def has_ended(self) -> bool:
        """True once all tasks have handled all rows."""
        return len(self.ended) == len(self.worker_of)

    @property
    def has_finished(self) -> bool:
        """True once the threads of all tasks have ended."""
        return len(self.finished) == len(self.worker_of)

    def note(self, task: TaskId, figures: Mapping[str, Any]) -> None:
        """Take a task's report."""
        before = self.figures.get(task)
        if before is not None and figures["elapsed_ms"] > before["elapsed_ms"]:
            self.earlier[task] = before
        self.figures[task] = figures

    def inputs(self, graph: JobGraph) -> dict[int, list[Any]]:
        """Return for each worker its tasks with their channels, when all workers have made their partitions."""
        partitions: dict[TaskId, list[list[Any]]] = {}
        for message in self.deployed.values():
            host, port, process = message["host"], message["port"], message["process"]
            for stage, index, ids in message["partitions"]:
                partitions[stage, index] = [[host, port, partition, process] for partition in ids]
        inputs: dict[int, list[Any]] = {worker: [] for worker in self.deployed}
        for (number, at), worker in self.worker_of.items():
            channels = [
                [host, port, partition, at, process]
                for sender, edge in graph.inputs_of(number)
                for index in range(sender.parallelism)
                for host, port, partition, process in [partitions[sender.number, index][edge]]
            ]
            inputs[worker].append([number, at, channels])
        return inputs
