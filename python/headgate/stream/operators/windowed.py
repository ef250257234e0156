"""The operator of windows in a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from headgate._changes import change_field
from headgate.stream.graph.operator import (
    LATE_DROPPED,
    LEFT_OVER,
    Operator,
    OperatorContext,
    OperatorSnapshot,
)
from headgate.stream.operators.keyed import KeyedOperator
from headgate.stream.operators.results import Results, calling, learned_schema
from headgate.stream.operators.updates import update_rows
from headgate.stream.state.timers import NO_WATERMARK, kept_watermark
from headgate.stream.state.types import no_rows
from headgate.stream.windows.closing import key_schema_of
from headgate.stream.windows.counted import CountWindowOperator
from headgate.stream.windows.emitted import EmittedResults
from headgate.stream.windows.fixed import WindowOperator
from headgate.stream.windows.kinds import CountWindow, SessionWindow, WindowOutput, millis
from headgate.stream.windows.partials import PanePartials
from headgate.stream.windows.sessions import SessionWindowOperator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.stream.state.backend import KeyedStateBackend
    from headgate.stream.windows.closing import Windows

#: Name of the side output of late rows.
LATE: Final = "late"
#: Windows of other kinds than fixed ones.
_KINDS: Final[dict[type, type[Windows[Any]]]] = {
    CountWindow: CountWindowOperator,
    SessionWindow: SessionWindowOperator,
}


class WindowedOperator(KeyedOperator):
    """Runs a :class:`WindowOperator` or :class:`SessionWindowOperator`.

    Args:
        schema: of the input.
        function: makes the results, instead of aggregates.
        result: schema of the results; None until it is known.
        early: milliseconds between the results so far of open windows, which are changes; None for none.
        arguments: of the window operator.
    """

    def __init__(
        self,
        schema: pa.Schema,
        function: Any,
        result: pa.Schema | None = None,
        *,
        early: int | None = None,
        **arguments: Any,
    ) -> None:
        self._schema = schema
        self._function = function
        self._result = result
        self._arguments = arguments
        self._kind = _KINDS.get(type(arguments["window"]), WindowOperator)
        #: Rows of windows that were not full at the end.
        self._left_over = 0
        self._early = early
        self._early_due: int | None = None

    def open(self, context: OperatorContext) -> None:
        """Restore the windows."""
        super().open(context)
        key_schema = key_schema_of(self._schema, self._arguments["keys"])
        backend = self._restore(context, key_schema, self._kind.namespace)
        self._operator = self._make(backend, context.uid)
        self._clock = context.clock
        if self._early is not None:
            self._open_early(self._early)
        self._opened(context)
        if context.restored_watermark is not None:
            self._operator.watermark = context.restored_watermark

    def result_schema(self) -> pa.Schema:
        """Return the schema of the results, which a function shows by what it makes of no windows.

        Raises:
            UserFunctionError: the function failed without rows.
            SchemaMismatchError: it returned no rows, such as None.
        """
        schema = self._make(None, "window()").advance_watermark(0).results.schema
        return schema if self._early is None else schema.append(change_field())

    def _open_early(self, early: int) -> None:
        operator = self._operator
        before = operator.advance_watermark(NO_WATERMARK).results.schema
        #: Number of key columns of the results.
        self._keys = len(self._arguments["keys"])
        lateness = millis(self._arguments["allowed_lateness"])
        self._emitted = EmittedResults(operator.backend, list(before)[self._keys + 2 :], lateness)
        self._changing = before.append(change_field())
        # Of restored panes, nobody knows which were in a result.
        self._early_due = self._clock() + early

    def _make(self, backend: KeyedStateBackend | None, uid: str) -> Any:
        function = None
        if self._function is not None:
            function = _WindowFunction(self._function, uid, self._result)
        return self._kind(self._schema, backend=backend, function=function, **self._arguments)

    def process(self, batch: pa.RecordBatch) -> None:
        """Add rows to their windows."""
        if self._early is not None and self._early_due is None:
            self._early_due = self._clock() + self._early
        self._emit(self._operator.process(batch))

    def advance_watermark(self, watermark: int) -> None:
        """Emit the windows that are over."""
        for output in self._operator.close_until(watermark):
            self._emit(output)
        if self._early is not None:
            self._emitted.forget(self._operator.watermark)

    @property
    def next_processing_timer(self) -> int | None:
        """Time of the next results of open windows."""
        return self._early_due

    def advance_processing_time(self, now: int) -> None:
        """Emit the results so far of open windows."""
        if self._early_due is not None and self._early_due <= now:
            self._early_due = None
            late = no_rows(self._schema)
            for results in self._operator.open_results():
                self._emit(WindowOutput(results, late))

    def end_input(self) -> None:
        """Count the rows of windows that are not full."""
        if isinstance(self._operator, CountWindowOperator):
            self._left_over = self._operator.left

    @property
    def dropped(self) -> Mapping[str, int]:
        """Values that were older than their time to live, and rows of windows that were not full."""
        return {**super().dropped, LEFT_OVER: self._left_over}

    def _emit(self, output: WindowOutput) -> None:
        results: pa.RecordBatch | None = output.results
        if self._early is not None and output.results.num_rows:
            results = self._changes(output.results)
        if results is not None and results.num_rows:
            self._context.emit(results, None)
        if output.late.num_rows:
            self._context.emit(output.late, LATE)

    def _changes(self, results: pa.RecordBatch) -> pa.RecordBatch | None:
        """Return what results change of those that were emitted before; None if they change nothing."""
        names, values = results.columns[: self._keys + 2], results.columns[self._keys + 2 :]
        starts, ends = (column.view(pa.int64()) for column in names[self._keys :])
        keys = names[: self._keys] or [pa.array(np.zeros(len(results), np.int8))]
        had, before = self._emitted.replaced(keys, starts, ends, values)
        return update_rows(
            self._changing,
            [*names, *before],
            [*names, *values],
            had.to_numpy(zero_copy_only=False),
            np.ones(len(results), np.bool_),
            with_before=True,
        )

    def snapshot(self, checkpoint: int, *, savepoint: bool) -> OperatorSnapshot | None:
        """Freeze the windows."""
        snapshot = super().snapshot(checkpoint, savepoint=savepoint)
        if snapshot is not None:
            snapshot.watermark = kept_watermark(self._operator.watermark)
        return snapshot

    def unread_counter(self, output: str | None) -> str:
        """Return the counter of late rows."""
        return LATE_DROPPED if output == LATE else super().unread_counter(output)


class ClockOperator(WindowedOperator):
    """Runs windows of processing time, which are closed by the clock, or by the end of all rows."""

    def open(self, context: OperatorContext) -> None:
        """Restore the windows."""
        super().open(context)
        groups = context.key_groups
        restored = self._operator.backend.watermarks[groups.start : groups.stop]
        # The clock of another machine may be behind: no row is late.
        self._least = int(restored.max()) + 1

    def process(self, batch: pa.RecordBatch) -> None:
        """Add rows to the windows of now."""
        self._operator.now = max(self._clock(), self._least, self._operator.watermark + 1)
        super().process(batch)

    def advance_watermark(self, watermark: int) -> None:
        """Close all windows at the end of all rows."""
        if watermark > -NO_WATERMARK:
            super().advance_watermark(watermark)

    @property
    def next_processing_timer(self) -> int | None:
        """Time of the end of the first window, or of the next results of open windows."""
        wake: int = self._operator.wake
        times = [self._early_due, None if wake >= -NO_WATERMARK else wake + 1]
        return min((time for time in times if time is not None), default=None)

    def advance_processing_time(self, now: int) -> None:
        """Emit the windows that are over, and the results so far of others."""
        super().advance_watermark(now - 1)
        super().advance_processing_time(now)


class PanesOperator(Operator):
    """Runs :class:`PanePartials`, before the one task with the windows of all rows. It has no state between barriers.

    Args:
        schema: of the input.
        arguments: of :class:`PanePartials`.
    """

    def __init__(self, schema: pa.Schema, **arguments: Any) -> None:
        self._schema = schema
        self._arguments = arguments

    def open(self, context: OperatorContext) -> None:
        """Begin without rows."""
        super().open(context)
        self._partials = PanePartials(self._schema, **self._arguments)
        if context.restored_watermark is not None:
            self._partials.watermark = context.restored_watermark

    def result_schema(self) -> pa.Schema:
        """Return the schema of what it emits."""
        return PanePartials(self._schema, **self._arguments).schema

    def process(self, batch: pa.RecordBatch) -> None:
        """Add rows to their panes."""
        late = self._partials.process(batch)
        if late.num_rows:
            self._context.emit(late, LATE)
        if self._partials.is_due:
            self.flush()

    def advance_watermark(self, watermark: int) -> None:
        """Emit what windows that close need."""
        self._partials.watermark = max(self._partials.watermark, watermark)
        if self._partials.is_due:
            self.flush()

    def flush(self) -> None:
        """Emit the panes so far."""
        panes = self._partials.take()
        if panes.num_rows:
            self._context.emit(panes, None)

    def snapshot(self, checkpoint: int, *, savepoint: bool) -> OperatorSnapshot | None:  # noqa: ARG002 - of all operators
        """Return the watermark: rows that are late for it are late after a restart, too."""
        watermark = kept_watermark(self._partials.watermark)
        return None if watermark is None else OperatorSnapshot(watermark=watermark)

    def unread_counter(self, output: str | None) -> str:
        """Return the counter of late rows."""
        return LATE_DROPPED if output == LATE else super().unread_counter(output)


class _WindowFunction:
    """Calls a user's function with closed windows.

    Args:
        function: returns rows.
        uid: of the operator.
        result: schema of the rows; None to learn it from the first call, which is without windows.
    """

    def __init__(self, function: Any, uid: str, result: pa.Schema | None) -> None:
        self._function, self._uid, self._result = function, uid, result
        self._results = None if result is None else Results(uid, result, "")

    def __call__(self, windows: pa.RecordBatch) -> pa.RecordBatch:
        if self._results is None or self._result is None:
            return no_rows(learned_schema("window()", self._function, windows))
        with calling(self._uid, "function"):
            result = self._function(windows)
        batches = list(self._results.batches("function", result))
        return pa.concat_batches(batches) if batches else no_rows(self._result)
