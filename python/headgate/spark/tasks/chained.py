"""The body of two tasks in one: the first returns rows of an exchange, the second takes them as its input.

Without it Spark takes the rows from the first task's worker into the JVM, and from there to a second worker.

Decision: ADR 0048.
"""

from __future__ import annotations

import importlib
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate.schema_cast import ExactCast
from headgate.spark.tasks.entry import unpickled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class RowsBetween:
    """What happens to rows between two tasks: a filter, and a choice of columns under new names.

    Attributes:
        filter: keeps the rows for which it is true; None for all.
        columns: indexes of the columns that are left, in their order.
        schema: of the rows that the second task gets.
    """

    filter: pc.Expression | None
    columns: tuple[int, ...]
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class ChainedTask:
    """Two tasks.

    Attributes:
        first_body: the module of the first one.
        first: pickled when its exchange was planned, so that it is the same task here and elsewhere.
        between: what happens to its rows.
        batch_rows: most rows of a batch that the second task gets; None for batches as they come.
        copies: True if the second task may keep batches whose memory a function of the first may change.
        second_body: the module of the second one.
        second: what its ``run`` gets.
    """

    first_body: str
    first: bytes
    between: RowsBetween
    batch_rows: int | None
    copies: bool
    second_body: str
    second: Any


def run(task: ChainedTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield what the second task returns for the rows of the first."""
    first, second = map(importlib.import_module, (task.first_body, task.second_body))
    with closing(first.run(unpickled(task.first), batches)) as rows:
        yield from second.run(task.second, _between(task, rows))


def _between(task: ChainedTask, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa  # noqa: PLC0415 - only workers need it

    between = task.between
    cast, names = ExactCast(between.schema, "reduce"), between.schema.names
    for batch in rows:
        kept = batch if between.filter is None else _filtered(batch, between.filter)
        columns = [kept.column(index) for index in between.columns]
        chosen = cast(pa.RecordBatch.from_arrays(columns, names=names))
        for part in _parts(chosen, task.batch_rows):
            yield _copy(part) if task.copies else part


def _filtered(batch: pa.RecordBatch, condition: pc.Expression) -> pa.RecordBatch:
    """Return the rows of a batch for which a condition is true, in their order."""
    import pyarrow as pa  # noqa: PLC0415 - only workers need it

    from headgate._expressions import evaluated  # noqa: PLC0415 - imports pyarrow

    mask = evaluated([condition], pa.Table.from_batches([batch])).column(0)
    return batch.filter(mask.combine_chunks())


def _parts(batch: pa.RecordBatch, most: int | None) -> Iterator[pa.RecordBatch]:
    if most is None or batch.num_rows <= most:
        yield batch
        return
    for start in range(0, batch.num_rows, most):
        yield batch.slice(start, most)


def _copy(batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415 - only workers need it

    # Arrow copies the memory when it joins batches, an empty one included.
    return pa.concat_batches([batch, batch.slice(0, 0)])
