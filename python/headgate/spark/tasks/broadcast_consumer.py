"""The body of a task that joins the rows of its partition with inputs that are sent whole."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

from headgate.schema_cast import same_on_the_wire
from headgate.spark.ddl_cast import DdlCast
from headgate.spark.tasks.identity import numbers_in
from headgate.spark.tasks.kept_consumer import Counts
from headgate.spark.tasks.kept_reader import KeptReader
from headgate.spark.tasks.notice import tell_start
from headgate.spark.tasks.report import run_of
from headgate.spark.tasks.timing import yielded
from headgate.spark.tasks.user_function import Source, apply
from headgate.spark.tasks.zones import in_zone

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from headgate.batches import BatchFunction
    from headgate.spark.tasks.kept_locations import Row
    from headgate.spark.tasks.kept_producer import KeptProducerTask
    from headgate.spark.tasks.kept_reader import KeptInput, KeptReading

#: Name of the last column of a task's rows: in the first one the rows of the producers of small inputs, with their pages.
PAGES: Final = "__headgate_pages"


@dataclass(frozen=True, slots=True)
class BroadcastConsumerTask:
    """A task that reads its own partition of one input, and all rows of the others.

    Attributes:
        stays: number of the input of which the task has a partition.
        large: how the rows of that input are made: its source, ``map`` and schemas.
        inputs: all inputs; of that one the order counts.
        reading: how the others are read.
        reduce: makes the result from an iterator for each input.
        result: schema of the result.
    """

    stays: int
    large: KeptProducerTask
    inputs: tuple[KeptInput, ...]
    reading: KeptReading
    reduce: BatchFunction | None
    result: pa.Schema


def run(task: BroadcastConsumerTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield what reduce returns for the rows of a partition; without rows it is not called."""
    large = task.large
    if large.listener is not None:
        tell_start(large.listener, run_of(large.exchange), large.num_partitions, "reduce")
    counts = Counts()
    rows = (batch for batch in batches if batch.num_rows)
    first = next(rows, None)
    if first is not None:
        pages: list[Row] = first.column(first.num_columns - 1)[0].as_py()
        yield from _reduced(task, counts, pages, chain([first], rows))
    if large.reports is not None:
        large.reports.add([counts.report(large.exchange, large.num_partitions)])


def _reduced(
    task: BroadcastConsumerTask, counts: Counts, pages: list[Row], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    with KeptReader(task.reading) as reader:
        sources = []
        for number, input_ in enumerate(task.inputs):
            if number == task.stays:
                rows = _rows_that_stay(task.large, counts, batches)
            else:
                mine = [row for row in pages if row["input"] == number]
                rows = reader.read(input_, [mine] if mine else [])
            schema, order = input_.schema, input_.order
            sources.append(Source(rows, schema, counts.add, counts.clock, order))
        result = DdlCast(task.result, "reduce").all(apply("reduce", task.reduce, *sources))
        yield from yielded(result, counts.clock)
        counts.end(reader)


def _rows_that_stay(
    task: KeptProducerTask, counts: Counts, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the task's own partition, as ``map`` makes them."""
    rows = (batch.select(range(batch.num_columns - 1)) for batch in batches)
    read: AbstractContextManager[Iterable[pa.RecordBatch]]
    if task.source is None:
        read = nullcontext(in_zone(rows, task.input_schema))
    else:
        read = closing(task.source.records(numbers_in(rows)))
    with read as records:
        if task.map is None and task.source is None:
            yield from records
            return
        source = Source(records, task.input_schema, lambda _: None, counts.clock)
        mapped = apply("map", task.map, source)
        function = "the source" if task.map is None else "map"
        cast = DdlCast(task.schema, function, task.map_option, same_on_the_wire)
        yield from cast.all(mapped)
