"""Finds the largest group while sorted batches pass."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headgate._group_size import GroupSize

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Most characters of the text of a value.
_MOST: Final = 100


class LargestGroup:
    """Measures groups by their bytes.

    Of the groups that begin and end in the same batch only the one with the most rows is measured: a batch
    has up to 1 MiB, and to measure each of thousands of groups would take longer than to sort them.

    Attributes:
        size: of the largest group that has ended; None before the first one.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = keys
        self.size: GroupSize | None = None
        #: The last row of the group that has not ended, and the rows and bytes of it so far.
        self._last: pa.RecordBatch | None = None
        self._rows = 0
        self._bytes = 0

    def add(self, batch: pa.RecordBatch, begins: Sequence[int]) -> None:
        """Add a sorted batch with rows.

        Args:
            batch: the rows.
            begins: rows at which groups begin, ascending.
        """
        if not begins:
            self._continue(batch)
            return
        if begins[0]:
            self._continue(batch.slice(0, begins[0]))
        self.end()
        if len(begins) > 1:
            start, end = max(pairwise(begins), key=_rows_between)
            self._continue(batch.slice(start, end - start))
            self.end()
        self._continue(batch.slice(begins[-1]))

    def end(self) -> None:
        """End the group to which the last row belongs."""
        if self._last is not None and (self.size is None or self._bytes > self.size.bytes):
            key = {name: _text(self._last.column(name)) for name in self._keys}
            self.size = GroupSize(key, self._rows, self._bytes)
        self._last, self._rows, self._bytes = None, 0, 0

    def _continue(self, rows: pa.RecordBatch) -> None:
        self._last = rows.slice(rows.num_rows - 1)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes


def _rows_between(places: tuple[int, int]) -> int:
    return places[1] - places[0]


def _text(value: pa.Array) -> str | None:
    """Return the only value of an array as text."""
    if value.null_count:
        return None
    t = pa.types
    if (
        t.is_binary(value.type)
        or t.is_large_binary(value.type)
        or t.is_fixed_size_binary(value.type)
    ):
        text: str = value[0].as_py().hex()
    elif t.is_duration(value.type):
        text = f"{value.cast(pa.int64())[0].as_py()} {value.type.unit}"
    else:
        text = value.cast(pa.string())[0].as_py()
    return text if len(text) <= _MOST else text[: _MOST - 3] + "..."
