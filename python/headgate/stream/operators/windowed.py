"""The operator of windows in a task."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headgate.stream.operators.keyed import KeyedState
from headgate.stream.operators.operator import Operator, OperatorContext, OperatorSnapshot
from headgate.stream.windows.kinds import SessionWindow, WindowOutput
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
    """

    def __init__(
        self,
        window: Any,
        schema: pa.Schema,
        keys: Sequence[str],
        time: str,
        aggregates: Sequence[Any],
        function: Any,
        allowed_lateness: timedelta,
    ) -> None:
        self._window = window
        self._schema = schema
        self._keys = keys
        #: None before :meth:`open`.
        self._backend: KeyedStateBackend | None = None
        self._fields = {
            "time": time,
            "aggregates": aggregates,
            "function": function,
            "allowed_lateness": allowed_lateness,
        }

    def open(self, context: OperatorContext) -> None:
        """Restore the windows."""
        self._context = context
        key_schema = pa.schema([self._schema.field(key) for key in self._keys])
        self._state = KeyedState(context, key_schema, self._kind.namespace)
        self._backend = self._state.backend
        self._operator = self._make(self._backend)

    def empty_result(self) -> pa.RecordBatch:
        """Return a result without rows, for its schema."""
        return self._make(None).advance_watermark(0).results

    @property
    def _kind(self) -> type[WindowOperator | SessionWindowOperator]:
        return SessionWindowOperator if isinstance(self._window, SessionWindow) else WindowOperator

    def _make(self, backend: KeyedStateBackend | None) -> Any:
        return self._kind(
            self._schema, keys=self._keys, window=self._window, backend=backend, **self._fields
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
        return self._state.snapshot(checkpoint, savepoint=savepoint)

    def complete(self, checkpoint: int) -> None:
        """Let later snapshots build on this one."""
        self._state.complete(checkpoint)

    def abort(self, checkpoint: int) -> None:
        """Give up a snapshot."""
        self._state.abort(checkpoint)

    @property
    def files_in_flight(self) -> set[str]:
        """Files that snapshots in flight build on."""
        return self._state.files_in_flight

    def close(self) -> None:
        """Free the windows."""
        if self._backend is not None:
            self._backend.close()
