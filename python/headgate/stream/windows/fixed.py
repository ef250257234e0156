"""Tumbling and sliding windows by key, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa

from headgate.stream.state.descriptors import ListStateDescriptor, ReducingStateDescriptor
from headgate.stream.state.types import no_rows
from headgate.stream.windows.aggregates import WINDOW_END, WINDOW_START
from headgate.stream.windows.closing import ROWS, Windows
from headgate.stream.windows.kinds import (
    SlidingWindow,
    TumblingWindow,
    WindowOutput,
    assign,
    millis,
    windows_per_row,
)

if TYPE_CHECKING:
    from headgate.stream.state.lists import ListState
    from headgate.stream.state.table import Mask, Slots

#: Pairs of a row and a window that are in memory at once.
_PAIRS: Final = 1 << 18
#: Rows of closed windows that a function gets at once, unless one window has more.
_ROWS: Final = 1 << 18


class WindowOperator(Windows[TumblingWindow | SlidingWindow]):
    """Tumbling or sliding windows by key; see :class:`Windows`."""

    namespace: ClassVar = pa.schema([(WINDOW_START, pa.int64()), (WINDOW_END, pa.int64())])

    def _declare(self) -> None:
        self._size = millis(self._window.size)
        self._accumulators = {
            name: self.backend.get_state(ReducingStateDescriptor(name, item.reduce, item.type))
            for name, item in self._aggregates.accumulators.items()
        }
        self._rows: ListState | None = None
        if self._function is not None:
            self._rows = self.backend.get_state(ListStateDescriptor(ROWS, self._row_type))

    def process(self, batch: pa.RecordBatch) -> WindowOutput:
        """Add the rows of a batch to their windows; see ``Windows.process()``."""
        times = self._times_of(batch)
        size = max(1, _PAIRS // windows_per_row(self._window))
        closed, late = [], []
        for first in range(0, max(1, batch.num_rows), size):
            rows = batch.slice(first, size)
            windows, is_closed, is_late = self._add(rows, times[first : first + size])
            closed.append(windows.filter(pa.array(is_closed)))
            late.append(rows.filter(pa.array(is_late)))
        windows = closed[0]
        if len(closed) > 1:
            # Rows of several slices may be of one window.
            self.backend.set_keys(pa.concat_batches(closed))
            windows = self.backend.keys
        return WindowOutput(self._emit(windows), pa.concat_batches(late))

    def _add(self, batch: pa.RecordBatch, times: Slots) -> tuple[pa.RecordBatch, Mask, Mask]:
        """Add rows to their windows; return the windows, which are closed already, and which rows are late."""
        rows, starts = assign(self._window, times)
        in_time = starts + self._size - 1 + self._lateness > self.watermark
        rows, starts = rows[in_time], starts[in_time]
        # A row may be in no window at all, if windows do not meet; only a late one is shown.
        late = times + self._lateness <= self.watermark
        late[rows] = False
        ends = starts + self._size
        positions = pa.array(rows)
        batch_keys = [column.take(positions) for column in self._keys_of(batch)]
        self.backend.set_keys([*batch_keys, pa.array(starts), pa.array(ends)])
        for name, values in self._aggregates.inputs(batch).items():
            self._accumulators[name].add(values.take(positions))
        if self._rows is not None:
            self._rows.add(batch.to_struct_array().take(positions))
        windows = self.backend.keys
        self.backend.set_keys(windows)
        closed = self._register(windows[WINDOW_END].to_numpy())
        return windows, closed, late

    def _close(self, fired: pa.RecordBatch) -> Iterator[WindowOutput]:
        times, ends = fired["timestamp"].to_numpy(), fired[WINDOW_END].to_numpy()
        windows = fired.select(range(fired.num_columns - 1))
        for part in self._parts(windows.filter(pa.array(times == ends - 1))):
            yield WindowOutput(self._emit(part), no_rows(self._schema))
        over = windows.filter(pa.array(times == ends - 1 + self._lateness))
        self.backend.set_keys(over)
        for state in self._accumulators.values():
            state.clear()
        if self._rows is not None:
            self._rows.clear()

    def _parts(self, windows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield windows in parts without too many rows, at least one."""
        if self._rows is None:
            yield windows
            return
        self.backend.set_keys(windows)
        ends = np.cumsum(self._rows.lengths())
        first = 0
        while True:
            before = ends[first - 1] if first else 0
            stop = max(first + 1, int(np.searchsorted(ends, before + _ROWS, side="right")))
            yield windows.slice(first, stop - first)
            if stop >= len(ends):
                return
            first = stop

    def _emit(self, windows: pa.RecordBatch) -> pa.RecordBatch:
        self.backend.set_keys(windows)
        values: dict[str, pa.Array] = {n: state.get() for n, state in self._accumulators.items()}
        if self._rows is not None:
            values = {ROWS: self._rows.get()}
        *keys, starts, ends = windows.columns
        return self._results(keys, starts.to_numpy(), ends.to_numpy(), values)
