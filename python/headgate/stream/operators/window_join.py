"""The join of rows that are in one window. Source: Flink's window join, by batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headgate.stream.operators.joining import LATE_SIDES, JoinOperator, chosen
from headgate.stream.state.rows import TIME, UNTIL, Matches
from headgate.stream.windows.aggregates import WINDOW_END, WINDOW_START
from headgate.stream.windows.kinds import SlidingWindow, TumblingWindow, assign, millis, times_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.stream.state.table import Mask, Slots


class WindowJoinOperator(JoinOperator):
    """Keeps rows of both sides until their windows are over, each in all of its windows.

    Args:
        window: the kind of windows.
        times: for each side the column of times.
        arguments: of :class:`JoinOperator`; the columns of the result end with start and end of the window.
    """

    _kind = "window"

    def __init__(
        self, window: TumblingWindow | SlidingWindow, times: tuple[str, str], *arguments: Any
    ) -> None:
        super().__init__(*arguments)
        self._window, self._times = window, times
        self._shown = self._columns.schema.field(-1).type

    def _take(self, side: int, rows: pa.RecordBatch) -> None:
        times = times_of(rows[self._times[side]], self._times[side])
        numbers, starts = assign(self._window, times)
        last = starts + millis(self._window.size) - 1
        is_open = last > self.watermark
        if not is_open.all():
            late = np.ones(rows.num_rows, np.bool_)
            late[numbers[is_open]] = False
            if late.any():
                self._context.emit(chosen(rows, late), LATE_SIDES[side])
            numbers, starts, last = numbers[is_open], starts[is_open], last[is_open]
        if (without := self._without_key(side, rows)) is not None:
            # No row of the other side is to come for it: it need not wait.
            alone = without[numbers]
            if self._is_outer[side] and alone.any():
                self._emit_in_windows(side, rows.take(pa.array(numbers[alone])), starts[alone])
            numbers, starts, last = numbers[~alone], starts[~alone], last[~alone]
        if not len(numbers):
            return
        if len(numbers) != rows.num_rows or not np.array_equal(numbers, np.arange(len(numbers))):
            rows = rows.take(pa.array(numbers))
        self._state.set_keys(self._keys_of(side, rows))
        owners = self._state.current.batch.row_slots
        self._rows[side].keep(owners, self._stored(side, rows), starts, last)

    def advance_watermark(self, watermark: int) -> None:
        """Emit the pairs of the windows that are over."""
        if watermark <= self.watermark:
            return
        self.watermark = watermark
        left, right = self._rows
        due = left.due(watermark), right.due(watermark)
        codes = _codes(
            [state.owners(rows) for state, rows in zip(self._rows, due, strict=True)],
            [state.numbers(TIME, rows) for state, rows in zip(self._rows, due, strict=True)],
        )
        order = np.argsort(codes[1], kind="stable")
        ordered = codes[1][order]
        begins = np.searchsorted(ordered, codes[0])
        counts = np.searchsorted(ordered, codes[0], side="right") - begins
        for numbers, rights in Matches(begins, counts, due[1][order]).parts():
            self._emit_windows(due[0][numbers], rights)
        if self._is_outer[0]:
            lefts = due[0][counts == 0]
            self._emit_windows(lefts, np.full(len(lefts), -1))
        if self._is_outer[1]:
            rights = due[1][~_among(codes[1], np.sort(codes[0]))]
            self._emit_windows(np.full(len(rights), -1), rights)
        left.remove(due[0])
        right.remove(due[1])

    def _emit_windows(self, lefts: Slots, rights: Slots) -> None:
        """Emit pairs of the state with their windows; a number below 0 is for no row."""

        def windows(pairs: Slots) -> Sequence[pa.Array]:
            of_left, of_right = lefts[pairs], rights[pairs]
            side = int(of_left[0] < 0)
            state, elements = self._rows[side], (of_left, of_right)[side]
            last = state.numbers(UNTIL, elements)
            return self._shown_as(state.numbers(TIME, elements)), self._shown_as(last + 1)

        self._emit_of_state(lefts, rights, windows)

    def _emit_in_windows(self, side: int, rows: pa.RecordBatch, starts: Slots) -> None:
        values: list[list[pa.Array] | None] = [None, None]
        values[side] = self._values_of(side, rows)
        ends = starts + millis(self._window.size)
        windows = self._shown_as(starts), self._shown_as(ends)
        batch = self._columns.batch(self._keys_of(side, rows), values, *windows)
        self._context.emit(batch, None)

    def _shown_as(self, numbers: Slots) -> pa.Array:
        return pa.array(numbers, pa.int64()).view(self._shown)


def window_fields(time: pa.DataType) -> list[pa.Field]:
    """Return the columns of a window, beside a column of times of a type."""
    is_number = pa.types.is_integer(time)
    zone = time.tz if pa.types.is_timestamp(time) else None
    shown = pa.int64() if is_number else pa.timestamp("ms", zone)
    return [pa.field(WINDOW_START, shown), pa.field(WINDOW_END, shown)]


def _codes(owners: Sequence[Slots], starts: Sequence[Slots]) -> tuple[Slots, Slots]:
    """Return a number for each pair of an owner and a start, on both sides the same for equal pairs."""
    of_both = np.concatenate(starts)
    _, places = np.unique(of_both, return_inverse=True)
    width = int(places.max(initial=0)) + 1
    split = len(owners[0])
    return owners[0] * width + places[:split], owners[1] * width + places[split:]


def _among(numbers: Slots, ordered: Slots) -> Mask:
    """Return True for each number that is among others, which are in order."""
    if not len(ordered):
        return np.zeros(len(numbers), np.bool_)
    at = np.minimum(np.searchsorted(ordered, numbers), len(ordered) - 1)
    mask: Mask = ordered[at] == numbers
    return mask
