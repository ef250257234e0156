"""Combines a value per row into a value per key, without a step per row or key: all sums, counts, minima and maxima.

They are those of Spark: a sum that exceeds its type is an error, NaN is greater than every other number, and -0.0 equals 0.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import StateError
from headgate.stream.state.column import cast_to
from headgate.stream.state.row_index import by_group
from headgate.stream.state.values import storage_type, to_numpy

if TYPE_CHECKING:
    from headgate.stream.state.column import Column
    from headgate.stream.state.descriptors import Reduce, ReduceFunction
    from headgate.stream.state.table import Slots

#: Of NaN and a number, maximum returns NaN, and fmin the number.
_UFUNCS: Final = {"min": np.fmin, "max": np.maximum}
#: The same for values that are kept in Arrow, as functions of two arrays.
_ELEMENTWISE: Final[dict[str, ReduceFunction]] = {
    "min": pc.min_element_wise,
    "max": pc.max_element_wise,
}
#: Bits of the lower half of an integer.
_HALF: Final = 32


@dataclass(frozen=True, slots=True)
class Reduction:
    """A way to make one value of several of a type.

    Attributes:
        reduce: the name of a reduction, or a function of two arrays.
        type: type of the values and of the result.
        name: of the state or aggregate, for errors.
    """

    reduce: Reduce
    type: pa.DataType
    name: str

    def of_groups(self, groups: Slots, values: pa.Array) -> tuple[Slots, pa.Array]:
        """Return each group that has values, in order, and its values combined in their order.

        Args:
            groups: for each value, the number of its group; small numbers, as positions of keys are.
            values: of the type, without nulls.

        Raises:
            StateError: a sum exceeds its type, or the function returned something else than values.
        """
        if not len(values):
            return np.zeros(0, np.int64), values
        if self.reduce in {"first", "last"}:
            return self._ends(groups, values)
        stored = storage_type(self.type)
        if not callable(self.reduce) and stored is not None:
            # Infinity less infinity is NaN, and no reason for a warning.
            with np.errstate(invalid="ignore", over="ignore"):
                present, reduced = self._of_numbers(groups, to_numpy(values, stored))
            numbers = pa.array(reduced, stored)
            return present, numbers if stored == self.type else numbers.view(self.type)
        function = self.reduce if callable(self.reduce) else _ELEMENTWISE.get(self.reduce)
        if function is not None:
            # One that needs no pairs has a method for all values.
            of_all = getattr(function, "of_groups", partial(_pairwise, function=function))
            present, values = of_all(groups, values)
            return present, values
        return self._sums_of_decimals(groups, values)

    def _ends(self, groups: Slots, values: pa.Array) -> tuple[Slots, pa.Array]:
        """Return the first or the last value of each group."""
        at = np.arange(len(groups))
        if self.reduce == "first":
            groups, at = groups[::-1], at[::-1]
        ends = np.full(int(groups.max()) + 1, -1)
        # Of several values of a group the last assignment counts.
        ends[groups] = at
        present = np.flatnonzero(ends >= 0)
        return present, values.take(pa.array(ends[present]))

    def _of_numbers(
        self, groups: Slots, numbers: npt.NDArray[Any]
    ) -> tuple[Slots, npt.NDArray[Any]]:
        has_values = np.zeros(int(groups.max()) + 1, np.bool_)
        has_values[groups] = True
        present = np.flatnonzero(has_values)
        if self.reduce not in _UFUNCS and numbers.dtype.kind in "iu":
            return present, self._sums(groups, numbers, len(has_values))[present]
        if self.reduce not in _UFUNCS:
            reduced = np.zeros(len(has_values), numbers.dtype)
            np.add.at(reduced, groups, numbers)
            return present, reduced[present]
        reduced = np.empty(len(has_values), numbers.dtype)
        # Any value of a group may be the first: it is combined with itself.
        reduced[groups] = numbers
        _UFUNCS[self.reduce].at(reduced, groups, numbers)
        return present, reduced[present]

    def _sums(self, groups: Slots, numbers: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
        """Return the sum of the integers of each of so many groups."""
        limits = np.iinfo(numbers.dtype)
        largest = max(abs(int(numbers.min())), abs(int(numbers.max())))
        sums = np.zeros(count, np.int64)
        if largest * len(numbers) < 1 << 63:
            np.add.at(sums, groups, numbers.astype(np.int64))
            if int(sums.min()) < limits.min or int(sums.max()) > limits.max:
                raise self._exceeds()
            return sums.astype(numbers.dtype)
        # Sums of halves are exact: there are fewer than 2**31 values.
        lower = np.zeros(count, np.int64)
        np.add.at(sums, groups, (numbers >> _HALF).astype(np.int64))
        np.add.at(lower, groups, (numbers & numbers.dtype.type((1 << _HALF) - 1)).astype(np.int64))
        sums += lower >> _HALF
        if int(sums.min()) < limits.min >> _HALF or int(sums.max()) > limits.max >> _HALF:
            raise self._exceeds()
        lower &= (1 << _HALF) - 1
        exact: npt.NDArray[Any] = (sums.astype(numbers.dtype) << _HALF) | lower.astype(
            numbers.dtype
        )
        return exact

    def _sums_of_decimals(self, groups: Slots, values: pa.Array) -> tuple[Slots, pa.Array]:
        # Arrow's sum of decimals has one more digit than they, and at most 76.
        wide = pa.decimal256(75, self.type.scale)
        try:
            present, sums = _pairwise(
                groups, values.cast(wide), lambda left, right: pc.add(left, right).cast(wide)
            )
            return present, sums.cast(self.type)
        except pa.ArrowInvalid as error:
            raise self._exceeds() from error

    def _exceeds(self) -> StateError:
        wider = "decimal256(76, 0)" if pa.types.is_decimal(self.type) else "decimal128(38, 0)"
        return StateError(
            f"a {self.reduce} of {self.name!r} exceeds its type {self.type}",
            remedy=f"cast the values to pa.{wider} or pa.float64() before they are added",
        )


def reduce_into(
    column: Column, slots: Slots, rows: Slots, values: pa.Array, reduction: Reduction
) -> None:
    """Combine values into the values of slots.

    Args:
        column: the state.
        slots: slot of each distinct key.
        rows: for each value, the position of its key among the distinct ones.
        values: values of the column's type, without nulls.
        reduction: how values become one.

    Raises:
        StateError: as for :meth:`Reduction.of_groups`; no value has changed then.
    """
    if not len(values):
        return
    with_values = np.zeros(len(slots), np.bool_)
    with_values[rows] = True
    before = np.flatnonzero(with_values & column.alive(slots))
    old = column.get(slots[before], np.ones(len(before), np.bool_))
    keys, reduced = reduction.of_groups(
        np.concatenate([before, rows]), pa.concat_arrays([old, values])
    )
    column.put(slots[keys], reduced)


def _pairwise(groups: Slots, values: pa.Array, function: ReduceFunction) -> tuple[Slots, pa.Array]:
    """Combine neighbours of a group until each group has one value.

    The function is called as often as the logarithm of the most values of a group.
    """
    order, _ = by_group(groups)
    groups, values = groups[order], values.take(pa.array(order))
    while True:
        starts = np.flatnonzero(np.r_[len(groups) > 0, groups[1:] != groups[:-1]])
        if len(starts) == len(groups):
            return groups, values
        lengths = np.diff(np.r_[starts, len(groups)])
        places = np.arange(len(groups)) - np.repeat(starts, lengths)
        even = np.flatnonzero(places % 2 == 0)
        left = even[places[even] + 1 < np.repeat(lengths, lengths)[even]]
        combined = _call(function, values.take(pa.array(left)), values.take(pa.array(left + 1)))
        source = even.copy()
        source[np.searchsorted(even, left)] = len(groups) + np.arange(len(left))
        values = pa.concat_arrays([values, combined]).take(pa.array(source))
        groups = groups[even]


def _call(function: ReduceFunction, left: pa.Array, right: pa.Array) -> pa.Array:
    result: npt.ArrayLike | pa.Array = function(left, right)
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    if not isinstance(result, pa.Array) or len(result) != len(left) or result.null_count:
        raise StateError(
            f"the function of a reducing state returned {type(result).__name__} for {len(left)} pairs",
            remedy="return an Arrow array with one value that is not null for each pair",
        )
    return cast_to(result, left.type)
