"""Timers by key, fired as batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa

from headgate import _native
from headgate._times import milli_of, millis_of
from headgate.errors import StateError
from headgate.stream.state.column import Column, Rows
from headgate.stream.state.keys import KeySpace
from headgate.stream.state.states import ColumnState
from headgate.stream.state.table import distinct

if TYPE_CHECKING:
    from headgate.stream.state.column import Clock
    from headgate.stream.state.current import CurrentBatch, Selection
    from headgate.stream.state.table import Slots

#: Name of the column of timestamps.
TIMESTAMP: Final = "timestamp"
#: The watermark before the first one.
NO_WATERMARK: Final = -(1 << 62)

#: Timers of which fewer are not worth looking at.
_FEW: Final = 1 << 12


def kept_watermark(watermark: int) -> int | None:
    """Return a watermark that a checkpoint has: neither that before the first one, nor that after all rows."""
    return watermark if NO_WATERMARK < watermark < -NO_WATERMARK else None


class Timers(ColumnState):
    """Timers of one kind of time. A key has at most one timer for a timestamp, as in Flink."""

    kind = "timers"

    def __init__(self, name: str, column: Column, current: CurrentBatch) -> None:
        super().__init__(name, column, current)
        self._queue: Final = _native.TimeQueue(column.space.scope.memory.native)
        #: Length of the queue from which on it is worth looking for deleted timers.
        self._tidy_at = _FEW

    @classmethod
    def create(
        cls, name: str, types: pa.Schema, space: KeySpace, current: CurrentBatch, clock: Clock
    ) -> Self:
        """Return new timers."""
        extra = pa.schema([*space.extra, (TIMESTAMP, types.field("value").type)])
        timers = KeySpace(space.scope, extra)
        return cls(name, Column(timers, types.field("value").type, clock), current)

    def register(self, timestamps: Any, *, where: Any = None) -> None:
        """Register a timer for the key of each row.

        Args:
            timestamps: an array with one timestamp per row of the batch: of Arrow's timestamps of any unit, rounded down
                to milliseconds; dates; or integers, which are milliseconds since 1970.
            where: booleans, one per row or per distinct key, for the rows that get a timer. None for all.

        Raises:
            StateError: another number of timestamps or booleans, or a null.
            UnsupportedTypeError: values that are no timestamps.
        """
        columns = self._columns(timestamps, self._current.rows(where))
        timers = self.space.resolve(columns)
        new = ~self.column.present[timers.slots]
        slots, times = timers.slots[new], columns[TIMESTAMP].take(pa.array(timers.first[new]))
        self.column.put(slots, times)
        self._queue.push(times, slots)

    def delete(self, timestamps: Any, *, where: Any = None) -> None:
        """Delete the timer of each row's key for a timestamp, if there is one. Arguments as for :meth:`register`."""
        slots = self.space.find(self._columns(timestamps, self._current.rows(where)))
        self.column.drop(distinct(slots[slots >= 0]))
        self._tidy()

    def advance(self, until: int) -> pa.RecordBatch:
        """Remove the timers up to and including a time, and return them in order of time.

        Args:
            until: the watermark or the processing time, in milliseconds since 1970, or a datetime.

        Returns:
            A batch of the key columns, the columns of the namespace, and ``timestamp``, int64 of milliseconds since 1970.
        """
        return self._fire(*self._due(milli_of(until)))

    def advance_in_parts(self, until: int, most: int) -> Iterator[pa.RecordBatch]:
        """Remove the timers up to and including a time as :meth:`advance`, in batches of so many, at least one.

        A timer that is deleted before its batch is asked for is not in it.
        """
        times, slots = self._due(until)
        for first in range(0, max(1, len(slots)), most):
            yield self._fire(times[first : first + most], slots[first : first + most])

    def _due(self, until: int) -> tuple[Slots, Slots]:
        times, slots = (numbers.to_numpy() for numbers in self._queue.pop(until))
        return times, slots

    def _fire(self, times: Slots, slots: Slots) -> pa.RecordBatch:
        # A deleted timer stays in the queue, and its slot may have another timer.
        due = self.column.present[slots] & (self.column.table["value"][slots] == times)
        slots = slots[due]
        fired = self.space.keys(slots)
        self.column.drop(slots)
        return fired

    @property
    def next_timestamp(self) -> int | None:
        """Time of the first timer in milliseconds; None if there is none. It may be that of a deleted timer."""
        return self._queue.first

    def close(self) -> None:
        """Free the timers."""
        super().close()
        self._queue.clear()

    def load(self, slots: Slots, rows: Rows) -> None:
        """Store timers of a snapshot, one per slot."""
        super().load(slots, rows)
        here = pa.array(rows.present)
        self._queue.push(rows.values.filter(here), slots[rows.present])
        self._tidy()

    def table(self) -> pa.Table:
        """Return the keys and timestamps of all timers."""
        return super().table().drop_columns(["value"])

    def _columns(self, timestamps: Any, selection: Selection) -> pa.RecordBatch:
        timestamps = selection.values(millis_of(timestamps), pa.int64())
        if timestamps.null_count:
            raise StateError(
                "a timestamp is null", remedy="where=timestamps.is_valid() · fill the nulls"
            )
        columns = [*selection.rows(selection.batch.columns).columns, timestamps]
        return pa.RecordBatch.from_arrays(columns, schema=self.space.schema)

    def _tidy(self) -> None:
        if len(self._queue) <= self._tidy_at:
            return
        slots = np.flatnonzero(self.column.present)
        if len(self._queue) > 2 * len(slots):
            self._queue.clear()
            self._queue.push(self.column.table["value"][slots], slots)
        self._tidy_at = max(_FEW, 2 * len(slots))
