"""Tumbling and sliding windows by key, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa

from headgate.stream.state.descriptors import ListStateDescriptor, ReducingStateDescriptor
from headgate.stream.windows.aggregates import WINDOW_END, WINDOW_START, Aggregate, WindowFunction
from headgate.stream.windows.closing import ClosesWindows
from headgate.stream.windows.input import (
    ROWS,
    WindowInput,
    new_or_checked,
    no_rows,
)
from headgate.stream.windows.kinds import (
    NO_WATERMARK,
    SlidingWindow,
    TumblingWindow,
    WindowOutput,
    assign,
    millis,
    panes,
)

if TYPE_CHECKING:
    from headgate.stream.state.backend import KeyedStateBackend
    from headgate.stream.state.lists import ListState
    from headgate.stream.state.table import Mask, Slots

#: Pairs of a row and a window that are in memory at once.
_PAIRS: Final = 1 << 18
#: Rows of closed windows that a function gets at once, unless one window has more.
_ROWS: Final = 1 << 18


class WindowOperator(ClosesWindows):
    """Tumbling or sliding windows by key.

    The state is ``backend``, of which snapshots are taken; an operator over a restored backend continues. Rows are
    late, and timers fire, by the watermark that was given last; a restored operator has none.

    Args:
        schema: schema of the batches.
        keys: names of the key columns.
        time: name of the column of event times: timestamps of any unit, dates, or int64 of milliseconds since 1970.
            They are rounded down to milliseconds, and not null.
        window: the kind of windows.
        aggregates: columns of the results.
        function: makes the results of a batch of closed windows; their rows are kept. Called for no windows, too.
        allowed_lateness: time after the end of a window in which rows still change its result. Each batch with such rows
            emits the window again.
        backend: a backend with the key columns and the namespace of windows, as one that is restored; new if None.

    Raises:
        UnknownColumnError: the schema has no column of a name.
        UnsupportedTypeError: a column of a type that cannot be a key, a time or aggregated so.
        StateError: both aggregates and a function, or neither; a negative lateness; a backend of other keys.
    """

    #: The columns of the state beside the keys.
    namespace: ClassVar = pa.schema([(WINDOW_START, pa.int64()), (WINDOW_END, pa.int64())])

    def __init__(
        self,
        schema: pa.Schema,
        *,
        keys: Sequence[str],
        time: str,
        window: TumblingWindow | SlidingWindow,
        aggregates: Sequence[Aggregate] = (),
        function: WindowFunction | None = None,
        allowed_lateness: timedelta | str = timedelta(0),
        backend: KeyedStateBackend | None = None,
    ) -> None:
        self._input = WindowInput(schema, keys, time, aggregates, function, allowed_lateness)
        self._window = window
        self._size = millis(window.size)
        self.watermark = NO_WATERMARK
        self.backend = new_or_checked(backend, self._input.key_schema, self.namespace)
        self._timers = self.backend.event_timers
        self._accumulators = {
            one.name: self.backend.get_state(
                ReducingStateDescriptor(one.name, one.reduce, one.type)
            )
            for one in self._input.aggregates.accumulators.values()
        }
        self._rows: ListState | None = None
        if function is not None:
            self._rows = self.backend.get_state(ListStateDescriptor(ROWS, self._input.row_type))

    def process(self, batch: pa.RecordBatch) -> WindowOutput:
        """Add the rows of a batch to their windows.

        Args:
            batch: rows of the operator's schema.

        Returns:
            The new results of windows that were closed before, and the rows that are late for all windows.

        Raises:
            SchemaMismatchError: the batch has another schema.
            StateError: a row has no time, or its key belongs to another task.
        """
        times = self._input.times(batch)
        size = max(1, _PAIRS // panes(self._window))
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
        inputs = self._input
        rows, starts = assign(self._window, times)
        in_time = starts + self._size - 1 + inputs.lateness > self.watermark
        rows, starts = rows[in_time], starts[in_time]
        # A row may be in no window at all, if windows do not meet; only a late one is shown.
        late = times + inputs.lateness <= self.watermark
        late[rows] = False
        ends = starts + self._size
        taken = pa.array(rows)
        batch_keys = [column.take(taken) for column in inputs.keys(batch)]
        self.backend.set_keys([*batch_keys, pa.array(starts), pa.array(ends)])
        for name, values in inputs.aggregates.inputs(batch).items():
            self._accumulators[name].add(values.take(taken))
        if self._rows is not None:
            self._rows.add(inputs.rows(batch).take(taken))
        windows = self.backend.keys
        self.backend.set_keys(windows)
        closed = inputs.register(self._timers, windows[WINDOW_END].to_numpy(), self.watermark)
        return windows, closed, late

    def _close(self, fired: pa.RecordBatch) -> Iterator[WindowOutput]:
        times, ends = fired["timestamp"].to_numpy(), fired[WINDOW_END].to_numpy()
        windows = fired.select(range(fired.num_columns - 1))
        for some in self._parts(windows.filter(pa.array(times == ends - 1))):
            yield WindowOutput(self._emit(some), no_rows(self._input.schema))
        over = windows.filter(pa.array(times == ends - 1 + self._input.lateness))
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
        return self._input.results(keys, starts.to_numpy(), ends.to_numpy(), values)
