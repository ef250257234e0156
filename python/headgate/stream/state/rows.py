"""Rows by key that wait for rows of another stream, and the pairs of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from headgate import _native
from headgate.stream.state.lists import ListState
from headgate.stream.state.table import Slots, ranges

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from headgate.stream.state.column import Rows

#: Numbers of a row: its time, the time up to which it waits, and how many rows of the other side it was paired with.
TIME: Final = "time"
UNTIL: Final = "until"
PAIRS: Final = "pairs"
#: Most pairs at once: a key with many rows on both sides has more than fit in memory.
_MOST_PAIRS: Final = 1 << 17
#: The time up to which a row waits that waits for ever; times of rows are below.
NEVER: Final = 1 << 62
#: Numbers below have sums that are int64 still.
_LARGE: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Matches:
    """For each row of a batch, the elements that it is paired with: a stretch of all elements.

    Attributes:
        begins: first element of each row.
        counts: number of elements of each row.
        elements: all.
    """

    begins: Slots
    counts: Slots
    elements: Slots

    def parts(self, most: int = _MOST_PAIRS) -> Iterator[tuple[Slots, Slots]]:
        """Yield pairs of the number of a row and an element, in parts."""
        ends = np.cumsum(self.counts)
        total = int(ends[-1]) if len(ends) else 0
        if total <= most:
            if total:
                rows = np.repeat(np.arange(len(self.counts)), self.counts)
                yield rows, self.elements[ranges(self.begins, self.counts)]
            return
        shifts = self.begins - (ends - self.counts)
        for start in range(0, total, most):
            numbers = np.arange(start, min(total, start + most))
            rows = np.searchsorted(ends, numbers, side="right")
            yield rows, self.elements[numbers + shifts[rows]]


class RowState(ListState):
    """Rows by key, in the order in which they came, each with numbers. Joins have one for each side."""

    kind = "rows"
    _numbers: ClassVar[tuple[str, ...]] = (TIME, UNTIL, PAIRS)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        #: Elements by the time up to which they wait.
        self._deadlines: Final = _native.TimeQueue(self.space.scope.memory.native)
        #: True while the deadlines lack what was restored.
        self._is_restored = False

    def keep(
        self, owners: Slots, values: pa.Array, times: Any = 0, until: Any = NEVER, pairs: Any = 0
    ) -> None:
        """Add rows to those of the slots of their keys."""
        self._append(owners, values, self._now(), times, until, pairs)

    def _append(self, owners: Slots, values: pa.Array, *numbers: Any) -> Slots:
        elements = super()._append(owners, values, *numbers)
        self._wait(elements)
        return elements

    def _wait(self, elements: Slots) -> None:
        until = self._elements[UNTIL][elements]
        if not (timed := until < NEVER).all():
            until, elements = until[timed], elements[timed]
        self._deadlines.push(until, elements)

    def numbers(self, name: str, elements: Slots) -> Slots:
        """Return a number of each element: :data:`TIME`, :data:`UNTIL` or :data:`PAIRS`."""
        numbers: Slots = self._elements[name][elements]
        return numbers

    def owners(self, elements: Slots) -> Slots:
        """Return the slot of each element's key; -1 for numbers below 0."""
        if not len(self._elements["owner"]):
            return np.full(len(elements), -1)
        owners: Slots = np.where(elements < 0, -1, self._elements["owner"][elements] - 1)
        return owners

    def rows(self, elements: Slots) -> list[pa.Array] | None:
        """Return the columns of elements, null for numbers below 0; None if there are no others."""
        shown = elements >= 0
        if not shown.any():
            return None
        return list(self._values.get(elements, shown).flatten())

    def count_pairs(self, elements: Slots, change: Any) -> None:
        """Add to the number of pairs of elements, of which some may be there more than once."""
        self._elements.touch(elements)
        np.add.at(self._elements[PAIRS], elements, change)
        self.changes.mark(self.owners(elements))

    def remove(self, elements: Slots) -> None:
        """Remove elements, each once."""
        self._remove(elements)

    def due(self, until: int) -> Slots:
        """Return the elements that wait up to a time and were not returned before, in order of time."""
        if self._is_restored:
            self._is_restored = False
            self._deadlines.clear()
            self._wait(np.flatnonzero(self._elements["owner"]))
        times, elements = (np.asarray(n.to_numpy()) for n in self._deadlines.pop(until))
        # An element that was removed may be in use again.
        waits = (self._elements["owner"][elements] > 0) & (self._elements[UNTIL][elements] == times)
        return elements if waits.all() else elements[waits]

    def matches(
        self, slots: Slots, rows: Slots, first: Slots | None = None, last: Slots | None = None
    ) -> Matches:
        """Return the elements with the key of each of some rows, in order of time, or without times in that of arrival.

        Args:
            slots: of the distinct keys.
            rows: for each row the position of its key among them.
            first: for each row the first time of elements that match; None for all times.
            last: for each row the last one.
        """
        lengths, elements = self._read(slots)
        if first is None or last is None:
            starts = np.cumsum(lengths) - lengths
            return Matches(starts[rows], lengths[rows], elements)
        if not len(elements):
            nothing = np.zeros(len(rows), np.int64)
            return Matches(nothing, nothing, elements)
        times = self._elements[TIME][elements]
        if int(lengths.max()) == 1:
            # A key with one element needs no search.
            at = np.minimum(np.cumsum(lengths) - lengths, len(elements) - 1)[rows]
            is_within = (lengths[rows] > 0) & (first <= times[at]) & (times[at] <= last)
            return Matches(at, is_within.astype(np.int64), elements)
        owners = np.repeat(np.arange(len(lengths)), lengths)
        codes, begins, ends = _codes(owners, times, rows, first, last, len(lengths))
        if not is_sorted(codes):
            order = np.argsort(codes, kind="stable")
            codes, elements = codes[order], elements[order]
        at = np.searchsorted(codes, begins)
        return Matches(at, np.maximum(np.searchsorted(codes, ends) - at, 0), elements)

    # --- in snapshots ---

    def close(self) -> None:
        """Free the rows; snapshots that are being written have what they need."""
        super().close()
        self._deadlines.clear()

    def load(self, slots: Slots, rows: Rows) -> None:
        """Store rows of a snapshot."""
        super().load(slots, rows)
        self._is_restored = True


def is_sorted(numbers: Slots) -> bool:
    """Return True if no number is less than the one before it."""
    return bool(np.all(numbers[1:] >= numbers[:-1]))


def _codes(
    owners: Slots, times: Slots, rows: Slots, first: Slots, last: Slots, keys: int
) -> tuple[Slots, Slots, Slots]:
    """Return a number for each pair of an owner and a time, in the order of both, and the range of each row's.

    Args:
        owners: numbers of keys.
        times: beside them.
        rows: number of the key of each row.
        first: first time of each row.
        last: last time of each row.
        keys: number of keys.
    """
    low, high = int(times.min()), int(times.max())
    width = high - low + 2
    if width * keys < _LARGE:
        begins = np.clip(first - low, 0, width - 1)
        ends = np.clip(last - low + 1, 0, width - 1)
        places: Slots = times - low
    else:
        values, places = np.unique(times, return_inverse=True)
        width = len(values) + 1
        begins = np.searchsorted(values, first)
        ends = np.searchsorted(values, last, side="right")
    return owners * width + places, rows * width + begins, rows * width + ends
