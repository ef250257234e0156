"""What travels to the workers in the closures, and who a worker's task is."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import headgate as hg

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.environment import SameHostLink
    from headgate.partition import Compression
    from headgate.source import Source
    from headgate.source.watermark import WatermarkStrategy
    from headgate.spark.tasks.control import Control, Place
    from headgate.spark.tasks.user_function import BatchFunction


@dataclass(frozen=True, slots=True)
class Task:
    """What producers and consumers of an exchange have in common.

    Attributes:
        place: where the coordinator is.
        schema: of the batches on the wire.
        num_partitions: how many subpartitions each producer has.
        memory: bytes of a process's pool.
        segment_size: bytes of a segment.
        max_record_size: bytes of the largest single row.
        buffers: the options of an environment that share out its pool and keep its buffers small,
            by name.
        buffer_timeout: seconds that rows may wait for their page to fill; 0 not at all, -1 for ever.
        spill_threshold: larger rows than this are put together on disk, in bytes.
        compression: how full pages are compressed on their way to another process.
        same_host_link: whether processes of one host share memory.
        temp_directories: where; None for the local directories of Spark where the task runs.
    """

    place: Place
    schema: pa.Schema
    num_partitions: int
    memory: int
    segment_size: int
    max_record_size: int
    buffers: Mapping[str, Any]
    buffer_timeout: float
    spill_threshold: int
    compression: Compression
    same_host_link: SameHostLink
    temp_directories: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class ConsumerTask(Task):
    """A consumer: ``reduce`` makes the result from what is read.

    Pages that wait are put together into batches of up to ``batch_bytes``; 0 for none.
    """

    reduce: BatchFunction | None = None
    batch_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """What the readers of a source and their enumerator have in common.

    Attributes:
        source: what is read.
        name: the source's; asked for once, where user code may run.
        parallelism: how many readers there will be, in waves where slots are few.
        watermarks: the strategy of the readers, or None.
    """

    source: Source[pa.RecordBatch, Any, Any]
    name: str
    parallelism: int
    watermarks: WatermarkStrategy | None = None


@dataclass(frozen=True, slots=True)
class ProducerTask(Task):
    """A producer of one run: ``map`` makes what is sent, ``by`` decides where to.

    ``by`` is a list of column names, a selector, a callable, or None for round robin. With a
    ``source`` the producer is one of its readers, and has no other input.
    """

    run: int = 0
    epoch: int = 0
    map: BatchFunction | None = None
    by: Any = None
    source: SourcePlan | None = None


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


def environment(task: Task, control: Control, run: int, epoch: int) -> hg.ShuffleEnvironment:
    """Return this task's environment: its pool, its key for the run, its place on the network."""
    return hg.ShuffleEnvironment(
        memory=task.memory,
        segment_size=task.segment_size,
        max_record_size=task.max_record_size,
        **task.buffers,
        buffer_timeout=task.buffer_timeout,
        spill_threshold=task.spill_threshold,
        compression=task.compression,
        same_host_link=task.same_host_link,
        temp_directories=task.temp_directories,
        listen=f"{control.host}:0",
        secret=task.place.secret,
        exchange_id=task.place.exchange_id,
        run=run,
        epoch=epoch,
    )
