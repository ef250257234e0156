"""Tumbling and sliding windows by key, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa

from headgate.errors import StateError
from headgate.stream.state.backend import EVENT_TIMERS
from headgate.stream.state.descriptors import ListStateDescriptor, ValueStateDescriptor
from headgate.stream.state.groups import key_groups_of
from headgate.stream.state.table import are_among, distinct, ranges
from headgate.stream.state.timers import NO_WATERMARK, Timers
from headgate.stream.state.types import no_rows
from headgate.stream.windows.accumulators import combined, declared
from headgate.stream.windows.aggregates import WINDOW_END, WINDOW_START
from headgate.stream.windows.closing import MOST_WINDOWS, ROWS, Windows
from headgate.stream.windows.kinds import SlidingWindow, TumblingWindow, WindowOutput
from headgate.stream.windows.panes import OpenPanes, PaneTimes, cuts, grouped

if TYPE_CHECKING:
    from headgate.stream.state.lists import ListState
    from headgate.stream.state.table import Slots

#: Pairs of a window and a pane that are in memory at once, unless one window has more.
_PAIRS: Final = 1 << 18
#: Rows of closed windows that a function gets at once, unless one window has more.
_ROWS: Final = 1 << 18
#: State that is there for each pane.
_PANES: Final = "panes"


@dataclass(frozen=True, slots=True)
class _Closed:
    """Windows to emit.

    Attributes:
        ends: exclusive end of each.
        slots: slot of one pane of each, which has its key.
        panes: slots of the panes of all of them.
        groups: for each of the panes, the position of its window.
    """

    ends: Slots
    slots: Slots
    panes: Slots
    groups: Slots


class WindowOperator(Windows[TumblingWindow | SlidingWindow]):
    """Tumbling or sliding windows by key; see :class:`Windows`.

    State is kept by pane, the greatest slices of time of which all windows consist. A row is added to its pane once,
    and a window is put together from its panes when it closes. Rows of a window are in order of their panes.
    """

    #: Start and end of a pane.
    namespace: ClassVar = pa.schema([(WINDOW_START, pa.int64()), (WINDOW_END, pa.int64())])

    def _declare(self) -> None:
        backend = self.backend
        self._times = PaneTimes(self._window)
        self._panes = OpenPanes(self._key_schema)
        #: The watermark up to which windows were closed.
        self._closed_until = NO_WATERMARK
        #: The watermark from which on there is something to do.
        self._wake = -NO_WATERMARK
        self._present = backend.get_state(ValueStateDescriptor(_PANES, pa.bool_()))
        items = self._aggregates.accumulators
        self._states = {name: declared(backend, item) for name, item in items.items()}
        self._rows: ListState | None = None
        if self._function is not None:
            self._rows = backend.get_state(ListStateDescriptor(ROWS, self._row_type))
        self._restore()

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
        times, keys, late = self._times_of(batch), self._keys_of(batch), no_rows(self._schema)
        reached = self._reached(keys)
        is_late = self._times.last_ends(times) - 1 + self._lateness <= reached
        if is_late.any():
            late, in_time = batch.filter(pa.array(is_late)), np.flatnonzero(~is_late)
            batch, times = batch.take(pa.array(in_time)), times[in_time]
            keys, reached = [key.take(pa.array(in_time)) for key in keys], reached[in_time]
        starts = self._times.starts(times)
        self.backend.set_keys([*keys, pa.array(starts), pa.array(starts + self._times.length)])
        for name, values in self._aggregates.inputs(batch).items():
            self._states[name].add(values)
        if self._rows is not None:
            self._rows.add(batch.to_struct_array())
        panes = self.backend.current.batch
        slots, starts, reached = panes.slots, starts[panes.first], reached[panes.first]
        new = np.flatnonzero(~self._present.column.present[slots])
        if len(new):
            self._present.column.put(slots[new], pa.array(np.ones(len(new), np.bool_)))
            keys_of_new = panes.columns.take(pa.array(panes.first[new]))
            self._add(slots[new], starts[new], keys_of_new)
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
        groups = self.backend.scope.key_groups
        return watermark >= int(self.backend.watermarks[groups.start : groups.stop].max())

    def _add(self, slots: Slots, starts: Slots, keys: pa.RecordBatch) -> None:
        """Add panes that are new."""
        self._panes.add(slots, starts, keys.select(range(len(self._key_schema))))
        wake = self._times.wakes(starts, self._closed_until, self._lateness)
        self._wake = min(self._wake, wake)

    def _updates(self, slots: Slots, starts: Slots, reached: Slots) -> pa.RecordBatch:
        """Return the results of the windows of panes that are closed, but not for good."""
        if not self._lateness:
            return self._no_results
        times = self._times
        first = np.maximum(times.first_ends(starts), times.ends_after(reached + 2 - self._lateness))
        ends, pairs = times.ends_from_to(first, np.minimum(times.last_ends(starts), reached + 1))
        if not len(ends):
            return self._no_results
        numbers = self._panes.numbers(slots)
        ends, which = np.unique(ends, return_inverse=True)
        wanted = distinct(which * self._panes.most_keys + numbers[pairs])
        all_starts, all_slots = self._panes.ordered()
        mine = np.isin(self._panes.numbers(all_slots), numbers)
        return pa.concat_batches(
            self._results_of(all_starts[mine], all_slots[mine], ends, wanted=wanted)
        )

    def _close(self) -> Iterator[WindowOutput]:
        until, after = self.watermark, self._closed_until
        self._closed_until, nothing, is_empty = until, no_rows(self._schema), True
        if until >= self._wake:
            starts, slots = self._panes.ordered()
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
        self.backend.set_slots(slots[:count])
        for state in self._states.values():
            state.clear()
        if self._rows is not None:
            self._rows.clear()
        self._present.clear()
        self._panes.remove_first(count)
        self._wake = self._times.wakes(starts[count:], self.watermark, self._lateness)

    @cached_property
    def _no_results(self) -> pa.RecordBatch:
        none = np.zeros(0, np.int64)
        return self._emit(_Closed(none, none, none, none))

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
            for closed in self._parts(self._windows(codes, panes, ends, part.start)):
                yield self._emit(closed)

    def _windows(self, codes: Slots, panes: Slots, ends: Slots, first: int) -> _Closed:
        """Return the windows of panes, whose codes have the position of an end, from the first one on, and a key."""
        most = self._panes.most_keys
        codes = codes - first * most
        present, groups = grouped(codes, int(codes.max(initial=-1)) + 1)
        slots = np.empty(len(present), np.int64)
        slots[groups] = panes
        # If each window has one pane, the panes are in the order of the windows now.
        is_single = len(slots) == len(panes)
        return _Closed(
            ends[first + present // max(1, most)],
            slots,
            slots if is_single else panes,
            np.arange(len(slots)) if is_single else groups,
        )

    def _parts(self, closed: _Closed) -> Iterator[_Closed]:
        """Yield windows in parts, without too many rows for a function."""
        count = len(closed.ends)
        if self._rows is None and count <= MOST_WINDOWS:
            yield closed
            return
        order = np.argsort(closed.groups, kind="stable")
        panes, groups = closed.panes[order], closed.groups[order]
        sizes, most = np.ones(count, np.int64), MOST_WINDOWS
        if self._rows is not None:
            self.backend.set_slots(panes)
            sizes, most = np.zeros(count, np.int64), _ROWS
            np.add.at(sizes, groups, self._rows.lengths())
        for part in cuts(sizes, most):
            first, stop = np.searchsorted(groups, [part.start, part.stop])
            yield _Closed(
                closed.ends[part],
                closed.slots[part],
                panes[first:stop],
                groups[first:stop] - part.start,
            )

    def _emit(self, closed: _Closed) -> pa.RecordBatch:
        count, groups = len(closed.ends), closed.groups
        self.backend.set_slots(closed.panes)
        if self._rows is not None:
            lists = self._rows.get()
            lengths = np.zeros(count, np.int64)
            np.add.at(lengths, groups, np.diff(lists.offsets.to_numpy()))
            offsets = pa.array(np.r_[0, np.cumsum(lengths)], pa.int32())
            values = {ROWS: pa.ListArray.from_arrays(offsets, lists.values)}
        else:
            values = {name: state.get() for name, state in self._states.items()}
            if len(groups) != count:
                items = self._aggregates.accumulators
                values = {
                    name: combined(items[name], groups, of_panes, count)
                    for name, of_panes in values.items()
                }
        keys = self.backend.space.keys(closed.slots).columns
        return self._results(keys, closed.ends - self._times.size, closed.ends, values)
