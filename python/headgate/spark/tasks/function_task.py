"""The body of a task that only reads a source or calls a user function; Spark moves the rows before and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.batches import joined
from headgate.spark.ddl_cast import DdlCast
from headgate.spark.tasks.combining import combined
from headgate.spark.tasks.identity import numbers_in
from headgate.spark.tasks.user_function import Source, apply
from headgate.spark.tasks.zones import in_zone

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    import pyarrow as pa

    from headgate.batches import BatchFunction
    from headgate.spark.tasks.planned_source import PlannedSource


@dataclass(frozen=True, slots=True)
class FunctionTask:
    """A call of ``map`` or ``reduce``, or the rows of a source.

    Attributes:
        name: "map" or "reduce"; "the source" without a function.
        function: the user's function; None where the rows are those of the source.
        input: schema of the batches that it gets.
        schema: of the batches that it returns.
        option: the option that declares the schema.
        batch_bytes: small batches are joined into ones of up to this size before the call; 0 joins
            none.
        source: what the task reads, if its input is only its number; None for a DataFrame.
        combine: merges the rows that are returned; None to return them as they are.
    """

    name: str
    function: BatchFunction | None
    input: pa.Schema
    schema: pa.Schema
    option: str
    batch_bytes: int = 0
    source: PlannedSource | None = None
    combine: BatchFunction | None = None


def run(task: FunctionTask, batches: Iterable[pa.RecordBatch]) -> Generator[pa.RecordBatch]:
    """Yield what the function returns for the batches, cast to the schema."""
    if task.source is not None:
        batches = task.source.records(numbers_in(batches))
    else:
        batches = in_zone(batches, task.input)
    if task.batch_bytes:
        batches = joined(batches, task.batch_bytes)
    source = Source(batches, task.input, lambda _: None)
    rows = DdlCast(task.schema, task.name, task.option).all(apply(task.name, task.function, source))
    yield from rows if task.combine is None else combined(rows, task.combine, task.schema)
