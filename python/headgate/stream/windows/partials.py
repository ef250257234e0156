"""Rows of one task by pane, of any key: the first of two phases of windows without keys. Decision: ADR 0056."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headgate.stream.state.timers import NO_WATERMARK
from headgate.stream.state.types import column_index, no_rows
from headgate.stream.windows.accumulators import combined
from headgate.stream.windows.aggregates import Aggregate, Aggregates
from headgate.stream.windows.closing import shown_type
from headgate.stream.windows.kinds import SlidingWindow, TumblingWindow, millis, times_of
from headgate.stream.windows.panes import PaneTimes

if TYPE_CHECKING:
    from headgate.stream.windows.top import Top

#: Name of the column with the start of a pane.
PANE: Final = "pane"
#: Most batches and most bytes of them that wait for each other.
_BATCHES: Final = 64
_BYTES: Final = 1 << 20


class PanePartials:
    """Aggregates rows by pane, until the results are asked for; a ``WindowOperator`` merges those of all tasks.

    Args:
        schema: schema of the rows.
        time: as for ``Windows``.
        window: the kind of windows.
        aggregates: columns of the results.
        top, of_windows: as for ``Windows``.
        allowed_lateness: time after the end of a window in which rows still change its result.
        early: not None if results do not wait for the end of a window.

    Attributes:
        schema: of the results: the start of the pane, and the accumulators.
        watermark: the greatest so far, in ms.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        time: str | None,
        window: TumblingWindow | SlidingWindow,
        allowed_lateness: timedelta,
        early: int | None = None,
        aggregates: Sequence[Aggregate] = (),
        top: Top | None = None,
        of_windows: bool = False,
    ) -> None:
        self._time = None if time is None else column_index(schema, time)
        self._is_eager = time is None or early is not None
        self._times = PaneTimes(window)
        self._lateness = millis(allowed_lateness)
        self._aggregates = Aggregates(schema, aggregates, top=top)
        self._of_windows = of_windows
        items = self._aggregates.accumulators
        shown = shown_type(schema, time)
        self.schema = pa.schema([(PANE, shown), *((name, a.type) for name, a in items.items())])
        self.watermark = NO_WATERMARK
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._wake = -NO_WATERMARK

    @property
    def is_due(self) -> bool:
        """True if a window needs the results, or they are many."""
        if self._is_eager or len(self._waiting) >= _BATCHES or self._bytes >= _BYTES:
            return bool(self._waiting)
        return bool(self._waiting) and self.watermark >= self._wake

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Add rows, and return those that are late for all their windows."""
        if self._time is None:
            # The task that merges has the clock.
            rows = np.zeros(batch.num_rows, np.int64)
            self._waiting.append(self._of_panes(rows, self._aggregates.inputs(batch)))
            return no_rows(batch.schema)
        times = (
            times_of(batch.column(self._time), batch.schema.names[self._time]) - self._of_windows
        )
        is_late = self._times.last_ends(times) - 1 + self._lateness <= self.watermark
        late = no_rows(batch.schema)
        if is_late.any():
            late, in_time = batch.filter(pa.array(is_late)), pa.array(~is_late)
            batch, times = batch.filter(in_time), times[~is_late]
        if batch.num_rows:
            starts = self._times.starts(times)
            self._add(self._of_panes(starts, self._aggregates.inputs(batch)))
        return late

    def take(self) -> pa.RecordBatch:
        """Return the results so far, a row per pane, and forget them."""
        waiting, self._waiting = self._waiting, []
        self._bytes, self._wake = 0, -NO_WATERMARK
        if len(waiting) == 1:
            return waiting[0]
        rows = pa.concat_batches(waiting) if waiting else no_rows(self.schema)
        starts = rows.column(0).view(pa.int64()).to_numpy()
        names = rows.schema.names[1:]
        return self._of_panes(starts, dict(zip(names, rows.columns[1:], strict=True)))

    def _add(self, panes: pa.RecordBatch) -> None:
        starts = panes.column(0).view(pa.int64()).to_numpy()
        wake = self._times.wakes(starts, self.watermark, self._lateness)
        self._wake = min(self._wake, wake)
        # Of a pane that has updates, no later watermark tells.
        if (self._times.first_ends(starts) - 1 <= self.watermark).any():
            self._wake = self.watermark
        self._waiting.append(panes)
        self._bytes += panes.nbytes

    def _of_panes(self, starts: np.ndarray, values: dict[str, pa.Array]) -> pa.RecordBatch:
        panes, groups = np.unique(starts, return_inverse=True)
        columns = [pa.array(panes, pa.int64()).view(self.schema.field(PANE).type)]
        for name, item in self._aggregates.accumulators.items():
            columns.append(combined(item, groups, values[name], len(panes)))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
