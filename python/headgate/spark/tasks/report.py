"""What a task of a kept exchange tells the driver once it has ended, by Spark's accumulators.

Spark brings an accumulator's updates to the driver with the result of each task that succeeded.
"""

from __future__ import annotations

import socket
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from headgate._directories import local_directories
from headgate.observe.edges import folded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.spark.tasks.start_host import HostAddress

Role = Literal["map", "reduce"]

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class TaskReport:
    """A task that has succeeded.

    Attributes:
        exchange: name of the exchange and the input; of the first one for a consumer.
        partitions: partitions of its result.
        role: "map" for a producer, "reduce" for a consumer.
        execution: id of Spark's SQL execution; None where an RDD's action ran the task.
        stage: id of Spark's stage.
        task: number of its Spark partition.
        attempt: id of the attempt, unique in the application.
        failures: attempts at the same task that failed before.
        rows: rows that were kept or read.
        bytes: bytes of their pages, or of their batches in memory for a consumer.
        pages: buffers that were kept; 0 for a consumer.
        file_bytes: bytes of the file that a producer left; 0 if its pages travel with its rows.
        splits: splits of a source that a producer has read.
        peak_bytes: peak usage of the pool.
        times: ms by state of the task's thread, as :meth:`Clock.fields` names them.
        disk_ms: ms of these in which the task waited for its files.
        link_ms: ms of these in which a consumer waited for rows from other hosts.
        host: the host, as long as it runs.
        directories: Spark's local directories on this executor.
        server: the host that serves what a producer left; None if all executors are on one host.
        hostname: name of the host.
        edges: bytes for the consumers, as :func:`headgate.observe.edges.folded` returns them.
        edges_each: consumers that share a number in ``edges``.
        changed: rows that the last round of an iteration changed, if it knows.
    """

    exchange: str
    partitions: int
    role: Role
    execution: int | None
    stage: int
    task: int
    attempt: int
    failures: int
    rows: int
    bytes: int
    pages: int
    file_bytes: int
    splits: int
    peak_bytes: int
    times: dict[str, int]
    host: str
    directories: tuple[str, ...]
    server: HostAddress | None
    disk_ms: int = 0
    link_ms: int = 0
    hostname: str = ""
    edges: Sequence[int] = ()
    edges_each: int = 1
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
    *,
    rows: int,
    bytes: int,  # noqa: A002 - as in the record of a task
    peak_bytes: int,
    times: dict[str, int],
    disk_ms: int = 0,
    link_ms: int = 0,
    pages: int = 0,
    file_bytes: int = 0,
    splits: int = 0,
    server: HostAddress | None = None,
    sizes: Mapping[int, int] | None = None,
) -> TaskReport:
    """Return the report of the task that this worker runs; for the arguments see :class:`TaskReport`.

    ``sizes`` has the bytes for each consumer that a producer has rows for.
    """
    from pyspark import TaskContext  # noqa: PLC0415 - pyspark only where Spark is

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("not in a Spark task")
    execution = context.getLocalProperty("spark.sql.execution.id")
    each, edges = folded([sizes.get(n, 0) for n in range(partitions)] if sizes else [])
    return TaskReport(
        exchange=exchange,
        partitions=partitions,
        role=role,
        execution=int(execution) if execution else None,
        stage=context.stageId(),
        task=context.partitionId(),
        attempt=context.taskAttemptId(),
        failures=context.attemptNumber(),
        rows=rows,
        bytes=bytes,
        pages=pages,
        file_bytes=file_bytes,
        splits=splits,
        peak_bytes=peak_bytes,
        times=times,
        disk_ms=disk_ms,
        link_ms=link_ms,
        host=host(),
        directories=local_directories(),
        server=server,
        hostname=socket.gethostname(),
        edges=array("q", edges),
        edges_each=each,
    )


def host() -> str:
    """Return a name of this host that no other one has, and that a restart changes; empty if unknown."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
