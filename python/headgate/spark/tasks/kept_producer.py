"""The body of a producer of a kept exchange: map, keep the partition, return where it is."""

from __future__ import annotations

import shutil
import zlib
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from headgate import errors
from headgate._directories import local_directories
from headgate.kept import write_indexes
from headgate.schema_cast import same_on_the_wire
from headgate.selectors import GlobalSelector
from headgate.spark.ddl_cast import DdlCast
from headgate.spark.tasks.combining import combined
from headgate.spark.tasks.identity import numbers_in, this_task
from headgate.spark.tasks.kept_files import folder_for, path_in
from headgate.spark.tasks.kept_lifetime import sweep
from headgate.spark.tasks.kept_output import KeptOutput, KeptPartition
from headgate.spark.tasks.notice import tell_start
from headgate.spark.tasks.report import report, run_of
from headgate.spark.tasks.selector import selector_of
from headgate.spark.tasks.start_host import ensure
from headgate.spark.tasks.timing import EMIT, FUNCTION, Clock
from headgate.spark.tasks.user_function import Source, UserFunctionFailed, apply
from headgate.spark.tasks.zones import in_zone
from headgate.writer import WriterStats

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark import Accumulator

    from headgate.batches import BatchFunction
    from headgate.options import EnvironmentOptions
    from headgate.partition import KeptSubpartition
    from headgate.spark.tasks.identity import Identity
    from headgate.spark.tasks.notice import Listener
    from headgate.spark.tasks.planned_source import PlannedSource
    from headgate.spark.tasks.start_host import HostPlan

#: Columns of a row, one per subpartition that has rows: the partition, or a key that Spark's hash
#: places there; the number of the input, the producer, the subpartition and its rows, or null if another attempt
#: may have another number; a digest of these rows in their order, or null; the file, null if the pages are in the index; the index, null if
#: the consumer finds it by the producer.
ROWS: Final = "key int, input int, producer int, subpartition int, rows long, digest long, file string, pages binary"


@dataclass(frozen=True, slots=True)
class KeptProducerTask:
    """A producer of a kept exchange.

    Attributes:
        exchange: name of the exchange and this input, a part of the names of its files.
        input: number of the input.
        input_schema: schema of the batches that ``map`` gets.
        schema: of the batches that are kept.
        num_partitions: partitions of the result.
        subpartitions_each: subpartitions of each of them.
        options: options of the task's environment.
        map: makes the rows; None where they are the input.
        combine: merges rows before they are kept; None to keep them as they are.
        source: what the task reads, if its input is only its number; None for a DataFrame.
        follows: True if the task of another exchange makes its input, in the same process.
        by: a list of column names, a selector, a callable or None.
        map_option: the option that declares what ``map`` returns.
        keys: for each partition a key that Spark's hash places there; None if Spark takes the number.
        is_inline: True if no consumer could open a file.
        is_stable: True if all attempts at a task must return the same rows, since executors may be
            lost: Spark compares them, and a row must not say then where pages are.
        has_digests: True if, besides, other rows of the same number must be noticed.
        reports: takes a list of :class:`TaskReport` to the driver; None where Spark cannot.
        listener: hears of tasks that start, for the line of progress; None if there is none.
        hosts: starts the host that serves the output to other hosts; None if none has to.
    """

    exchange: str
    input: int
    input_schema: pa.Schema
    schema: pa.Schema
    num_partitions: int
    subpartitions_each: int
    options: EnvironmentOptions
    map: BatchFunction | None
    combine: BatchFunction | None
    source: PlannedSource | None
    follows: bool
    by: Any
    map_option: str
    keys: tuple[int, ...] | None
    is_inline: bool
    is_stable: bool
    has_digests: bool
    reports: Accumulator[Any] | None
    listener: Listener | None
    hosts: HostPlan | None


def run(task: KeptProducerTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Keep the rows of a partition; yield one row for each subpartition that has some."""
    if task.listener is not None:
        tell_start(task.listener, run_of(task.exchange), task.num_partitions, "map")
    me, clock, splits, merged = this_task(), Clock(), 0, _RowCount()
    sweep(local_directories())
    read: AbstractContextManager[Iterable[pa.RecordBatch]] = nullcontext(batches)
    if task.source is not None:
        numbers = numbers_in(batches)
        splits = task.source.splits_of(numbers)
        read = closing(task.source.records(numbers))
    elif not task.follows:
        read = nullcontext(in_zone(batches, task.input_schema))
    with read as rows:
        partition = keep(task, me, _mapped(task, rows, clock, merged), clock, splits, merged=merged)
    if partition.subpartitions:
        yield rows_of(task, me.partition, partition)


class _RowCount:
    """Counts the rows that pass."""

    def __init__(self) -> None:
        self.rows = 0

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.rows += batch.num_rows
            yield batch


def _mapped(
    task: KeptProducerTask, batches: Iterable[pa.RecordBatch], clock: Clock, merged: _RowCount
) -> Iterator[pa.RecordBatch]:
    """Return the rows to keep; count those that combine gets."""
    source = Source(batches, task.input_schema, lambda _: None, clock)
    rows: Iterator[pa.RecordBatch] = apply("map", task.map, source)
    if task.map is not None or task.source is not None:
        function = "the source" if task.map is None else "map"
        rows = DdlCast(task.schema, function, task.map_option, same_on_the_wire).all(rows)
    return rows if task.combine is None else combined(merged.of(rows), task.combine, task.schema)


def keep(
    task: KeptProducerTask,
    me: Identity,
    batches: Iterable[pa.RecordBatch],
    clock: Clock,
    splits: int = 0,
    *,
    ahead: int = 0,
    merged: _RowCount | None = None,
) -> KeptPartition:
    """Keep batches as the output of this task, and tell the driver.

    Args:
        task: how they are kept.
        me: this task.
        batches: of the task's schema.
        clock: measures the time.
        splits: of a source that were read.
        ahead: seconds that the task may still take; see :func:`path_in`.
        merged: has counted the rows that combine got, once all are kept; None without combine.
    """
    folder = folder_for(me.attempt)
    options: EnvironmentOptions = {**task.options, "temp_directories": [str(folder)]}
    n = task.num_partitions * task.subpartitions_each
    n = 1 if isinstance(task.by, GlobalSelector) else n
    seed = int(task.exchange[:16], 16)
    selector = selector_of(task.by, me.partition, n, seed)
    with KeptOutput(task.schema, selector, n, options, clock, is_inline=task.is_inline) as output:
        for batch in batches:
            clock.enter(EMIT)
            try:
                output.emit(batch)
            except errors.SelectorError as error:
                if isinstance(error.__cause__, UserFunctionFailed):
                    raise error.__cause__ from error.__cause__.__cause__
                raise
            clock.enter(FUNCTION)
        clock.enter(EMIT)
        path = path_in(folder, task.exchange, me.partition, me.attempt, ahead)
        partition = output.keep(path)
        _settle(task, path, partition, clock, splits, 0 if merged is None else merged.rows)
    return partition


def keep_copy(
    task: KeptProducerTask, me: Identity, source: KeptSubpartition, rows: int, clock: Clock
) -> KeptPartition:
    """Keep a copy of a subpartition that is on this host, without reading its rows.

    Raises:
        SpillError: the file system refuses the file.
    """
    path = path_in(folder_for(me.attempt), task.exchange, me.partition, me.attempt)
    if source.file is not None:
        try:
            # A second name of the same file would share the time by which a sweep knows a committed one.
            shutil.copyfile(source.file, path)
        except OSError as error:
            raise errors.SpillError(f"{path} cannot be written: {error}") from error
        source = replace(source, file=str(path))
    partition = KeptPartition([source], [rows], WriterStats(rows, source.size, 0), 0)
    _settle(task, path, partition, clock, 0, 0)
    return partition


def _settle(
    task: KeptProducerTask,
    path: Path,
    partition: KeptPartition,
    clock: Clock,
    splits: int,
    merged: int,
) -> None:
    """Let consumers find what is kept, and tell the driver."""
    server = None
    if partition.subpartitions:
        if task.is_stable:
            write_indexes(path, partition.subpartitions)
        if task.hosts is not None:
            server = ensure(task.hosts, local_directories())
    if task.reports is not None:
        task_report = report(
            task.exchange,
            task.num_partitions,
            "map",
            {
                "rows": partition.totals.rows,
                "bytes": partition.totals.bytes,
                "peak_bytes": partition.peak_bytes,
                "disk_ms": partition.disk_ms,
                **clock.fields(),
            },
            pages=partition.totals.buffers,
            file_bytes=sum(part.size for part in partition.subpartitions if part.file is not None),
            splits=splits,
            merged=merged,
            follows=task.follows,
            server=server,
            sizes=_sizes(task, partition),
        )
        task.reports.add([task_report])


def _sizes(task: KeptProducerTask, partition: KeptPartition) -> dict[int, int]:
    """Return the bytes for each consumer that there are rows for."""
    sizes: dict[int, int] = {}
    for part in partition.subpartitions:
        consumer = part.subpartition // task.subpartitions_each
        sizes[consumer] = sizes.get(consumer, 0) + part.size
    return sizes


def rows_of(task: KeptProducerTask, producer: int, output: KeptPartition) -> pa.RecordBatch:
    """Return a row for each subpartition of the output, as :data:`ROWS` says."""
    import pyarrow as pa  # noqa: PLC0415 - only workers need it

    parts = output.subpartitions
    numbers = [part.subpartition for part in parts]
    partitions = [number // task.subpartitions_each for number in numbers]
    keys = partitions if task.keys is None else [task.keys[number] for number in partitions]
    # An index has a checksum of each page, and batches that are the same give the same pages.
    digests = [zlib.crc32(part.index) if task.has_digests else None for part in parts]
    # What combine leaves may depend on the order in which rows came, which may be another one in the next attempt.
    is_counted = task.combine is None or task.has_digests
    locations = [(None, None) if task.is_stable else (part.file, part.index) for part in parts]
    columns = {
        "key": pa.array(keys, pa.int32()),
        "input": pa.array([task.input] * len(parts), pa.int32()),
        "producer": pa.array([producer] * len(parts), pa.int32()),
        "subpartition": pa.array(numbers, pa.int32()),
        "rows": pa.array(output.rows if is_counted else [None] * len(parts), pa.int64()),
        "digest": pa.array(digests, pa.int64()),
        "file": pa.array([file for file, _ in locations], pa.string()),
        "pages": pa.array([index for _, index in locations], pa.binary()),
    }
    return pa.RecordBatch.from_pydict(columns)
