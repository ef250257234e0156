"""The join of rows whose times are near each other. Source: Flink's IntervalJoinOperator, by batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headgate.stream.operators.joining import JoinOperator, chosen
from headgate.stream.state.rows import PAIRS, UNTIL
from headgate.stream.state.timers import NO_WATERMARK
from headgate.stream.windows.kinds import times_of

if TYPE_CHECKING:
    from headgate.stream.state.rows import Matches
    from headgate.stream.state.table import Slots


@dataclass(frozen=True, slots=True)
class Interval:
    """A right row matches a left one if its time is within an interval around that of the left row.

    Attributes:
        times: for each side the column of times.
        lower: start of the interval, in ms after the time of the left row.
        upper: its end in the same way, or the name of a column of the left side that has the last time itself.
    """

    times: tuple[str, str]
    lower: int
    upper: int | str

    def bounds(self, side: int, rows: pa.RecordBatch, times: Slots) -> tuple[Slots, Slots]:
        """Return for each row the first and the last time of rows of the other side that may match it."""
        if side:
            first = np.full(len(times), NO_WATERMARK)
            if not isinstance(self.upper, str):
                first = times - self.upper
            return first, times - self.lower
        first = times + self.lower
        if not isinstance(self.upper, str):
            return first, times + self.upper
        column = rows[self.upper]
        if not column.null_count:
            return first, times_of(column, self.upper)
        # A comparison with null is not true: nothing matches.
        is_null = np.asarray(column.is_null().to_numpy(zero_copy_only=False))
        last = np.full(len(times), NO_WATERMARK)
        last[~is_null] = times_of(column.drop_null(), self.upper)
        return first, last

    @property
    def delay(self) -> int:
        """Return how far behind the watermark the time of a row of the result may be, in ms.

        A bound that is a column has no greatest value: rows without a match are emitted when it has passed.
        """
        upper = 0 if isinstance(self.upper, str) else self.upper
        return max(0, upper, -self.lower)


class IntervalJoinOperator(JoinOperator):
    """Keeps rows of both sides until the watermark says that no match can come.

    Args:
        interval: the times that match.
        arguments: of :class:`JoinOperator`.
    """

    _kind = "within"

    def __init__(self, interval: Interval, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._interval = interval

    @property
    def watermark_delay(self) -> int:
        """Operators behind this one take times of both sides for their own."""
        return self._interval.delay

    def _take(self, side: int, rows: pa.RecordBatch) -> None:
        times = times_of(rows[self._interval.times[side]], self._interval.times[side])
        rows, times = self._admit(side, rows, times)
        if not rows.num_rows:
            return
        first, last = self._interval.bounds(side, rows, times)
        self._state.set_keys(self._keys_of(side, rows))
        batch = self._state.current.batch
        matches = self._rows[1 - side].matches(batch.slots, batch.rows, first, last)
        counts = self._pair(side, rows, times, matches)
        waits = last > self.watermark
        if self._is_outer[side]:
            self._emit_alone(side, rows.filter(pa.array(~waits & (counts == 0))))
        if waits.any():
            stored = self._stored(side, chosen(rows, waits))
            owners = batch.row_slots[waits]
            self._rows[side].keep(owners, stored, times[waits], last[waits], counts[waits])

    def _pair(self, side: int, rows: pa.RecordBatch, times: Slots, matches: Matches) -> Slots:
        """Emit the pairs of rows; return how many each row of an outer side has."""
        other = self._rows[1 - side]
        counts = np.zeros(rows.num_rows, np.int64)
        for pairs in matches.parts():
            numbers, elements = pairs
            if side and isinstance(self._interval.upper, str):
                reaches = other.numbers(UNTIL, elements) >= times[numbers]
                numbers, elements = numbers[reaches], elements[reaches]
            if not len(numbers):
                continue
            if self._is_outer[side]:
                counts += np.bincount(numbers, minlength=len(counts))
            if self._is_outer[1 - side]:
                other.count_pairs(elements, 1)
            self._emit_pairs(side, rows, numbers, elements)
        return counts

    def advance_watermark(self, watermark: int) -> None:
        """Drop the rows that wait no longer; those of an outer side without a match are emitted."""
        if watermark <= self.watermark:
            return
        self.watermark = watermark
        for side, state in enumerate(self._rows):
            due = state.due(watermark)
            if self._is_outer[side]:
                self._emit_alone_of_state(side, due[state.numbers(PAIRS, due) == 0])
            state.remove(due)
