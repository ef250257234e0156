"""The body of a task that only calls a user function; Spark moves the rows before and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.batches import joined
from headgate.spark.ddl_cast import DdlCast
from headgate.spark.tasks.user_function import Source, apply

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from headgate.batches import BatchFunction


@dataclass(frozen=True, slots=True)
class FunctionTask:
    """A call of ``map`` or ``reduce``.

    Attributes:
        name: "map" or "reduce".
        function: the user's function.
        input: schema of the batches that it gets.
        schema: of the batches that it returns.
        option: the option that declares the schema.
        batch_bytes: small batches are joined into ones of up to this size before the call; 0 joins
            none.
    """

    name: str
    function: BatchFunction
    input: pa.Schema
    schema: pa.Schema
    option: str
    batch_bytes: int = 0


def run(task: FunctionTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield what the function returns for the batches, cast to the schema."""
    if task.batch_bytes:
        batches = joined(batches, task.batch_bytes)
    source = Source(batches, task.input, lambda _: None)
    cast = DdlCast(task.schema, task.name, task.option)
    yield from cast.all(apply(task.name, task.function, source))
    if source.error is not None:
        raise source.error  # the function caught it and went on, so rows are missing
