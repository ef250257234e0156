"""Session windows by key, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa

from headgate import _native
from headgate.stream.state.descriptors import MapStateDescriptor
from headgate.stream.state.keys import Batch
from headgate.stream.state.table import are_among
from headgate.stream.state.timers import NO_WATERMARK
from headgate.stream.windows.accumulators import combined
from headgate.stream.windows.closing import MOST_WINDOWS, ROWS, Windows
from headgate.stream.windows.kinds import (
    SessionWindow,
    WindowOutput,
    coded,
    millis,
)

if TYPE_CHECKING:
    from headgate.stream.state.table import Mask, Slots

_END: Final = "end"


@dataclass(frozen=True, slots=True)
class _Sessions:
    """Sessions of some keys.

    Attributes:
        keys: for each session, the position of its key.
        starts: time of the first row, in milliseconds.
        values: for each session a struct of its end and its accumulators, or its rows.
    """

    keys: Slots
    starts: Slots
    values: pa.StructArray

    @property
    def ends(self) -> Slots:
        """Time of the last row and a gap, in milliseconds."""
        return np.asarray(self.values.field(_END).to_numpy())

    def filter(self, which: Mask) -> _Sessions:
        """Return some of the sessions."""
        return _Sessions(self.keys[which], self.starts[which], self.values.filter(pa.array(which)))

    def take(self, order: Slots) -> _Sessions:
        """Return the sessions in another order."""
        return _Sessions(self.keys[order], self.starts[order], self.values.take(pa.array(order)))


class SessionWindowOperator(Windows[SessionWindow]):
    """Session windows by key; see :class:`Windows`.

    The rows of a batch arrive at the same time: sessions are merged with all of them, and then those that are over
    are late.
    """

    namespace: ClassVar = pa.schema([])

    def _declare(self) -> None:
        self._timers = self.backend.event_timers
        self._gap = millis(self._window.gap)
        fields = [(name, item.type) for name, item in self._aggregates.accumulators.items()]
        if self._function is not None:
            fields = [(ROWS, pa.list_(self._row_type))]
        self._type = pa.struct([(_END, pa.int64()), *fields])
        self._sessions = self.backend.get_state(
            MapStateDescriptor("sessions", pa.int64(), self._type)
        )

    @property
    def wake(self) -> int:
        """The time of the first timer."""
        first = self._timers.next_timestamp
        return -NO_WATERMARK if first is None else first

    def process(self, batch: pa.RecordBatch) -> WindowOutput:
        """Add the rows of a batch to their sessions; see ``Windows.process()``."""
        times = self._times_of(batch)
        self.backend.set_keys(self._keys_of(batch))
        keys, rows = self.backend.keys, self.backend.rows.to_numpy()
        self._slots = self.backend.current.batch.slots
        old = self._of_current_keys()
        all_keys, all_starts = np.r_[old.keys, rows], np.r_[old.starts, times]
        all_ends = np.r_[old.ends, times + self._gap]
        joint = _native.join_intervals(all_keys, all_starts, all_ends)
        numbers, first, ends = (of.to_numpy() for of in joint)
        of_rows = numbers[len(old.keys) :]
        in_time = ends - 1 + self._lateness > self.watermark
        changed = np.zeros(len(first), np.bool_)
        changed[of_rows] = True
        changed &= in_time
        # Members of sessions that change, by the number of the session among these.
        member = changed[numbers]
        numbers_of_changed = (np.cumsum(changed) - 1)[numbers]
        values = self._joined(batch, old, numbers_of_changed, member, ends[changed])
        begin = first[changed]
        new = _Sessions(all_keys[begin], all_starts[begin], values)
        self._replace(keys, old.filter(member[: len(old.keys)]), new)
        closed = self._register(new.ends)
        late = batch.filter(pa.array(~in_time[of_rows]))
        return WindowOutput(self._emit(keys, new.filter(closed)), late)

    def _close(self) -> Iterator[WindowOutput]:
        for fired in self._timers.advance_in_parts(self.watermark, MOST_WINDOWS):
            yield self._closed(fired)

    def _register(self, ends: Slots) -> Mask:
        """Register the timers that emit the windows of the current keys and forget them.

        Args:
            ends: exclusive ends of the windows, one per row of the current keys.

        Returns:
            The windows that are closed already. They are emitted now, so they need no timer but the one that
            forgets them.
        """
        last = ends - 1
        closed: Mask = last <= self.watermark
        self._timers.register(np.where(closed, last + self._lateness, last))
        if self._lateness:
            self._timers.register(last + self._lateness)
        return closed

    def _closed(self, fired: pa.RecordBatch) -> WindowOutput:
        """Emit and remove the windows of timers that have fired."""
        self.backend.set_keys(fired.select(range(fired.num_columns - 1)))
        keys, rows = self.backend.keys, self.backend.rows.to_numpy()
        self._slots = self.backend.current.batch.slots
        sessions = self._of_current_keys()
        times = fired["timestamp"].to_numpy()
        last = sessions.ends - 1
        closed = _pairs_in(sessions.keys, last, rows, times)
        over = _pairs_in(sessions.keys, last + self._lateness, rows, times)
        emitted = sessions.filter(closed)
        results = self._emit(keys, emitted.take(np.argsort(emitted.ends, kind="stable")))
        self._remove(keys, sessions.filter(over))
        return WindowOutput(results, self._no_late)

    def _of_current_keys(self) -> _Sessions:
        maps = self._sessions.items()
        keys = np.repeat(np.arange(len(maps)), np.diff(maps.offsets.to_numpy()))
        return _Sessions(keys, np.asarray(maps.keys.to_numpy()), maps.items)

    def _joined(
        self, batch: pa.RecordBatch, old: _Sessions, numbers: Slots, member: Mask, ends: Slots
    ) -> pa.StructArray:
        """Return the values of changed sessions, from those of old sessions and from rows."""
        count = len(ends)
        fields = [pa.array(ends, pa.int64())]
        if self._function is not None:
            lists = old.values.field(ROWS)
            owners = np.repeat(np.arange(len(lists)), np.diff(lists.offsets.to_numpy()))
            rows = pa.concat_arrays([lists.flatten(), batch.to_struct_array()])
            at = np.r_[owners, np.arange(len(old.keys), len(numbers))]
            at, rows = at[member[at]], rows.filter(pa.array(member[at]))
            order = np.argsort(numbers[at], kind="stable")
            lengths = np.bincount(numbers[at], minlength=count)
            offsets = pa.array(np.r_[0, np.cumsum(lengths)], pa.int32())
            fields.append(pa.ListArray.from_arrays(offsets, rows.take(pa.array(order))))
            return pa.StructArray.from_arrays(fields, fields=list(self._type))
        inputs = self._aggregates.inputs(batch)
        for name, item in self._aggregates.accumulators.items():
            values = pa.concat_arrays([old.values.field(name), inputs[name]])
            values = values.filter(pa.array(member))
            fields.append(combined(item, numbers[member], values, count))
        return pa.StructArray.from_arrays(fields, fields=list(self._type))

    def _replace(self, keys: pa.RecordBatch, old: _Sessions, new: _Sessions) -> None:
        # Most sessions get later rows, and keep their start: their entry is written over.
        self._remove(keys, old.filter(~_pairs_in(old.keys, old.starts, new.keys, new.starts)))
        self._select(keys, new.keys)
        self._sessions.put(pa.array(new.starts), new.values)

    def _remove(self, keys: pa.RecordBatch, sessions: _Sessions) -> None:
        if not len(sessions.keys):
            return
        self._select(keys, sessions.keys)
        self._sessions.remove(pa.array(sessions.starts))

    def _select(self, keys: pa.RecordBatch, positions: Slots) -> None:
        """Set the current keys, one per row, to some of those of the batch, whose slots are known."""
        columns = keys.take(pa.array(positions))
        self.backend.current.set(Batch(columns, positions, self._slots, positions[:0]))

    def _emit(self, keys: pa.RecordBatch, sessions: _Sessions) -> pa.RecordBatch:
        names = [field.name for field in self._type][1:]
        values = {name: sessions.values.field(name) for name in names}
        columns = keys.take(pa.array(sessions.keys)).columns
        return self._results(columns, sessions.starts, sessions.ends, values)


def _pairs_in(keys: Slots, times: Slots, of_keys: Slots, of_times: Slots) -> Mask:
    """Return True for each pair of a key and a time that is among others."""
    codes = coded(np.r_[keys, of_keys], np.r_[times, of_times])
    return are_among(codes[: len(keys)], codes[len(keys) :])
