"""What a task of a kept exchange tells the driver once it has ended, by Spark's accumulators.

Spark brings an accumulator's updates to the driver with the result of each task that succeeded.
"""

from __future__ import annotations

import socket
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from headgate._directories import local_directories
from headgate._process import host_id, peak_resident_bytes
from headgate.observe.edges import folded
from headgate.observe.record import Task
from headgate.spark.tasks.identity import task_context
from headgate.spark.tasks.memory import MemoryOfTask, memory_of_task

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate._group_size import GroupSize
    from headgate.spark.tasks.start_host import HostAddress

Role = Literal["map", "reduce"]


@dataclass(frozen=True, slots=True)
class TaskReport:
    """A task that has succeeded.

    Attributes:
        exchange: name of the exchange and the input; of the first one for a consumer.
        partitions: partitions of its result.
        record: the task, as the record of the run has it; its bytes are those of pages, or of a consumer's batches in memory.
        execution: id of Spark's SQL execution; None where an RDD's action ran the task.
        stage: id of Spark's stage.
        attempt: id of Spark's task attempt, unique in the application.
        failures: attempts at the same task that failed before.
        host: the host, as long as it runs.
        memory: what the kernel counts of the memory of its process; None if the task has no beginning that was noted.
        directories: Spark's local directories on this executor.
        pages: buffers that were kept; 0 for a consumer.
        file_bytes: bytes of the file that a producer left; 0 if its pages travel with its rows.
        splits: splits of a source that a producer has read.
        merged: rows that combine got in a producer, of which it made those of the record.
        follows: True for a producer whose rows the task of another exchange made in the same process.
        server: the host that serves what a producer left; None if all executors are on one host.
        edges: bytes for the consumers, as :func:`headgate.observe.edges.folded` returns them.
        edges_each: consumers that share a number in ``edges``.
        calls: calls of reduce of a consumer that joins subpartitions by their sizes.
        subpartitions: those with rows that these calls got.
        largest_group: the largest group that a consumer's ``reduce`` got; None if it has no groups.
        changed: rows that the last round of an iteration changed, if it knows.
    """

    exchange: str
    partitions: int
    record: Task
    execution: int | None
    stage: int
    attempt: int
    failures: int
    host: str
    directories: tuple[str, ...]
    memory: MemoryOfTask | None = None
    pages: int = 0
    file_bytes: int = 0
    splits: int = 0
    merged: int = 0
    follows: bool = False
    server: HostAddress | None = None
    edges: Sequence[int] = ()
    edges_each: int = 1
    calls: int = 0
    subpartitions: int = 0
    largest_group: GroupSize | None = None
    changed: int = 0


def name_of(run: str, number: int) -> str:
    """Return the name of an input of an exchange, for its files and its registration.

    Args:
        run: name of the exchange, 30 digits in hex.
        number: of the input.
    """
    return f"{run}{number:02x}"


def run_of(exchange: str) -> str:
    """Return the name of the exchange of an input."""
    return exchange[:-2]


def report(
    exchange: str,
    partitions: int,
    role: Role,
    figures: Mapping[str, Any],
    *,
    sizes: Mapping[int, int] | None = None,
    **more: Any,
) -> TaskReport:
    """Return the report of the task that this worker runs.

    Args:
        exchange: as in :class:`TaskReport`.
        partitions: as in :class:`TaskReport`.
        role: of the task.
        figures: rows, bytes and times of the task, as :class:`headgate.observe.record.Task` names them.
        sizes: bytes for each consumer that a producer has rows for.
        **more: attributes of :class:`TaskReport` that not every task has.
    """
    context = task_context()
    execution = context.getLocalProperty("spark.sql.execution.id")
    each, edges = folded([sizes.get(n, 0) for n in range(partitions)] if sizes else [])
    attempt = context.taskAttemptId()
    about: dict[str, Any] = {"host": socket.gethostname(), "attempt": attempt}
    about["peak_resident_bytes"] = peak_resident_bytes()
    return TaskReport(
        exchange=exchange,
        partitions=partitions,
        record=Task(role, context.partitionId(), "done", **figures, **about),
        execution=int(execution) if execution else None,
        stage=context.stageId(),
        attempt=attempt,
        failures=context.attemptNumber(),
        host=host_id(),
        memory=memory_of_task(),
        directories=local_directories(),
        edges=array("q", edges),
        edges_each=each,
        **more,
    )
