"""Operators that handle several batches at once. Source: Flink's mini-batches.

Rows wait until there are enough of them, until the first has waited long enough, and until anything follows that must not
overtake them: a barrier, the end. So a checkpoint has none of them, and no state is kept. A watermark waits with them, as it
comes about as often as rows are due: each would double the times that an operator handles rows.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headgate.stream.operators.keyed import KeyedOperator
from headgate.stream.state.timers import kept_watermark

if TYPE_CHECKING:
    from headgate.stream.graph.operator import OperatorContext

#: Bytes of rows that wait no longer, however few these are.
_BYTES: Final = 1 << 25


@dataclass(frozen=True, slots=True)
class MiniBatches:
    """How long rows may wait for others.

    Attributes:
        every: most ms that a row waits; 0 for none, None for any time.
        rows: number of rows that wait no longer.
    """

    every: int | None
    rows: int


class MiniBatchOperator(KeyedOperator):
    """Collects batches.

    Args:
        batches: how long rows wait.
    """

    holds_watermarks = True

    def __init__(self, batches: MiniBatches) -> None:
        self._limits = batches
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._due: int | None = None
        #: The watermark that waits with the rows.
        self._watermark: int | None = None

    def open(self, context: OperatorContext) -> None:
        """Get ready."""
        super().open(context)
        self._clock = context.clock

    @abstractmethod
    def _handle(self, rows: pa.RecordBatch) -> None:
        """Handle rows of all batches that waited, in their order; at least one."""

    def process(self, batch: pa.RecordBatch) -> None:
        """Let rows wait."""
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        every = self._limits.every
        if every == 0 or self._rows >= self._limits.rows or self._bytes >= _BYTES:
            self.flush()
        elif every is not None and self._due is None:
            self._due = self._clock() + every

    def flush(self) -> None:
        """Handle the rows that wait."""
        waiting, self._waiting, self._due = self._waiting, [], None
        self._rows = self._bytes = 0
        if waiting:
            self._handle(pa.concat_batches(waiting) if len(waiting) > 1 else waiting[0])
        watermark, self._watermark = self._watermark, None
        if watermark is not None:
            self._context.pass_on(watermark)

    @property
    def next_processing_timer(self) -> int | None:
        """Time at which the rows have waited long enough."""
        return self._due

    def advance_processing_time(self, now: int) -> None:
        """Handle the rows that have waited long enough."""
        if self._due is not None and self._due <= now:
            self.flush()

    def advance_watermark(self, watermark: int) -> None:
        """Let a watermark wait with the rows before it, if they do not wait for any time."""
        self._watermark = watermark
        if self._due is None or kept_watermark(watermark) is None:
            self.flush()

    def set_idle(self) -> None:
        """Handle the rows before the idleness."""
        self.flush()
        self._context.pass_on(None)
