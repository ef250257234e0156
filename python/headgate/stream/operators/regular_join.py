"""The join of all rows with one key, whenever they come. Source: Flink SQL's StreamingJoinOperator, by batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.stream.operators.joining import JoinOperator, chosen

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.stream.state.descriptors import StateTtlConfig


class InnerJoinOperator(JoinOperator):
    """Keeps all rows of both sides, up to their time to live, and emits each pair when its second row comes.

    Args:
        ttl: time to live of the rows in state.
        arguments: of :class:`JoinOperator`.
    """

    _kind = "all rows"

    def __init__(self, ttl: StateTtlConfig | None, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._ttl = ttl

    def _take(self, side: int, rows: pa.RecordBatch) -> None:
        if (without := self._without_key(side, rows)) is not None:
            rows = chosen(rows, ~without)
        if not rows.num_rows:
            return
        self._state.set_keys(self._keys_of(side, rows))
        batch = self._state.current.batch
        matches = self._rows[1 - side].matches(batch.slots, batch.rows)
        for numbers, elements in matches.parts():
            self._emit_pairs(side, rows, numbers, elements)
        self._rows[side].keep(batch.row_slots, self._stored(side, rows))
