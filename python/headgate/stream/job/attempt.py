"""One run of all tasks of a streaming job, as the coordinator knows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headgate.stream.job.bottleneck import Shares, shares
from headgate.stream.job.metadata import restored_tasks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.stream.api.graph import JobGraph
    from headgate.stream.job.checkpoints import CheckpointCoordinator, TaskId
    from headgate.stream.job.messages import StreamMessage
    from headgate.stream.job.sources import JobSources
    from headgate.stream.job.store import CheckpointStore, Completed


@dataclass(slots=True)
class Attempt:
    """One run of all tasks.

    Attributes:
        number: counts the attempts of this driver.
        name: unique among all drivers of the checkpoint folder.
        restored: what it continues from.
        placed: the worker of each task.
        sources: the enumerators.
        checkpoints: its checkpoints; None until all tasks are connected.
        deployed: what each worker answered to DEPLOY.
        ended: tasks that have handled all rows.
        finished: tasks that have ended for good.
        enumerators: state of each source's enumerator, by checkpoint and uid.
        cancelling: workers that still have to cancel their tasks.
        figures: the last report of each task.
        shares: what each task did between its last two reports.
        last_savepoint: folder of the savepoint that the last checkpoint is.
        is_last_asked: True once the last checkpoint was asked for.
        is_over: True once its tasks are cancelled or finished.
    """

    number: int
    name: str
    restored: Completed | None
    placed: dict[TaskId, int]
    sources: JobSources
    checkpoints: CheckpointCoordinator | None = None
    deployed: dict[int, StreamMessage] = field(default_factory=dict)
    ended: set[TaskId] = field(default_factory=set)
    finished: set[TaskId] = field(default_factory=set)
    enumerators: dict[int, dict[str, str]] = field(default_factory=dict)
    cancelling: set[int] = field(default_factory=set)
    figures: dict[TaskId, Mapping[str, Any]] = field(default_factory=dict)
    shares: dict[TaskId, Shares] = field(default_factory=dict)
    last_savepoint: str | None = None
    is_last_asked: bool = False
    is_over: bool = False

    def note(self, task: TaskId, figures: Mapping[str, Any]) -> None:
        """Take a task's report."""
        before = self.figures.get(task)
        self.figures[task] = figures
        if before is not None and (found := shares(before, figures)) is not None:
            self.shares[task] = found

    def deployments(
        self, graph: JobGraph, store: CheckpointStore | None, retained: int
    ) -> dict[int, list[Any]]:
        """Return what the DEPLOY message says of each worker's tasks.

        Args:
            graph: the job.
            store: keeps the checkpoints.
            retained: complete checkpoints to keep.
        """
        tasks: dict[int, list[Any]] = {worker: [] for worker in self.placed.values()}
        for stage in graph.stages:
            fields = None if self.restored is None else self.restored.fields
            base = "" if self.restored is None else self.restored.base
            for at, own in enumerate(restored_tasks(graph, stage, fields, base)):
                folders = {}
                if store is not None:
                    for node in stage.operators:
                        folder = store.task_folder(self.name, stage.number, at, node.uid)
                        folders[node.uid] = f"{store.uri}/{folder}"
                own |= {
                    "task": [stage.number, at],
                    "attempt": self.name,
                    "folders": folders,
                    "retained": retained,
                }
                tasks[self.placed[stage.number, at]].append(own)
        return tasks

    def inputs(self, graph: JobGraph) -> dict[int, list[Any]]:
        """Return what the CONNECT message says of each worker's tasks: where their channels are."""
        partitions: dict[TaskId, list[list[Any]]] = {}
        for message in self.deployed.values():
            where = message["host"], message["port"], message["process"]
            for stage, index, found in message["partitions"]:
                partitions[stage, index] = [[where[0], where[1], one, where[2]] for one in found]
        inputs: dict[int, list[Any]] = {worker: [] for worker in self.placed.values()}
        for (number, at), worker in self.placed.items():
            channels = [
                [host, port, partition, at, process]
                for sender, edge in graph.inputs_of(number)
                for index in range(sender.parallelism)
                for host, port, partition, process in [partitions[sender.number, index][edge]]
            ]
            inputs[worker].append([number, at, channels])
        return inputs
