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

    Args:
        batches: the rows, in any order.
        keys: the columns that rows of a group have in common.
        by: the columns to sort by, the keys first.
        memory: bytes of rows that may wait to be sorted.
        least: bytes of rows to yield at a time, unless fewer are left.
    """
    #: Rows of groups that are not yielded yet.
    waiting: list[pa.RecordBatch] = []
    size = 0
    last: pa.RecordBatch | None = None
    for batch in sort_batches(batches, by, memory):
        begins = _begins(batch, last, keys)
        last = batch.slice(batch.num_rows - 1)
        start = 0
        if begins and size + batch.nbytes >= least:
            # A group begins there, so all rows before it are of whole groups.
            start = begins[-1]
            _take(waiting, batch, 0, start)
            if waiting:
                yield _with_offsets(waiting, keys)
            waiting, size = [], 0
        size += _take(waiting, batch, start, batch.num_rows)
    if waiting:
        yield _with_offsets(waiting, keys)


def _take(waiting: list[pa.RecordBatch], batch: pa.RecordBatch, start: int, end: int) -> int:
    """Let a part of the batch wait; return its bytes."""
    if start == end:
        return 0
    part = batch.slice(start, end - start)
    waiting.append(part)
    return int(part.nbytes)


def _with_offsets(rows: list[pa.RecordBatch], keys: Sequence[str]) -> tuple[pa.Table, pa.Array]:
    offsets, end = [0], 0
    last: pa.RecordBatch | None = None
    for batch in rows:
        offsets += [end + place for place in _begins(batch, last, keys)]
        end += batch.num_rows
        last = batch.slice(batch.num_rows - 1)
    table = pa.Table.from_batches(rows).combine_chunks()
    return table, pa.array([*offsets, end], pa.int64())


def _begins(batch: pa.RecordBatch, before: pa.RecordBatch | None, keys: Sequence[str]) -> list[int]:
    """Return the rows whose keys differ from those of the row before them."""
    if before is None:
        return _begins(batch, batch.slice(0, 1), keys)
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
