"""Cuts sorted rows into groups of equal keys.

Decision: ADR 0027.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headgate.functions.sorting import sort_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


def groups(
    batches: Iterable[pa.RecordBatch],
    keys: Sequence[str],
    by: Sequence[str],
    memory: int,
    least: int,
) -> Iterator[tuple[pa.Table, pa.Array]]:
    """Yield whole groups of rows with equal keys, sorted, and the offsets of the groups.

    Rows are copied into one chunk, unless they are so many that a copy would matter: of a large group
    there is one copy, in chunks.

    Args:
        batches: the rows, in any order.
        keys: the columns that rows of a group have in common.
        by: the columns to sort by, the keys first.
        memory: bytes of rows that may wait to be sorted.
        least: bytes of rows to yield at a time, unless fewer are left.
    """
    #: Rows of groups that are not yielded yet, their number and bytes, and where their groups begin.
    waiting: list[pa.RecordBatch] = []
    count, size = 0, 0
    starts: list[int] = []
    last: pa.RecordBatch | None = None
    for batch in sort_batches(batches, by, memory):
        begins = _begins(batch, last, keys)
        last = batch.slice(batch.num_rows - 1)
        if begins and size + batch.nbytes >= least:
            # A group begins there, so all rows before it are of whole groups.
            place = begins.pop()
            waiting.append(batch.slice(0, place))
            starts += [count + begin for begin in begins]
            count += place
            if count:
                yield _joined(waiting, starts, count, least)
            batch = batch.slice(place)  # noqa: PLW2901 - what is left of it
            waiting, starts, begins = [], [], [0]
            count, size = 0, 0
        waiting.append(batch)
        starts += [count + begin for begin in begins]
        count += batch.num_rows
        size += batch.nbytes
    if count:
        yield _joined(waiting, starts, count, least)


def _joined(
    waiting: list[pa.RecordBatch], starts: list[int], count: int, least: int
) -> tuple[pa.Table, pa.Array]:
    """Return the waiting rows and the offsets of their groups; nothing waits afterwards."""
    table = pa.Table.from_batches(waiting)
    waiting.clear()
    if table.nbytes <= 2 * least:
        table = table.combine_chunks()
    return table, pa.array([*starts, count], pa.int64())


def _begins(batch: pa.RecordBatch, before: pa.RecordBatch | None, keys: Sequence[str]) -> list[int]:
    """Return the rows whose keys differ from those of the row before them, if there is one."""
    if before is None:
        return [0, *_begins(batch, batch.slice(0, 1), keys)]
    differs: pa.Array | None = None
    for name in keys:
        column = batch.column(name)
        earlier = pa.concat_arrays([before.column(name), column.slice(0, len(column) - 1)])
        other = _differs(earlier, column)
        differs = other if differs is None else pc.or_(differs, other)
    rows: list[int] = pc.indices_nonzero(differs).to_pylist()
    return rows


def _differs(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return where two columns differ; nulls are equal, and so are NaN."""
    differs = pc.fill_null(pc.not_equal(left, right), fill_value=True)
    same = pc.and_(pc.is_null(left), pc.is_null(right))
    if pa.types.is_floating(left.type):
        nan = pc.and_(pc.is_nan(left), pc.is_nan(right))
        same = pc.or_(same, pc.fill_null(nan, fill_value=False))
    return pc.and_not(differs, same)
