"""The join without times whose result changes: outer joins, and joins of changes. Source: Flink SQL's StreamingJoinOperator, by batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from headgate._changes import DELETE, INSERT, change_signs, is_changing, without_changes
from headgate.stream.graph.operator import UNKNOWN_DELETES
from headgate.stream.operators.joining import JoinOperator, chosen
from headgate.stream.state.groups import key_groups_of
from headgate.stream.state.row_index import RowIndex, distinct
from headgate.stream.state.rows import PAIRS, Matches
from headgate.stream.state.zeros import normalized

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.stream.state.descriptors import StateTtlConfig
    from headgate.stream.state.table import Slots

#: Number of hashes of rows. Most rows of a key that are not looked for have another one.
_HASHES: Final = 1 << 15
#: More pairs than there are.
_ALL: Final = 1 << 62


class ChangingJoinOperator(JoinOperator):
    """Keeps all rows of both sides, up to their time to live, and emits how the result changes with each batch.

    Changes of a batch that undo each other change nothing. Of a batch all rows that are gone come before the new ones.

    Args:
        ttl: time to live of the rows in state.
        arguments: of :class:`JoinOperator`; the columns of the result end with the change.
    """

    _kind = "all rows"

    def __init__(self, ttl: StateTtlConfig | None, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._ttl = ttl
        self._is_changing = [is_changing(schema) for schema in self._sides.schemas]
        #: Rows to be taken away that were not there.
        self._unknown_deletes = 0

    def _state_name(self, side: int) -> str:
        """Return the name of a side's state. Rows that may be taken away have a hash, others have none."""
        return super()._state_name(side) + ", changing" * self._is_changing[side]

    def _take(self, side: int, rows: pa.RecordBatch) -> None:
        signs = np.ones(rows.num_rows, np.int64)
        if self._is_changing[side]:
            rows, signs = _net(rows)
        if (without := self._without_key(side, rows)) is not None:
            alone = np.repeat(np.flatnonzero(without), np.abs(signs[without]))
            if self._is_outer[side]:
                for of_sign in (-1, 1):
                    self._emit_rows(side, rows, alone[signs[alone] * of_sign > 0], of_sign)
            rows, signs = chosen(rows, ~without), signs[~without]
        if rows.num_rows:
            self._state.set_keys(self._keys_of(side, rows))
            self._join(side, rows, signs)

    def _join(self, side: int, rows: pa.RecordBatch, signs: Slots) -> None:
        """Emit how the result changes, and change the state.

        Args:
            side: of the rows.
            rows: with keys, which are the current ones; different ones if they may be taken away.
            signs: how often each row comes, or with a minus, is taken away.
        """
        batch = self._state.current.batch
        matches = self._rows[1 - side].matches(batch.slots, batch.rows)
        matched, unmatched = self._count_pairs(1 - side, matches, signs)
        for sign, alone in ((-1, matched), (1, unmatched)):
            numbers = np.flatnonzero(signs * sign > 0)
            numbers = np.repeat(numbers, np.abs(signs[numbers]))
            self._emit_elements(1 - side, alone, sign)
            if self._is_outer[side]:
                self._emit_rows(side, rows, numbers[matches.counts[numbers] == 0], sign)
            of_sign = Matches(matches.begins[numbers], matches.counts[numbers], matches.elements)
            for pairs, elements in of_sign.parts():
                of_other = self._rows[1 - side].rows(elements)
                self._emit_changes(side, rows.take(pa.array(numbers[pairs])), of_other, sign)
        self._change_state(side, rows, signs, matches.counts)

    def _count_pairs(self, side: int, matches: Matches, signs: Slots) -> tuple[Slots, Slots]:
        """Count the pairs of an outer side's elements; return those with a first pair, and those without any more."""
        nothing = np.zeros(0, np.int64)
        if not self._is_outer[side] or not len(matches.elements):
            return nothing, nothing
        # Each row adds its sign to a stretch of elements.
        steps = np.zeros(len(matches.elements) + 1, np.int64)
        np.add.at(steps, matches.begins, signs)
        np.add.at(steps, matches.begins + matches.counts, -signs)
        change = np.cumsum(steps[:-1])
        before = self._rows[side].numbers(PAIRS, matches.elements)
        # Rows that have expired are pairs still that nobody takes away, or takes away once more.
        after = np.maximum(before + change, 0)
        is_other = after != before
        self._rows[side].count_pairs(matches.elements[is_other], (after - before)[is_other])
        elements = matches.elements
        return elements[(before == 0) & (after > 0)], elements[(before > 0) & (after == 0)]

    def _change_state(self, side: int, rows: pa.RecordBatch, signs: Slots, pairs: Slots) -> None:
        batch, state = self._state.current.batch, self._rows[side]
        hashes = np.zeros(rows.num_rows, np.int64)
        if self._is_changing[side] and self._columns.stored[side].names:
            columns = normalized(self._columns_of(side, rows))
            hashes = key_groups_of(columns, _HASHES).astype(np.int64)
        if (signs < 0).any():
            self._remove(side, rows, signs, hashes)
        numbers = np.flatnonzero(signs > 0)
        if len(numbers) < len(signs) or (signs > 1).any():
            numbers = np.repeat(numbers, signs[numbers])
            rows = rows.take(pa.array(numbers))
        if len(numbers):
            owners = batch.row_slots[numbers]
            stored = self._stored(side, rows)
            state.keep(owners, stored, hashes[numbers], pairs=pairs[numbers])

    def _remove(self, side: int, rows: pa.RecordBatch, signs: Slots, hashes: Slots) -> None:
        """Remove elements that equal the rows to be taken away."""
        batch, state = self._state.current.batch, self._rows[side]
        gone = np.flatnonzero(signs < 0)
        bounds = hashes[gone], hashes[gone]
        matches = state.matches(batch.slots, batch.rows[gone], *bounds)
        total = int(-signs[gone].sum())
        for numbers, elements in matches.parts(_ALL):
            equal = self._are_equal(side, rows.take(pa.array(gone)), numbers, elements)
            of_rows, same = numbers[equal], elements[equal]
            # As many of each as are to be taken away, the first ones.
            rank = np.arange(len(of_rows)) - np.searchsorted(of_rows, of_rows)
            removed = same[rank < -signs[gone][of_rows]]
            state.remove(removed)
            total -= len(removed)
        self._unknown_deletes += total

    def _are_equal(self, side: int, rows: pa.RecordBatch, numbers: Slots, elements: Slots) -> Any:
        """Return True for each pair of a row and an element whose columns are equal."""
        stored = self._columns.stored[side]
        columns = self._rows[side].rows(elements)
        if not stored.names or columns is None:
            return np.ones(len(numbers), np.bool_)
        index = RowIndex(stored)
        of_rows = index.add(self._columns_of(side, rows))
        return index.find(pa.RecordBatch.from_arrays(columns, schema=stored)) == of_rows[numbers]

    def _columns_of(self, side: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of rows that the state keeps."""
        stored = self._columns.stored[side]
        return pa.RecordBatch.from_arrays(self._values_of(side, rows), schema=stored)

    def _emit_rows(self, side: int, rows: pa.RecordBatch, numbers: Slots, sign: int) -> None:
        """Emit the change of rows of one side with nulls for the other."""
        if len(numbers):
            self._emit_changes(side, rows.take(pa.array(numbers)), None, sign)

    def _emit_changes(
        self, side: int, rows: pa.RecordBatch, other: Sequence[pa.Array] | None, sign: int
    ) -> None:
        values = [self._values_of(side, rows), other]
        if side:
            values.reverse()
        change = pa.repeat(_NAMES[sign], rows.num_rows)
        self._context.emit(self._columns.batch(self._keys_of(side, rows), values, change), None)

    def _emit_elements(self, side: int, elements: Slots, sign: int) -> None:
        """Emit the change of rows of the state of one side with nulls for the other."""
        self._emit_alone_of_state(
            side, elements, lambda pairs: [pa.repeat(_NAMES[sign], len(pairs))]
        )

    @property
    def dropped(self) -> Mapping[str, int]:
        """Values that were older than their time to live, and rows to be taken away that were not there."""
        return {**super().dropped, UNKNOWN_DELETES: self._unknown_deletes}


#: The change of a row that is there or gone.
_NAMES: Final = {1: pa.scalar(INSERT, pa.string()), -1: pa.scalar(DELETE, pa.string())}


def _net(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Slots]:
    """Return each different row that a batch of changes adds or takes away, and how often."""
    places, first = distinct(rows.select(without_changes(rows.schema).names))
    times = np.zeros(len(first), np.int64)
    np.add.at(times, places, change_signs(rows).to_numpy())
    return rows.take(pa.array(first[times != 0])), times[times != 0]
