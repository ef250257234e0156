"""The first row of each key within a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headgate.stream.graph.operator import (
    DUPLICATES,
    LATE_DROPPED,
    OperatorContext,
    OperatorSnapshot,
)
from headgate.stream.operators.keyed import KeyedOperator
from headgate.stream.operators.windowed import LATE
from headgate.stream.state.backend import EVENT_TIMERS
from headgate.stream.state.descriptors import StateTtlConfig, ValueStateDescriptor
from headgate.stream.state.timers import NO_WATERMARK, kept_watermark
from headgate.stream.state.values import is_valid
from headgate.stream.windows.kinds import times_of

if TYPE_CHECKING:
    from datetime import timedelta

    from headgate.stream.state.backend import KeyedStateBackend
    from headgate.stream.state.table import Mask, Slots

#: Name of the state: the time of the row of each key that was emitted last.
_FIRST: Final = "first"
#: Timers that are handled at once.
_MOST_TIMERS: Final = 1 << 16


class DeduplicateOperator(KeyedOperator):
    """Emits a row if its key has emitted none for a time.

    Args:
        schema: of the input.
        keys: the key columns.
        within: the time; None for ever.
        time: the column of event times; None for processing time.
    """

    def __init__(
        self, schema: pa.Schema, keys: tuple[str, ...], within: timedelta | None, time: str | None
    ) -> None:
        self._schema, self._keys, self._within, self._time = schema, keys, within, time
        self._watermark = NO_WATERMARK
        self._duplicates = 0

    def open(self, context: OperatorContext) -> None:
        """Restore the keys that have emitted."""
        super().open(context)
        backend = self._restore(context, pa.schema([self._schema.field(key) for key in self._keys]))
        # In processing time a key is forgotten as values are that are older than their time to live.
        ttl = (
            None if self._within is None or self._time is not None else StateTtlConfig(self._within)
        )
        self._first = backend.get_state(ValueStateDescriptor(_FIRST, pa.int64(), ttl))
        self._opened(context)
        if context.restored_watermark is not None:
            self._watermark = context.restored_watermark

    @property
    def _millis(self) -> int:
        return 0 if self._within is None else int(self._within.total_seconds() * 1000)

    def process(self, batch: pa.RecordBatch) -> None:
        """Emit the rows that are no duplicates."""
        if self._time is None:
            times = np.full(batch.num_rows, self._context.clock())
        else:
            times = times_of(batch[self._time], self._time)
            late = times <= self._watermark
            if late.any():
                self._context.emit(batch.filter(pa.array(late)), LATE)
                batch, times = batch.filter(pa.array(~late)), times[~late]
        backend = self._backend
        if backend is None or not batch.num_rows:
            return
        backend.set_keys(batch.select(self._keys))
        new = self._new(backend, times)
        self._duplicates += batch.num_rows - int(np.count_nonzero(new))
        if new.any():
            self._context.emit(batch if new.all() else batch.filter(pa.array(new)), None)

    def _new(self, backend: KeyedStateBackend, times: Slots) -> Mask:
        """Return True for the rows that are no duplicates, and remember their times."""
        first = self._first.get()
        last, has_last = np.array(first.fill_null(0).to_numpy()), is_valid(first)
        groups, rows = backend.rows.to_numpy(), np.arange(len(times))
        new = np.zeros(len(times), np.bool_)
        changed = np.zeros(len(last), np.bool_)
        # A key emits one row in each turn, so there are as many turns as it has rows that are no duplicates.
        while True:
            distance = np.abs(times[rows] - last[groups[rows]])
            is_duplicate = has_last[groups[rows]]
            if self._within is not None:
                is_duplicate &= distance < self._millis
            others = rows[~is_duplicate]
            if not len(others):
                break
            of_keys = np.full(len(last), len(times))
            of_keys[groups[others[::-1]]] = others[::-1]
            emitted = of_keys[of_keys < len(times)]
            new[emitted] = True
            at = groups[emitted]
            last[at], has_last[at], changed[at] = times[emitted], True, True
            rows = rows[rows > of_keys[groups[rows]]]
        if changed.any():
            self._first.put(pa.array(last), where=pa.array(changed))
            if self._time is not None and self._within is not None:
                timers = backend.event_timers
                timers.register(pa.array(times + self._millis - 1), where=pa.array(new))
        return new

    def advance_watermark(self, watermark: int) -> None:
        """Forget the keys whose time is over."""
        self._watermark = watermark
        backend = self._backend
        if backend is None or EVENT_TIMERS not in backend.states:
            return
        for fired in backend.event_timers.advance_in_parts(watermark, _MOST_TIMERS):
            if fired.num_rows:
                backend.set_keys(fired.select(range(fired.num_columns - 1)))
                first = self._first.get()
                over = np.asarray(first.fill_null(0).to_numpy()) + self._millis - 1 <= watermark
                self._first.clear(where=pa.array(over))

    def snapshot(self, checkpoint: int, *, savepoint: bool) -> OperatorSnapshot | None:
        """Freeze the keys."""
        snapshot = super().snapshot(checkpoint, savepoint=savepoint)
        if snapshot is not None:
            snapshot.watermark = kept_watermark(self._watermark)
        return snapshot

    def unread_counter(self, output: str | None) -> str:
        """Return the counter of late rows."""
        return LATE_DROPPED if output == LATE else super().unread_counter(output)

    @property
    def dropped(self) -> Mapping[str, int]:
        """Duplicates, and keys that were forgotten by the clock."""
        return {**super().dropped, DUPLICATES: self._duplicates}
