"""Windows of a number of rows of a key, a batch at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headgate.stream.state.descriptors import ReducingStateDescriptor
from headgate.stream.state.table import ranges
from headgate.stream.state.timers import NO_WATERMARK
from headgate.stream.windows.kinds import CountWindow, WindowOutput
from headgate.stream.windows.pane_windows import PaneWindows, closed_windows
from headgate.stream.windows.panes import cuts

if TYPE_CHECKING:
    from headgate.stream.state.table import Slots

#: Pairs of a window and a pane that are in memory at once, unless one window has more.
_PAIRS: Final = 1 << 18
#: The pane under which the number of rows of a key is kept; rows have none that ends before it begins.
_COUNT: Final = (0, -1)


class CountWindowOperator(PaneWindows[CountWindow]):
    """Windows of a number of rows by key; see :class:`Windows`.

    Rows of a key are numbered from 0 as they arrive, and panes are runs of these numbers. A window is emitted with its
    last row, whatever the watermark is.
    """

    def _declare(self) -> None:
        super()._declare()
        self._size, self._slide = self._window.n, self._window.step
        self._length = math.gcd(self._size, self._slide)
        self._shown = pa.int64()
        self._counts = self.backend.get_state(
            ReducingStateDescriptor("rows of a key", "count", pa.int64())
        )

    @property
    def wake(self) -> int:
        """Never: time closes no window."""
        return -NO_WATERMARK

    @property
    def left(self) -> int:
        """Number of rows that no window has emitted."""
        counts = self._counts.column
        numbers = counts.table["value"][counts.present]
        return int((numbers % self._slide).sum())

    def process(self, batch: pa.RecordBatch) -> WindowOutput:
        """Add the rows of a batch to their panes, and emit the windows that are full."""
        keys = self._keys_of(batch)
        self.backend.set_keys(
            [*keys, *self._namespace(*(np.full(batch.num_rows, n) for n in _COUNT))]
        )
        before = self._counts.get().fill_null(0).to_numpy()
        self._counts.add(pa.array(np.ones(batch.num_rows, np.int8)))
        after = self._counts.get().to_numpy()
        current = self.backend.current.batch
        key_columns = current.columns.take(pa.array(current.first)).columns[: len(keys)]
        numbers = before[current.rows] + _places(current.rows)
        starts = numbers // self._length * self._length
        self.backend.set_keys([*keys, *self._namespace(starts, starts + self._length)])
        self._add_rows(batch)
        results = list(self._full(key_columns, before, after))
        return WindowOutput(
            pa.concat_batches(results) if results else self._no_results, self._no_late
        )

    def _close(self) -> Iterator[WindowOutput]:
        yield WindowOutput(self._no_results, self._no_late)

    def _full(self, keys: list[pa.Array], before: Slots, after: Slots) -> Iterator[pa.RecordBatch]:
        """Yield the results of windows that are full now, and remove the panes that no window needs any more."""
        first, last = before // self._slide + 1, after // self._slide
        of_keys = np.repeat(np.arange(len(before)), last - first + 1)
        ends = self._slide * ranges(first, last - first + 1)
        lows = np.maximum(0, ends - self._size)
        panes = (ends - lows) // self._length
        for part in cuts(panes, _PAIRS):
            windows = np.repeat(np.arange(part.stop - part.start), panes[part])
            starts = self._length * ranges(lows[part] // self._length, panes[part])
            slots = self._slots(keys, of_keys[part][windows], starts)
            _, closed = closed_windows(windows, slots)
            yield from self._emit_parts(replace(closed, ends=ends[part]))
        # The next window of a key begins so many rows before its end.
        low, high = (
            np.maximum(0, (count // self._slide + 1) * self._slide - self._size) // self._length
            for count in (before, after)
        )
        of_panes = np.repeat(np.arange(len(before)), high - low)
        self._forget(self._slots(keys, of_panes, self._length * ranges(low, high - low)))

    def _slots(self, keys: list[pa.Array], of_keys: Slots, starts: Slots) -> Slots:
        """Return the slots of panes, which are there."""
        at = pa.array(of_keys)
        columns = [column.take(at) for column in keys]
        self.backend.set_keys([*columns, *self._namespace(starts, starts + self._length)])
        slots: Slots = self.backend.current.batch.row_slots
        return slots

    def _namespace(self, starts: Slots, ends: Slots) -> list[pa.Array]:
        return [pa.array(starts, pa.int64()), pa.array(ends, pa.int64())]

    def _starts_of(self, ends: Slots) -> Slots:
        return np.maximum(0, ends - self._size)


def _places(groups: Slots) -> Slots:
    """Return for each row how many rows of its group are before it."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    is_first = np.ones(len(groups), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    numbers = np.arange(len(groups))
    places = np.empty(len(groups), np.int64)
    places[order] = numbers - np.maximum.accumulate(np.where(is_first, numbers, 0))
    return places
