"""The tasks that closures carry to the workers, and the identity of a worker's task."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import headgate as hg

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from headgate.batches import BatchFunction
    from headgate.control.place import Place
    from headgate.options import EnvironmentOptions
    from headgate.source import Source
    from headgate.source.watermark import WatermarkStrategy
    from headgate.spark.tasks.control import Control
    from headgate.spark.tasks.user_function import Order


@dataclass(frozen=True, slots=True)
class Task:
    """The common part of producers and consumers.

    Attributes:
        place: where the coordinator is.
        schema: of the batches on the wire.
        num_partitions: subpartitions of each producer.
        options: options of the task's environment, sizes in bytes and durations in seconds.
    """

    place: Place
    schema: pa.Schema
    num_partitions: int
    options: EnvironmentOptions


@dataclass(frozen=True, slots=True)
class ConsumerTask(Task):
    """A consumer.

    Attributes:
        reduce: makes the result from the rows that are read; None where they are the result.
        batch_bytes: pages that wait are put together into batches of up to so many; 0 for none.
        result: schema of what ``reduce`` returns.
    """

    reduce: BatchFunction | None = None
    batch_bytes: int = 0
    result: pa.Schema | None = None
    order: Order | None = None


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """The common part of a source's readers and their enumerator.

    Attributes:
        source: the source.
        name: of the source; read once, where user code may run.
        parallelism: number of readers, in waves if slots are few.
        watermarks: the strategy of the readers, or None.
    """

    source: Source[pa.RecordBatch, Any, Any]
    name: str
    parallelism: int
    watermarks: WatermarkStrategy | None = None


@dataclass(frozen=True, slots=True)
class ProducerTask(Task):
    """A producer of one run.

    Attributes:
        run: its number.
        epoch: of the run.
        map: makes the rows that are sent; None where they are the input.
        by: a list of column names, a selector, a callable, or None for round robin.
        source: the producer is one of its readers and has no other input; None for a DataFrame.
        map_option: the option that declares what ``map`` returns.
        given: schema of the batches that ``map`` gets.
    """

    run: int = 0
    epoch: int = 0
    map: BatchFunction | None = None
    by: Any = None
    source: SourcePlan | None = None
    map_option: str = "schema"
    given: pa.Schema | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """One task attempt, as Spark numbers it."""

    stage: int
    partition: int
    attempt: int

    def fields(self) -> dict[str, int]:
        """Return the fields of a CONSUMER or PRODUCER message."""
        return {"stage": self.stage, "partition": self.partition, "attempt": self.attempt}

    def words(self, role: str) -> str:
        """Return the task in words, with its host."""
        return (
            f"{role} of partition {self.partition}, stage {self.stage}, task {self.attempt}"
            f" on {socket.gethostname()}"
        )


def here() -> Identity:
    """Return the task that this worker runs.

    Raises:
        RuntimeError: this process runs no Spark task.
    """
    from pyspark import TaskContext  # noqa: PLC0415 - pyspark only where Spark is

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("not in a Spark task")
    return Identity(context.stageId(), context.partitionId(), context.taskAttemptId())


def numbers_in(batches: Iterable[pa.RecordBatch]) -> list[int]:
    """Return the numbers that a task stands for: its rows, if its input is nothing else.

    It reads to the end, as Spark reuses a worker only then.
    """
    return [number for batch in batches for number in batch.column(0).to_pylist()]


def environment(task: Task, control: Control, run: int, epoch: int) -> hg.ShuffleEnvironment:
    """Return this task's environment: its pool, its key for the run, its place on the network."""
    options: EnvironmentOptions = {**task.options, "listen": f"{control.host}:0"}
    return hg.ShuffleEnvironment(
        secret=task.place.secret,
        exchange_id=task.place.exchange_id,
        run=run,
        epoch=epoch,
        **options,
    )
