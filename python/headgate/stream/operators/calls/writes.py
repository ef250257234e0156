"""The calls of an asynchronous sink: rows that were not taken join those of later calls. Decision: ADR 0060."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import SchemaMismatchError
from headgate.stream.graph.call_functions import Retry
from headgate.stream.operators.calls.operator import AsyncCallOperator
from headgate.stream.operators.calls.rows import WRITES, as_seen, error_rows, error_schema

if TYPE_CHECKING:
    import numpy.typing as npt

    from headgate.stream.graph.operator import OperatorContext
    from headgate.stream.operators.calls.call import Call
    from headgate.stream.operators.calls.options import CallOptions
    from headgate.stream.state.descriptors import StateTtlConfig


class WriteCallOperator(AsyncCallOperator):
    """Calls a function that writes batches, and emits the rows that are refused for good.

    A column counts how often a row was written and not taken, so it goes where the row goes: into batches with others, into
    checkpoints, and to other tasks. Source: Flink's AsyncSinkWriter, FLIP-171.

    Args:
        function: as of the base; it returns positions of rows that were not taken, or None.
        rows: schema of the stream.
        options: of the base, with batches.
        has_refused: True if something takes rows that are refused; else they fail the attempt of the job.
    """

    _takes_errors = "refused="

    def __init__(
        self, function: Any, rows: pa.Schema, options: CallOptions, *, has_refused: bool
    ) -> None:
        counted = pa.schema([*rows, pa.field(WRITES, pa.int32(), nullable=False)])
        super().__init__(function, counted, (), error_schema(rows), options)
        self._has_refused = has_refused
        #: Rows that were not taken, each with the time in ms at which they are written again.
        self._resting: list[tuple[int, pa.RecordBatch]] = []

    def _opened(self, context: OperatorContext, ttl: StateTtlConfig | None = None) -> None:
        self._put_back = context.metrics.counter("rows_put_back")
        super()._opened(context, ttl)

    # --- rows ---

    def process(self, batch: pa.RecordBatch) -> None:
        """Let rows wait that are new, come from a checkpoint, or were put back."""
        if batch.num_columns < len(self._rows):
            writes = pa.array(np.zeros(batch.num_rows, np.int32))
            batch = pa.RecordBatch.from_arrays([*batch.columns, writes], schema=self._rows)
        super().process(batch)

    def _next_calls(self, room: int) -> list[tuple[Call, Any]]:  # noqa: ARG002 - of the base
        call, rows = self._call_of_batch()
        return [(call, as_seen(rows))]

    def _about(self, call: Call) -> Any:
        return as_seen(call.rows)

    def _begin(self) -> None:
        # Rows that rest take room too: a service that takes none does not get all rows of the source.
        if not self._resting or self._size < self._options.in_flight_bytes:
            super()._begin()

    # --- results ---

    @property
    def is_quiet(self) -> bool:
        """True if no row waits or rests, and no call."""
        return not self._resting and super().is_quiet

    def _converted(self, result: Any, rows: int) -> npt.NDArray[np.int64]:
        return _positions(result, rows)

    def _settle(self, call: Call) -> None:
        self._running -= 1
        self._size -= call.size
        call.size, call.outcome = 0, []
        if call.error is not None:
            self._refuse(call, call.rows, call.error, call.failed)
        elif len(call.result):
            self._put_back_or_refuse(call, call.rows.take(pa.array(call.result)))
        self._line_up(call)

    def _put_back_or_refuse(self, call: Call, rows: pa.RecordBatch) -> None:
        policy = self._options.policy
        error = Retry(f"{rows.num_rows} of {call.length} rows were not taken")
        at = rows.schema.get_field_index(WRITES)
        rows = rows.set_column(
            at, self._rows.field(at), pc.add(rows[WRITES], pa.scalar(1, pa.int32()))
        )
        is_last = pc.greater(rows[WRITES], policy.retries)
        again, refused = rows.filter(pc.invert(is_last)), rows.filter(is_last)
        if again.num_rows:
            seconds = policy.delay(error, pc.max(again[WRITES]).as_py())
            self._resting.append((self._context.clock() + round(seconds * 1000), again))
            self._size += again.nbytes
            self._put_back.add(again.num_rows)
        if refused.num_rows:
            self._refuse(call, refused, error, policy.retries + 1)

    def _refuse(
        self, call: Call, rows: pa.RecordBatch, error: BaseException, attempts: int
    ) -> None:
        call.failed = attempts
        if not self._has_refused or not isinstance(error, Exception):
            raise self._failure(call, error)
        call.outcome = [error_rows(rows, error, attempts, call.call_id)]
        call.size = call.outcome[0].nbytes
        self._size += call.size

    # --- time and checkpoints ---

    @property
    def next_processing_timer(self) -> int | None:
        """Time at which rows have waited, or rested, long enough."""
        of_batch = super().next_processing_timer
        times = [due for due, _ in self._resting]
        return min([*times, of_batch] if of_batch is not None else times, default=None)

    def advance_processing_time(self, now: int) -> None:
        """Let rows wait that have rested, and begin the call of rows that have waited long enough."""
        due = [rows for at, rows in self._resting if at <= now]
        self._resting = [(at, rows) for at, rows in self._resting if at > now]
        for rows in due:
            self._size -= rows.nbytes
            self.process(rows)
        super().advance_processing_time(now)

    def _rows_that_wait(self) -> list[tuple[pa.RecordBatch, int]]:
        resting = [(rows, self._next) for _, rows in self._resting]
        return [*super()._rows_that_wait(), *resting]


def _positions(result: Any, rows: int) -> npt.NDArray[np.int64]:
    """Return the positions of rows that were not taken.

    Raises:
        SchemaMismatchError: the result is something else.
    """
    if result is None:
        return np.zeros(0, np.int64)
    try:
        values = np.asarray(result)
        is_right = values.ndim == 1 and (not values.size or values.dtype.kind in "iu")
    except (TypeError, ValueError):
        is_right = False
    if is_right and values.size:
        is_right = bool(values.min() >= 0 and values.max() < rows)
    if not is_right:
        raise SchemaMismatchError(
            f"a function of sink_async() returned {type(result).__name__}",
            have=f"positions from 0 to {rows - 1} of rows that were not taken, or None",
            remedy="return None · return [2, 5]",
        )
    return np.unique(values.astype(np.int64))
