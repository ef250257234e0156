"""The identity of a worker's task, and the numbers that it stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from pyspark import TaskContext


@dataclass(frozen=True, slots=True)
class Identity:
    """One task attempt, as Spark numbers it."""

    stage: int
    partition: int
    attempt: int


def task_context() -> TaskContext:
    """Return Spark's context of the task that this worker runs.

    Raises:
        RuntimeError: this process runs no Spark task.
    """
    from pyspark import TaskContext  # noqa: PLC0415 - pyspark only where Spark is

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("not in a Spark task")
    return context


def this_task() -> Identity:
    """Return the task that this worker runs."""
    context = task_context()
    return Identity(context.stageId(), context.partitionId(), context.taskAttemptId())


def numbers_in(batches: Iterable[pa.RecordBatch]) -> list[int]:
    """Return the numbers that a task stands for: its rows, if its input is nothing else.

    It reads to the end, as Spark reuses a worker only then.
    """
    return [number for batch in batches for number in batch.column(0).to_pylist()]
