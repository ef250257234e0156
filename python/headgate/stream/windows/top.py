"""The first rows of each window by some columns, and how those of several panes become those of a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate._arguments import flag, names, text, whole_number
from headgate.errors import StateError
from headgate.stream.state.table import distinct
from headgate.stream.state.types import check_reduce, column_index
from headgate.stream.state.values import decoded, storage_type, to_numpy
from headgate.stream.state.zeros import normalized
from headgate.stream.windows.distinct import elements

if TYPE_CHECKING:
    from headgate.stream.state.table import Mask, Slots

#: The sign bit of a double.
_SIGN: Final = np.int64(-(1 << 63))
_MOST: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Top:
    """The first rows of each window. Of equal rows the one that came first counts; nulls are behind all values.

    >>> Top(3, by="price").name
    'top 3 by price'

    Attributes:
        n: how many rows.
        by: the column with the greatest values, or several, of which the first decides.
        ties: True to have all rows that are equal to the last one, too.
        descending: False for the least values.
        rank: name of a column with the place of each row, from 1; equal rows have one with ``ties``. None for none.
    """

    n: int
    by: str | Sequence[str]
    ties: bool = False
    descending: bool = True
    rank: str | None = None

    def __post_init__(self) -> None:
        """Refuse a number that is not positive, and columns without names."""
        whole_number("n", self.n, 1, _MOST)
        if self.rank is not None:
            text("rank", self.rank, "the name of a column")
        if not self.columns:
            raise StateError("Top by no column", remedy='Top(3, by="price")')
        for option in ("ties", "descending"):
            flag(option, getattr(self, option))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that decide."""
        return names("by", self.by)

    @property
    def name(self) -> str:
        """A name for its state: one of another name begins anew."""
        marks = " ties" * self.ties + " ascending" * (not self.descending)
        return f"top {self.n} by {', '.join(self.columns)}{marks}"

    def check(self, schema: pa.Schema) -> None:
        """Check the columns.

        Raises:
            UnknownColumnError: the schema has no such column.
            UnsupportedTypeError: a column whose values have no order.
        """
        for name in self.columns:
            check_reduce(
                "max",
                schema.field(column_index(schema, name, "Top(by={})")).type,
                f"column {name!r}",
            )


class TopRows:
    """The reduction of lists of rows, which are structs: their first rows, in order.

    Args:
        top: which rows.
    """

    def __init__(self, top: Top) -> None:
        self._top = top

    def __call__(self, left: pa.Array, right: pa.Array) -> pa.Array:
        """Return the first rows of both lists at each position."""
        numbers = np.arange(len(left))
        return self.of_groups(np.r_[numbers, numbers], pa.concat_arrays([left, right]))[1]

    def of_groups(self, groups: Slots, lists: pa.ListArray) -> tuple[Slots, pa.Array]:
        """Return each group, in order, and its first rows."""
        owners, rows = elements(lists)
        present = distinct(groups)
        of_rows = np.searchsorted(present, groups)[owners]
        order, ranks = self._ranked(of_rows, rows)
        chosen = order[ranks < self._top.n]
        lengths = np.bincount(of_rows[chosen], minlength=len(present))
        offsets = pa.array(np.r_[0, np.cumsum(lengths)], pa.int32())
        return present, pa.ListArray.from_arrays(offsets, rows.take(pa.array(chosen)))

    def ranks(self, lists: pa.ListArray) -> Slots:
        """Return the place of each row in its list, from 1."""
        return self._ranked(*elements(lists))[1] + 1

    def _ranked(self, groups: Slots, rows: pa.StructArray) -> tuple[Slots, Slots]:
        """Return positions of rows in order of their groups and places, and the places, from 0.

        If only one row of a group is wanted, most others are left out before rows are sorted.
        """
        codes = [code for name in self._top.columns for code in self._codes(rows.field(name))]
        at = np.arange(len(groups))
        if self._top.n == 1 and len(codes) == 1 and len(groups):
            least = np.full(int(groups.max()) + 1, np.iinfo(np.int64).max)
            np.minimum.at(least, groups, codes[0])
            at = np.flatnonzero(codes[0] == least[groups])
        order = at[np.lexsort([*(code[at] for code in reversed(codes)), groups[at]])]
        is_first = _changes(groups[order])
        places = np.arange(len(order))
        places -= np.maximum.accumulate(np.where(is_first, places, 0))
        if self._top.ties:
            is_new = is_first.copy()
            for code in codes:
                is_new |= _changes(code[order])
            starts = np.flatnonzero(is_new)
            places = places[starts][np.cumsum(is_new) - 1]
        return order, places

    def _codes(self, values: pa.Array) -> list[Slots]:
        """Return numbers of which the least are first: one column, or two with nulls."""
        values = decoded(values)
        stored = storage_type(values.type)
        if stored is None:
            numbers = pc.rank(values, tiebreaker="dense").to_numpy().astype(np.int64)
        elif pa.types.is_floating(stored):
            doubles = values.cast(pa.float64())
            bits = normalized(pa.record_batch([doubles], names=[""])).column(0)
            numbers = to_numpy(bits, pa.float64()).view(np.int64)
            # As in sums of Spark, NaN is the greatest: its bits are.
            numbers = np.where(numbers < 0, ~numbers ^ _SIGN, numbers)
        else:
            numbers = to_numpy(values, stored)
            is_large = numbers.dtype == np.uint64
            numbers = numbers.view(np.int64) ^ _SIGN if is_large else numbers.astype(np.int64)
        codes = [~numbers if self._top.descending else numbers]
        if values.null_count:
            is_null = np.asarray(values.is_null().to_numpy(zero_copy_only=False))
            codes = [is_null.astype(np.int64), np.where(is_null, 0, codes[0])]
        return codes


def _changes(values: Slots) -> Mask:
    """Return True for each value that is not the one before."""
    changes = np.ones(len(values), np.bool_)
    changes[1:] = values[1:] != values[:-1]
    return changes
