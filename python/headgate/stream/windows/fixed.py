"""Tumbling and sliding windows by key, a batch at a time. Decision: ADR 0056."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headgate.errors import StateError
from headgate.stream.state.backend import EVENT_TIMERS
from headgate.stream.state.descriptors import ValueStateDescriptor
from headgate.stream.state.groups import key_groups_of
from headgate.stream.state.table import are_among, distinct, ranges
from headgate.stream.state.timers import NO_WATERMARK, Timers
from headgate.stream.windows.aggregates import WINDOW_START
from headgate.stream.windows.kinds import SlidingWindow, TumblingWindow, WindowOutput
from headgate.stream.windows.pane_windows import Closed, PaneWindows, closed_windows
from headgate.stream.windows.panes import OpenPanes, PaneTimes, cuts

if TYPE_CHECKING:
    from headgate.stream.state.table import Mask, Slots

#: Pairs of a window and a pane that are in memory at once, unless one window has more.
_PAIRS: Final = 1 << 18
#: State that is there for each pane.
_PANES: Final = "panes"


class WindowOperator(PaneWindows[TumblingWindow | SlidingWindow]):
    """Tumbling or sliding windows by key; see :class:`Windows`.

    State is kept by pane, the greatest slices of time of which all windows consist. A row is added to its pane once,
    and a window is put together from its panes when it closes. Rows of a window are in order of their panes.
    """

    def _declare(self) -> None:
        super()._declare()
        self._times = PaneTimes(self._window)
        self._panes = OpenPanes(self._key_schema, self.backend.scope.memory)
        #: The watermark up to which windows were closed.
        self._closed_until = NO_WATERMARK
        #: The watermark from which on there is something to do.
        self._wake = -NO_WATERMARK
        self._present = self.backend.get_state(ValueStateDescriptor(_PANES, pa.bool_()))
        #: True for the slots of panes with rows since the open results were asked for.
        self._touched: Mask = np.zeros(0, np.bool_)
        self._restore()
        groups = self.backend.scope.key_groups
        #: The latest watermark of a restored key group.
        self._latest = int(self.backend.watermarks[groups.start : groups.stop].max())

    @property
    def wake(self) -> int:
        """The watermark at which the first window closes, or the first pane is over."""
        return self._wake

    def _restore(self) -> None:
        timers = self.backend.states.pop(EVENT_TIMERS, None)
        if isinstance(timers, Timers):
            self._restore_windows(timers)
        slots = np.flatnonzero(self._present.column.present)
        keys = self.backend.space.keys(slots)
        starts, ends = (column.to_numpy() for column in keys.columns[-2:])
        wrong = np.flatnonzero(ends - starts != self._times.length)
        if len(wrong):
            raise StateError(
                f"the state has windows or panes of {(ends - starts)[wrong[0]]} ms",
                asked=f"panes of {self._times.length} ms, of which {self._window} consists",
                remedy="the window as in the checkpoint · another name= for the operator",
            )
        self._add(slots, starts, keys)

    def _restore_windows(self, timers: Timers) -> None:
        """Take windows of a snapshot that has them with their timers, from before there were panes."""
        table = timers.table().combine_chunks()
        columns = [column.combine_chunks() for column in table.columns]
        timers.close()
        if not len(table):
            return
        ends, times = (column.to_numpy() for column in columns[-2:])
        self.backend.set_keys(columns[:-1])
        self._present.put(np.ones(self.backend.keys.num_rows, np.bool_))
        is_open = np.zeros(self.backend.keys.num_rows, np.bool_)
        rows = self.backend.current.batch.rows
        is_open[rows[times == ends - 1]] = True
        emitted = ends[~is_open[rows]]
        watermarks = self.backend.watermarks
        np.maximum(watermarks, emitted.max(initial=NO_WATERMARK + 1) - 1, out=watermarks)

    def process(self, batch: pa.RecordBatch) -> WindowOutput:
        """Add the rows of a batch to their panes; see ``Windows.process()``."""
        times, keys, late = self._times_of(batch), self._keys_of(batch), self._no_late
        reached = self._reached(keys)
        is_late = self._times.last_ends(times) - 1 + self._lateness <= reached
        if is_late.any():
            late, in_time = batch.filter(pa.array(is_late)), np.flatnonzero(~is_late)
            batch, times = batch.take(pa.array(in_time)), times[in_time]
            keys, reached = [key.take(pa.array(in_time)) for key in keys], reached[in_time]
        starts = self._times.starts(times)
        self.backend.set_keys([*keys, pa.array(starts), pa.array(starts + self._times.length)])
        self._add_rows(batch)
        panes = self.backend.current.batch
        slots, starts, reached = panes.slots, starts[panes.first], reached[panes.first]
        new = np.flatnonzero(~self._present.column.present[slots])
        if len(new):
            self._present.column.put(slots[new], pa.array(np.ones(len(new), np.bool_)))
            keys_of_new = panes.columns.take(pa.array(panes.first[new]))
            self._add(slots[new], starts[new], keys_of_new)
        self._touch(slots)
        return WindowOutput(self._updates(slots, starts, reached), late)

    def _reached(self, keys: list[pa.Array]) -> Slots:
        """Return the watermark up to which the windows of each key are closed."""
        if self._is_even(self.watermark):
            return np.broadcast_to(np.int64(self.watermark), len(keys[0]))
        of_groups = self.backend.watermarks
        rows = pa.RecordBatch.from_arrays(keys, schema=self._key_schema)
        of_keys: Slots = of_groups[key_groups_of(rows, len(of_groups))]
        return np.maximum(of_keys, self.watermark)

    def _is_even(self, watermark: int) -> bool:
        """Return True if no restored key group has a later watermark."""
        return watermark >= self._latest

    def _add(self, slots: Slots, starts: Slots, keys: pa.RecordBatch) -> None:
        """Add panes that are new."""
        self._panes.add(slots, starts, keys.select(range(len(self._key_schema))))
        self._touch(slots)
        wake = self._times.wakes(starts, self._closed_until, self._lateness)
        self._wake = min(self._wake, wake)

    def _updates(self, slots: Slots, starts: Slots, reached: Slots) -> pa.RecordBatch:
        """Return the results of the windows of panes that are closed, but not for good."""
        if not self._lateness:
            return self._no_results
        times = self._times
        first = np.maximum(times.first_ends(starts), times.ends_after(reached + 2 - self._lateness))
        last = np.minimum(times.last_ends(starts), reached + 1)
        results = list(self._between(slots, first, last))
        return pa.concat_batches(results) if results else self._no_results

    def open_results(self) -> Iterator[pa.RecordBatch]:
        """Yield the results so far of windows that are open and have got rows since the last call."""
        slots = np.flatnonzero(self._touched[: self.backend.space.capacity])
        slots = slots[self._present.column.present[slots]]
        self._touched[:] = False
        starts = self.backend.space.keys(slots)[WINDOW_START].to_numpy()
        groups = self.backend.space.groups(slots)
        reached = np.maximum(self.watermark, self.backend.watermarks[groups])
        times = self._times
        first = np.maximum(times.first_ends(starts), times.ends_after(reached + 2))
        yield from self._between(slots, first, times.last_ends(starts))

    def _touch(self, slots: Slots) -> None:
        if len(self._touched) < self.backend.space.capacity:
            space = self.backend.space
            self._touched = space.scope.memory.wider(self._touched, space.capacity)
        self._touched[slots] = True

    def _between(self, slots: Slots, first: Slots, last: Slots) -> Iterator[pa.RecordBatch]:
        """Yield the results of the windows of panes, of which each has those from one end to another."""
        ends, pairs = self._times.ends_from_to(first, last)
        if not len(ends):
            return
        numbers = self._panes.numbers(slots)
        ends, which = np.unique(ends, return_inverse=True)
        wanted = distinct(which * self._panes.most_keys + numbers[pairs])
        all_starts, all_slots = self._panes.until(int(ends[-1]) - 1)
        mine = are_among(self._panes.numbers(all_slots), numbers)
        yield from self._results_of(all_starts[mine], all_slots[mine], ends, wanted=wanted)

    def _close(self) -> Iterator[WindowOutput]:
        until, after = self.watermark, self._closed_until
        self._closed_until, nothing, is_empty = until, self._no_late, True
        if until >= self._wake:
            # Windows that close now have no later panes.
            starts, slots = self._panes.until(until)
            due = self._times.due(starts, after, until)
            for results in self._results_of(starts, slots, due, after=after):
                yield WindowOutput(results, nothing)
                is_empty = False
            self._remove(starts, slots)
        if until < -NO_WATERMARK:
            np.maximum(self.backend.watermarks, until, out=self.backend.watermarks)
        if is_empty:
            yield WindowOutput(self._no_results, nothing)

    def _remove(self, starts: Slots, slots: Slots) -> None:
        """Remove the panes of which no window can get rows any more."""
        is_over = self._times.last_ends(starts) - 1 + self._lateness <= self.watermark
        count = int(np.count_nonzero(is_over))
        self._forget(slots[:count])
        self._present.clear()
        self._panes.remove(starts[:count], slots[:count])
        # Of the later panes, the first wakes first.
        left = np.r_[starts[count:], self._panes.first_after(self.watermark)]
        self._wake = self._times.wakes(left, self.watermark, self._lateness)

    def _results_of(
        self,
        starts: Slots,
        slots: Slots,
        ends: Slots,
        *,
        after: int = NO_WATERMARK,
        wanted: Slots | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the results of windows, in order of their ends.

        Args:
            starts: of panes, in order.
            slots: of the panes.
            ends: of windows, in order.
            after: the watermark before.
            wanted: positions of ends, times the most keys, plus numbers of keys: the windows to emit, although they
                were closed before; None for all that were not.
        """
        low, high = np.searchsorted(starts, ends - self._times.size), np.searchsorted(starts, ends)
        counts = high - low
        for part in cuts(counts, _PAIRS):
            windows = np.repeat(np.arange(part.start, part.stop), counts[part])
            panes = slots[ranges(low[part], counts[part])]
            codes = windows * self._panes.most_keys + self._panes.numbers(panes)
            if wanted is not None:
                chosen = are_among(codes, wanted)
                codes, panes = codes[chosen], panes[chosen]
            elif not self._is_even(after):
                groups = self.backend.space.groups(panes)
                chosen = ends[windows] - 1 > self.backend.watermarks[groups]
                codes, panes = codes[chosen], panes[chosen]
            yield from self._emit_parts(self._windows(codes, panes, ends, part.start))

    def _windows(self, codes: Slots, panes: Slots, ends: Slots, first: int) -> Closed:
        """Return the windows of panes, whose codes have the position of an end, from the first one on, and a key."""
        most = self._panes.most_keys
        codes = codes - first * most
        present, closed = closed_windows(codes, panes)
        return replace(closed, ends=ends[first + present // max(1, most)])

    def _starts_of(self, ends: Slots) -> Slots:
        return ends - self._times.size
