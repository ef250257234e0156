"""Combines a value per row into a value per key, without a step per row or key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import StateError
from headgate.stream.state.column import Column, checked
from headgate.stream.state.values import NumpyValues, to_numpy

if TYPE_CHECKING:
    from headgate.stream.state.column import Column
    from headgate.stream.state.descriptors import Reduce, ReduceFunction
    from headgate.stream.state.table import Slots

_UFUNCS: Final[dict[str, np.ufunc]] = {
    "sum": np.add,
    "count": np.add,
    "min": np.minimum,
    "max": np.maximum,
}


def _add(left: pa.Array, right: pa.Array) -> pa.Array:
    if pa.types.is_decimal(left.type):
        # Arrow's sum of decimals has one more digit, and of 128 bits there may be no more.
        wide = pa.decimal256(min(left.type.precision, 75), left.type.scale)
        left, right = left.cast(wide), right.cast(wide)
    return pc.add(left, right)


def _comparable(of: pa.DataType) -> pa.DataType:
    """Return a type with the same order, for which Arrow has a least and a greatest of two."""
    if pa.types.is_timestamp(of):
        return pa.int64()
    if pa.types.is_boolean(of):
        return pa.uint8()
    return pa.float32() if pa.types.is_float16(of) else of


def _least(left: pa.Array, right: pa.Array) -> pa.Array:
    common = _comparable(left.type)
    return pc.min_element_wise(left.cast(common), right.cast(common)).cast(left.type)


def _greatest(left: pa.Array, right: pa.Array) -> pa.Array:
    common = _comparable(left.type)
    return pc.max_element_wise(left.cast(common), right.cast(common)).cast(left.type)


#: The reductions as functions of Arrow arrays.
FUNCTIONS: Final[dict[str, ReduceFunction]] = {
    "sum": _add,
    "count": _add,
    "min": _least,
    "max": _greatest,
}


def reduce_into(
    column: Column, slots: Slots, rows: Slots, values: pa.Array, reduce: Reduce
) -> None:
    """Combine values into the values of slots.

    Args:
        column: the state.
        slots: slot of each distinct key.
        rows: for each value, the position of its key among the distinct ones.
        values: values of the column's type, without nulls.
        reduce: how two values become one.
    """
    if not len(values):
        return
    if isinstance(column.values, NumpyValues) and not callable(reduce):
        _scatter(column, column.values, slots, rows, values, reduce)
        return
    function = reduce if callable(reduce) else FUNCTIONS[reduce]
    keys, reduced = reduce_pairwise(rows, values, function)
    slots = slots[keys]
    alive = column.alive(slots)
    if alive.any():
        old = column.get(slots[alive], np.ones(int(alive.sum()), np.bool_))
        combined = _call(function, old, reduced.filter(pa.array(alive)))
        at = np.arange(len(slots))
        at[alive] = len(slots) + np.arange(len(combined))
        reduced = pa.concat_arrays([reduced, combined]).take(pa.array(at))
    column.put(slots, reduced)


def reduce_pairwise(
    rows: Slots, values: pa.Array, function: ReduceFunction
) -> tuple[Slots, pa.Array]:
    """Return each key that has values, in order, and its values combined in their order.

    Neighbours of one key are combined until each key has one value, so the function is called as often as
    the logarithm of the most values of a key.
    """
    order = np.argsort(rows, kind="stable")
    keys, values = rows[order], values.take(pa.array(order))
    while True:
        starts = np.flatnonzero(np.r_[len(keys) > 0, keys[1:] != keys[:-1]])
        if len(starts) == len(keys):
            return keys, values
        lengths = np.diff(np.r_[starts, len(keys)])
        places = np.arange(len(keys)) - np.repeat(starts, lengths)
        kept = np.flatnonzero(places % 2 == 0)
        left = kept[places[kept] + 1 < np.repeat(lengths, lengths)[kept]]
        combined = _call(function, values.take(pa.array(left)), values.take(pa.array(left + 1)))
        source = kept.copy()
        source[np.searchsorted(kept, left)] = len(keys) + np.arange(len(left))
        values = pa.concat_arrays([values, combined]).take(pa.array(source))
        keys = keys[kept]


def _scatter(
    column: Column, stored: NumpyValues, slots: Slots, rows: Slots, values: pa.Array, reduce: str
) -> None:
    received = np.zeros(len(slots), np.bool_)
    received[rows] = True
    target = slots[received]
    numbers = to_numpy(values, stored.stored)
    column.touch(target)
    table = column.table
    table["value"][target[~column.alive(target)]] = _identity(reduce, numbers.dtype)
    table["valid"][target] = True
    _UFUNCS[reduce].at(table["value"], slots[rows], numbers)
    column.renew(target)


def _identity(reduce: str, dtype: np.dtype[Any]) -> Any:
    """Return the number that changes no other when both are combined."""
    if reduce in {"sum", "count"}:
        return dtype.type(0)
    if dtype.kind == "f":
        return np.inf if reduce == "min" else -np.inf
    if dtype.kind == "b":
        return reduce == "min"
    limits = np.iinfo(dtype)
    return limits.max if reduce == "min" else limits.min


def _call(function: ReduceFunction, left: pa.Array, right: pa.Array) -> pa.Array:
    result: npt.ArrayLike | pa.Array = function(left, right)
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    if not isinstance(result, pa.Array) or len(result) != len(left) or result.null_count:
        raise StateError(
            f"the function of a reducing state returned {type(result).__name__} for {len(left)} pairs",
            remedy="return an Arrow array with one value that is not null for each pair",
        )
    return checked(result, left.type, len(left), "pair")
