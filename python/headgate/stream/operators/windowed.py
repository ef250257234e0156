"""The operator of windows in a task."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headgate.stream.graph.operator import (
    LATE_DROPPED,
    Operator,
    OperatorContext,
    OperatorSnapshot,
)
from headgate.stream.operators.keyed import KeyedState
from headgate.stream.operators.results import Results, calling, learned
from headgate.stream.windows.input import no_rows
from headgate.stream.windows.kinds import NO_WATERMARK, SessionWindow, WindowOutput
from headgate.stream.windows.operator import WindowOperator
from headgate.stream.windows.sessions import SessionWindowOperator

if TYPE_CHECKING:
    from headgate.stream.state.backend import KeyedStateBackend

#: Name of the side output of late rows.
LATE: Final = "late"


class WindowedOperator(Operator):
    """Runs a :class:`WindowOperator` or :class:`SessionWindowOperator`.

    Args:
        window: the kind of windows.
        schema: of the input.
        keys: names of the key columns.
        time: name of the column of event times.
        aggregates: columns of the result.
        function: makes the result instead.
        allowed_lateness: time in which rows still change a closed window.
        result: schema of the results; None until it is known.
    """

    def __init__(
        self,
        window: Any,
        schema: pa.Schema,
        keys: Sequence[str],
        time: str,
        aggregates: Sequence[Any],
        function: Any,
        allowed_lateness: timedelta | str,
        result: pa.Schema | None = None,
    ) -> None:
        self._window = window
        self._schema = schema
        self._keys = keys
        self._function = function
        self._result = result
        #: None before :meth:`open`.
        self._backend: KeyedStateBackend | None = None
        self._fields: dict[str, Any] = {
            "time": time,
            "aggregates": aggregates,
            "allowed_lateness": allowed_lateness,
        }

    def open(self, context: OperatorContext) -> None:
        """Restore the windows."""
        self._context = context
        key_schema = pa.schema([self._schema.field(key) for key in self._keys])
        self._state = KeyedState(context, key_schema, self._kind.namespace)
        self._backend = self._state.backend
        self._operator = self._make(self._backend, context.uid)
        self._state.opened()
        if context.restored_watermark is not None:
            self._operator.watermark = context.restored_watermark

    def result_schema(self) -> pa.Schema:
        """Return the schema of the results, which a function shows by what it makes of no windows.

        Raises:
            UserFunctionError: the function failed without rows.
            SchemaMismatchError: it returned no rows, such as None.
        """
        return self._make(None, "window()").advance_watermark(0).results.schema

    @property
    def _kind(self) -> type[WindowOperator | SessionWindowOperator]:
        return SessionWindowOperator if isinstance(self._window, SessionWindow) else WindowOperator

    def _make(self, backend: KeyedStateBackend | None, uid: str) -> Any:
        function = None
        if self._function is not None:
            function = _WindowFunction(self._function, uid, self._result)
        return self._kind(
            self._schema,
            keys=self._keys,
            window=self._window,
            backend=backend,
            function=function,
            **self._fields,
        )

    def process(self, batch: pa.RecordBatch) -> None:
        """Add rows to their windows."""
        self._emit(self._operator.process(batch))

    def advance_watermark(self, watermark: int) -> None:
        """Emit the windows that are over."""
        for found in self._operator.close_until(watermark):
            self._emit(found)

    def _emit(self, found: WindowOutput) -> None:
        if found.results.num_rows:
            self._context.emit(found.results, None)
        if found.late.num_rows:
            self._context.emit(found.late, LATE)

    def snapshot(self, checkpoint: int, *, savepoint: bool) -> OperatorSnapshot | None:
        """Freeze the windows."""
        found = self._state.snapshot(checkpoint, savepoint=savepoint)
        watermark = self._operator.watermark
        # Neither before the first one nor after the end of all rows.
        if found is not None and NO_WATERMARK < watermark < -NO_WATERMARK:
            found.watermark = watermark
        return found

    def complete(self, checkpoint: int) -> None:
        """Let later snapshots build on this one."""
        self._state.complete(checkpoint)

    def abort(self, checkpoint: int) -> None:
        """Give up a snapshot."""
        self._state.abort(checkpoint)

    def unread_counter(self, output: str | None) -> str:
        """Return the counter of late rows."""
        return LATE_DROPPED if output == LATE else super().unread_counter(output)

    @property
    def files_in_flight(self) -> set[str]:
        """Files that snapshots in flight build on."""
        return self._state.files_in_flight

    def close(self) -> None:
        """Free the windows."""
        if self._backend is not None:
            self._backend.close()


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
            return no_rows(learned("window()", self._function, windows))
        with calling(self._uid, "function"):
            made = self._function(windows)
        batches = list(self._results.batches("function", made))
        return pa.concat_batches(batches) if batches else no_rows(self._result)
