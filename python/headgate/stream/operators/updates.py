"""Rows of an updating result: those that are taken away, and those that come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate._changes import CHANGES, DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, changes_of

if TYPE_CHECKING:
    from headgate.stream.state.table import Mask

_CODES: Final = {name: at for at, name in enumerate(CHANGES)}


def change_rows(
    schema: pa.Schema,
    gone: Sequence[pa.Array],
    is_before: Mask,
    come: Sequence[pa.Array],
    is_after: Mask,
) -> pa.RecordBatch:
    """Return rows of changes.

    All rows that are taken away come first. So whatever the columns are by which a row is known, one that comes is not
    taken away again by a row behind it.

    Args:
        schema: of the result; its last column is that of the changes.
        gone: columns of the rows that are taken away.
        is_before: True for those in whose place another one comes.
        come: columns of the rows that come.
        is_after: True for those in whose place another one was.
    """
    codes = [
        np.where(is_before, _CODES[UPDATE_BEFORE], _CODES[DELETE]),
        np.where(is_after, _CODES[UPDATE_AFTER], _CODES[INSERT]),
    ]
    columns = [pa.concat_arrays(pair) for pair in zip(gone, come, strict=True)]
    columns.append(changes_of(pa.array(np.concatenate(codes))))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def update_rows(
    schema: pa.Schema,
    before: Sequence[pa.Array],
    after: Sequence[pa.Array],
    had: Mask,
    has: Mask,
    *,
    with_before: bool,
) -> pa.RecordBatch | None:
    """Return the changes that lead from some rows to others, position by position; None if there are none.

    Args:
        schema: of the result; its last column is that of the changes.
        before: columns of the rows before.
        after: columns of the rows after.
        had: True for positions with a row before.
        has: True for positions with a row after.
        with_before: False for no row before an update. Then rows that do not change are updates, too.
    """
    both = had & has
    changed = both & _differ(before, after) if with_before else both
    gone = (had & ~has) | changed if with_before else had & ~has
    come = (has & ~had) | changed
    if not (gone.any() or come.any()):
        return None
    return change_rows(schema, _chosen(before, gone), both[gone], _chosen(after, come), both[come])


def _differ(before: Sequence[pa.Array], after: Sequence[pa.Array]) -> Mask:
    """Return True for each position at which two rows differ; a type without comparison always does."""
    mask: Mask = np.zeros(len(before[0]), np.bool_)
    for old, new in zip(before, after, strict=True):
        if old is new:
            continue
        if pa.types.is_nested(old.type):
            return np.ones(len(mask), np.bool_)
        unequal = pc.not_equal(old, new)
        if unequal.null_count:
            unequal = pc.coalesce(unequal, pc.xor(old.is_null(), new.is_null()))
        mask |= unequal.to_numpy(zero_copy_only=False)
    return mask


def _chosen(columns: Sequence[pa.Array], rows: Mask) -> list[pa.Array]:
    if rows.all():
        return list(columns)
    at = pa.array(np.flatnonzero(rows))
    return [column.take(at) for column in columns]
