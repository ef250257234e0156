"""Sets of distinct values: a list per group, in which each value is once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headgate import _native
from headgate.stream.state.row_index import by_group
from headgate.stream.state.zeros import normalized

if TYPE_CHECKING:
    from headgate.stream.state.table import Slots


def lists_of(values: pa.Array) -> pa.ListArray:
    """Return a list of each value; an empty one for null."""
    valid = np.asarray(values.is_valid().to_numpy(zero_copy_only=False))
    offsets = pa.array(np.r_[0, np.cumsum(valid)], pa.int32())
    return pa.ListArray.from_arrays(offsets, values.drop_null())


def elements(lists: pa.ListArray) -> tuple[Slots, pa.Array]:
    """Return the list of each element, by position, and the elements."""
    lengths = np.asarray(lists.value_lengths().fill_null(0).to_numpy())
    return np.repeat(np.arange(len(lists)), lengths), lists.flatten()


def unions(groups: Slots, lists: pa.ListArray, count: int) -> pa.ListArray:
    """Return the distinct elements of the lists of each of so many groups."""
    owners, values = elements(lists)
    owners = groups[owners]
    rows = pa.record_batch([pa.array(owners), values], names=["group", "value"])
    _, _, first, _ = _native.KeyIndex(rows.schema).resolve(normalized(rows).columns)
    at = first.to_numpy()
    at = at[by_group(owners[at])[0]]
    offsets = np.r_[0, np.cumsum(np.bincount(owners[at], minlength=count))]
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values.take(pa.array(at)))
