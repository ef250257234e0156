"""The join of rows with the version that was valid at their time. Source: Flink's TemporalRowTimeJoinOperator, by batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headgate.stream.operators.joining import JoinOperator
from headgate.stream.state.rows import TIME
from headgate.stream.state.table import distinct
from headgate.stream.state.timers import NO_WATERMARK
from headgate.stream.windows.kinds import times_of

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.stream.state.table import Slots

#: Most rows that are joined at once.
_PART = 1 << 16


class TemporalJoinOperator(JoinOperator):
    """Rows of the left side wait for the watermark; of the right side each key has the versions that they may need.

    Args:
        times: for each side the column of times.
        arguments: of :class:`JoinOperator`.
    """

    _kind = "as_of"

    def __init__(self, times: tuple[str, str], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._times = times

    def _take(self, side: int, rows: pa.RecordBatch) -> None:
        times = times_of(rows[self._times[side]], self._times[side])
        # A version that comes late is still the one of later rows.
        rows, times = self._admit(side, rows, times, is_ever_late=not side)
        if rows.num_rows:
            self._state.set_keys(self._keys_of(side, rows))
            owners = self._state.current.batch.row_slots
            self._rows[side].keep(owners, self._stored(side, rows), times, times)

    def advance_watermark(self, watermark: int) -> None:
        """Emit the rows up to the watermark, then drop the versions that no later row needs."""
        if watermark <= self.watermark:
            return
        self.watermark = watermark
        facts = self._rows[0]
        due = facts.due(watermark)
        for start in range(0, len(due), _PART):
            self._join(due[start : start + _PART])
        facts.remove(due)
        self._drop_versions()

    def _join(self, facts: Slots) -> None:
        """Emit rows with the last version up to their times."""
        slots, keys = np.unique(self._rows[0].owners(facts), return_inverse=True)
        times = self._rows[0].numbers(TIME, facts)
        first = np.full(len(facts), NO_WATERMARK)
        matches = self._rows[1].matches(slots, keys, first, times)
        has_version = matches.counts > 0
        versions = np.full(len(facts), -1)
        # Of versions of one time the one that came last is behind the others.
        last = (matches.begins + matches.counts - 1)[has_version]
        versions[has_version] = matches.elements[last]
        if not self._is_outer[0]:
            facts, versions = facts[has_version], versions[has_version]
        self._emit_of_state(facts, versions)

    def _drop_versions(self) -> None:
        """Drop versions that newer ones up to the watermark replace."""
        versions = self._rows[1]
        new = versions.due(self.watermark)
        if not len(new):
            return
        slots = distinct(versions.owners(new))
        bounds = np.full(len(slots), NO_WATERMARK), np.full(len(slots), self.watermark)
        matches = versions.matches(slots, np.arange(len(slots)), *bounds)
        for keys, elements in matches.parts():
            # The last one of a key stays.
            is_replaced = np.append(keys[1:] == keys[:-1], False)
            versions.remove(elements[is_replaced])
