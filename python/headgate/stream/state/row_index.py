"""Numbers for rows: equal rows have one; and the rows in the order of such numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headgate import _native
from headgate.stream.state.zeros import normalized

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.stream.state.table import Mask, Slots


class RowIndex:
    """Gives a number to each different row, from 0. Nulls are equal, and so are -0.0 and 0.0, and all NaNs.

    Args:
        schema: of the rows, of types that can be keys.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._index = _native.KeyIndex(schema)

    def add(self, rows: pa.RecordBatch) -> Slots:
        """Return the number of each row; a row that is new gets one."""
        places, numbers, _, _ = self._index.resolve(normalized(rows).columns)
        each: Slots = numbers.to_numpy()[places.to_numpy()]
        return each

    def find(self, rows: pa.RecordBatch) -> Slots:
        """Return the number of each row; -1 for one that has none."""
        return np.asarray(self._index.find(normalized(rows).columns).to_numpy())


def distinct(rows: pa.RecordBatch) -> tuple[Slots, Slots]:
    """Return for each row its position among the different ones, and of each of these the first row."""
    places, _, first, _ = _native.KeyIndex(rows.schema).resolve(normalized(rows).columns)
    return places.to_numpy(), first.to_numpy()


def with_nulls(rows: pa.RecordBatch) -> Mask | None:
    """Return True for each row with a null in any column; None if there is none."""
    mask = None
    for column in rows.columns:
        if column.null_count:
            nulls = np.asarray(column.is_null().to_numpy(zero_copy_only=False))
            mask = nulls if mask is None else mask | nulls
    return mask


def by_group(
    groups: Slots, numbers: Slots | None = None, nulls: Mask | None = None
) -> tuple[Slots, Slots]:
    """Sort rows by group, and within one by number; equal ones stay in their order, and nulls come last.

    Returns:
        The order, and for each row in this order its place in its group, from 0.
    """
    last = nulls.view(np.uint8) if nulls is not None and nulls.any() else None
    order, places = _native.rows_by_group(groups, numbers, last)
    return order.to_numpy(), places.to_numpy()
