"""The order of values as numbers, so that rows of several keys are sorted at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.stream.state.values import decoded, is_valid, storage_type, to_numpy

if TYPE_CHECKING:
    from headgate.stream.state.table import Mask, Slots

#: The sign bit of an int64.
_SIGN = np.int64(-(1 << 63))


def has_numbers(of: pa.DataType) -> bool:
    """Return True if :func:`numbers_of` has numbers for values of a type, which mean the same in all batches."""
    return storage_type(of) is not None


def numbers_of(values: pa.Array, *, descending: bool) -> tuple[Slots, Mask]:
    """Return a number for each value, which is the smaller the earlier the value comes, and True for nulls.

    NaN is greater than every other number, and -0.0 equals 0.0. Numbers of values that are neither numbers nor times
    compare with others of this call only. That of a null is 0.
    """
    values = decoded(values)
    stored = storage_type(values.type)
    nulls = ~is_valid(values)
    numbers: npt.NDArray[Any]
    if stored is None:
        ranks = pc.rank(values, sort_keys="ascending", tiebreaker="dense")
        numbers = ranks.to_numpy().astype(np.int64)
    else:
        numbers = to_numpy(values, stored)
    if numbers.dtype.kind == "f":
        # The bits of a float are in its order, but for the negative ones, which go down.
        bits = np.where(np.isnan(numbers), np.nan, numbers + 0.0).astype(np.float64).view(np.int64)
        numbers = np.where(bits < 0, bits ^ ~_SIGN, bits)
    elif numbers.dtype == np.uint64:
        numbers = numbers.view(np.int64) ^ _SIGN
    numbers = numbers.astype(np.int64)
    numbers = ~numbers if descending else numbers
    # All nulls are equal.
    return np.where(nulls, 0, numbers) if values.null_count else numbers, nulls
