"""Windows that are put together from panes: the state of the panes, and the results of windows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa

from headgate.stream.state.descriptors import ListStateDescriptor
from headgate.stream.windows.accumulators import combined, declared
from headgate.stream.windows.aggregates import WINDOW_END, WINDOW_START
from headgate.stream.windows.closing import MOST_WINDOWS, ROWS, Kind, Windows
from headgate.stream.windows.panes import cuts, grouped

if TYPE_CHECKING:
    from headgate.stream.state.lists import ListState
    from headgate.stream.state.table import Slots

#: Rows of closed windows that a function gets at once, unless one window has more.
_ROWS: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class Closed:
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


def closed_windows(codes: Slots, panes: Slots) -> tuple[Slots, Closed]:
    """Return the distinct codes of windows in order, and the windows, whose ends are the codes.

    Args:
        codes: of the window of each pane, not negative.
        panes: slots.
    """
    present, groups = grouped(codes, int(codes.max(initial=-1)) + 1)
    slots = np.empty(len(present), np.int64)
    slots[groups] = panes
    if len(slots) == len(panes):
        # Each window has one pane: they are in the order of the windows now.
        return present, Closed(present, slots, slots, np.arange(len(slots)))
    return present, Closed(present, slots, panes, groups)


class PaneWindows(Windows[Kind]):
    """Windows of panes; see :class:`Windows`. A subclass says which panes a row and a window have."""

    #: Start and end of a pane.
    namespace: ClassVar = pa.schema([(WINDOW_START, pa.int64()), (WINDOW_END, pa.int64())])

    def _declare(self) -> None:
        items = self._aggregates.accumulators
        self._states = {name: declared(self.backend, item) for name, item in items.items()}
        self._rows: ListState | None = None
        if self._function is not None:
            self._rows = self.backend.get_state(ListStateDescriptor(ROWS, self._row_type))

    def _add_rows(self, batch: pa.RecordBatch) -> None:
        """Add rows to their panes, which are the current keys."""
        for name, values in self._aggregates.inputs(batch).items():
            self._states[name].add(values)
        if self._rows is not None:
            self._rows.add(batch.to_struct_array())

    def _forget(self, slots: Slots) -> None:
        """Remove the values of panes."""
        self.backend.set_slots(slots)
        for state in self._states.values():
            state.clear()
        if self._rows is not None:
            self._rows.clear()

    def _starts_of(self, ends: Slots) -> Slots:
        """Return the starts of windows."""
        raise NotImplementedError

    @cached_property
    def _no_results(self) -> pa.RecordBatch:
        none = np.zeros(0, np.int64)
        return self._emit(Closed(none, none, none, none))

    def _emit_parts(self, closed: Closed) -> Iterator[pa.RecordBatch]:
        """Yield results in parts, without too many rows for a function."""
        count = len(closed.ends)
        if self._rows is None and count <= MOST_WINDOWS:
            yield self._emit(closed)
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
            yield self._emit(
                Closed(
                    closed.ends[part],
                    closed.slots[part],
                    panes[first:stop],
                    groups[first:stop] - part.start,
                )
            )

    def _emit(self, closed: Closed) -> pa.RecordBatch:
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
        return self._results(keys, self._starts_of(closed.ends), closed.ends, values)
