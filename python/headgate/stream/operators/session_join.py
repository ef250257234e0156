"""The join of rows that are in one session, which rows of both sides make. Source: Flink's window join, by batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from headgate.stream.operators.joining import LATE_SIDES, JoinOperator, chosen
from headgate.stream.state.rows import Matches
from headgate.stream.windows.aggregates import WINDOW_END, WINDOW_START, Aggregate
from headgate.stream.windows.kinds import SessionWindow, millis, times_of
from headgate.stream.windows.sessions import SessionWindowOperator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.stream.graph.operator import OperatorContext
    from headgate.stream.state.descriptors import StateTtlConfig
    from headgate.stream.state.table import Slots

#: Columns of the rows from which sessions are made: the time, and the number in the batch.
_TIME: Final = "\0time"
_ROW: Final = "\0row"


class SessionJoinOperator(JoinOperator):
    """Keeps rows of both sides until their sessions are over. An operator of windows says which sessions there are.

    Args:
        window: the gap.
        times: for each side the column of times.
        arguments: of :class:`JoinOperator`; the columns of the result end with start and end of the session.
    """

    _kind = "session"

    def __init__(self, window: SessionWindow, times: tuple[str, str], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._window, self._times = window, times
        self._shown = self._columns.schema.field(-1).type
        columns = [pa.field(name, pa.int64()) for name in (_TIME, _ROW)]
        self._schema = pa.schema([*self._sides.key_schema.remove_metadata(), *columns])

    def open(self, context: OperatorContext) -> None:
        """Restore the rows and the sessions."""
        super().open(context)
        self._sessions.watermark = self.watermark

    def _opened(self, context: OperatorContext, ttl: StateTtlConfig | None = None) -> None:
        self._sessions = SessionWindowOperator(
            self._schema,
            keys=self._schema.names[:-2],
            time=_TIME,
            window=self._window,
            aggregates=[Aggregate("count", name="\0rows")],
            backend=self._state,
        )
        super()._opened(context, ttl)

    def _take(self, side: int, rows: pa.RecordBatch) -> None:
        times = times_of(rows[self._times[side]], self._times[side])
        if (without := self._without_key(side, rows)) is not None:
            self._take_without_key(side, chosen(rows, without), times[without])
            rows, times = chosen(rows, ~without), times[~without]
        if not rows.num_rows:
            return
        columns = [*self._keys_of(side, rows), pa.array(times), pa.array(np.arange(len(times)))]
        late = self._sessions.process(pa.RecordBatch.from_arrays(columns, schema=self._schema)).late
        if late.num_rows:
            in_time = np.ones(len(times), np.bool_)
            in_time[late[_ROW].to_numpy()] = False
            self._context.emit(chosen(rows, ~in_time), LATE_SIDES[side])
            rows, times = chosen(rows, in_time), times[in_time]
        if rows.num_rows:
            self._state.set_keys(self._keys_of(side, rows))
            owners = self._state.current.batch.row_slots
            self._rows[side].keep(owners, self._stored(side, rows), times)

    def _take_without_key(self, side: int, rows: pa.RecordBatch, times: Slots) -> None:
        """Handle rows of which each has a session of its own, since it matches nothing."""
        ends = times + millis(self._window.gap)
        late = ends - 1 <= self.watermark
        if late.any():
            self._context.emit(chosen(rows, late), LATE_SIDES[side])
        if self._is_outer[side] and not late.all():
            rows, windows = chosen(rows, ~late), (times[~late], ends[~late])
            values: list[list[pa.Array] | None] = [None, None]
            values[side] = self._values_of(side, rows)
            shown = map(self._shown_as, windows)
            self._context.emit(self._columns.batch(self._keys_of(side, rows), values, *shown), None)

    def advance_watermark(self, watermark: int) -> None:
        """Emit the pairs of the sessions that are over."""
        if watermark <= self.watermark:
            return
        self.watermark = watermark
        for output in self._sessions.close_until(watermark):
            if output.results.num_rows:
                self._close(output.results)

    def _close(self, sessions: pa.RecordBatch) -> None:
        self._state.set_keys(sessions.columns[: len(self._sides.key_schema)])
        batch = self._state.current.batch
        starts, ends = (np.asarray(sessions[n].to_numpy()) for n in (WINDOW_START, WINDOW_END))
        left, right = (
            state.matches(batch.slots, batch.rows, starts, ends - 1) for state in self._rows
        )
        shown = self._shown_as(starts), self._shown_as(ends)
        for numbers, lefts in left.parts():
            pairs = Matches(right.begins[numbers], right.counts[numbers], right.elements)
            for at, rights in pairs.parts():
                self._emit_sessions(lefts[at], rights, numbers[at], shown)
        for side, (mine, others) in enumerate(((left, right), (right, left))):
            for numbers, elements in mine.parts():
                alone = others.counts[numbers] == 0
                if self._is_outer[side] and alone.any():
                    both = [np.full(np.count_nonzero(alone), -1)] * 2
                    both[side] = elements[alone]
                    self._emit_sessions(both[0], both[1], numbers[alone], shown)
                self._rows[side].remove(elements)

    def _emit_sessions(
        self, lefts: Slots, rights: Slots, numbers: Slots, shown: Sequence[pa.Array]
    ) -> None:
        """Emit pairs of the state; ``numbers`` are those of their sessions, of which ``shown`` has starts and ends."""
        self._emit_of_state(
            lefts, rights, lambda at: [times.take(pa.array(numbers[at])) for times in shown]
        )

    def _shown_as(self, numbers: Slots) -> pa.Array:
        return pa.array(numbers, pa.int64()).view(self._shown)
