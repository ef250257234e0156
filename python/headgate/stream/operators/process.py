"""The operator of a ProcessFunction."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import StateError
from headgate.stream.graph.context import KeyedContext
from headgate.stream.graph.operator import OperatorContext, instance_of
from headgate.stream.operators.keyed import KeyedOperator
from headgate.stream.operators.results import Results, calling
from headgate.stream.state.backend import EVENT_TIMERS, PROCESSING_TIMERS

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.stream.graph.context import FunctionRows

#: Most timers of one call: state of all keys at once may be more than an array can hold.
_MOST_TIMERS: Final = 1 << 16


class FunctionOperator(KeyedOperator):
    """An operator that calls a user's object with batches and timers.

    Args:
        function: an instance, or what makes one.
        key_schema: the key columns; empty on a stream without keys.
        schema: of the result.
        side_outputs: schemas by name.
    """

    def __init__(
        self,
        function: Any,
        key_schema: pa.Schema,
        schema: pa.Schema,
        side_outputs: Mapping[str, pa.Schema],
    ) -> None:
        self._function_or_maker = function
        self._function: Any = None
        self._key_schema = key_schema
        self._schema = schema
        self._side_outputs = side_outputs

    def open(self, context: OperatorContext) -> None:
        """Restore state, and open the function."""
        self._uid = context.uid
        self._emit = context.emit
        self._results: dict[str | None, Results] = {None: Results(context.uid, self._schema)}
        for output, schema in self._side_outputs.items():
            self._results[output] = Results(context.uid, schema, "side_outputs")
        # Not by a method: this object and the context would refer to each other.
        self._runtime = self._make_context(context, partial(_emit_rows, context, self._results))
        with calling(self._uid, "open"):
            function = instance_of(self._function_or_maker)
            # From here on close() calls its close(), also if open() fails.
            self._function = function
            function.open(self._runtime)
        self._opened(context)

    def _make_context(self, context: OperatorContext, emit: Any) -> KeyedContext:
        """Restore state, and return what the function gets."""
        if len(self._key_schema):
            self._restore(context, self._key_schema)
        return KeyedContext(context, emit, self._backend)

    def _call(self, name: str, argument: pa.RecordBatch) -> None:
        with calling(self._uid, name):
            result: FunctionRows = getattr(self._function, name)(argument, self._runtime)
        for rows in self._results[None].batches(name, result):
            self._emit(rows, None)

    def advance_watermark(self, watermark: int) -> None:
        """Fire the timers of event time up to the watermark."""
        self._runtime.watermark = watermark
        self._fire(EVENT_TIMERS, watermark)

    @property
    def next_processing_timer(self) -> int | None:
        """Time of the first timer of processing time."""
        if self._backend is None or PROCESSING_TIMERS not in self._backend.states:
            return None
        return self._backend.processing_timers.next_timestamp

    def advance_processing_time(self, now: int) -> None:
        """Fire the timers of processing time."""
        self._fire(PROCESSING_TIMERS, now)

    def _fire(self, name: str, until: int) -> None:
        backend = self._backend
        if backend is None or name not in backend.states:
            return
        is_event_time = name == EVENT_TIMERS
        timers = backend.event_timers if is_event_time else backend.processing_timers
        has_fired = True
        # A timer's call may register timers that are due as well.
        while has_fired:
            has_fired = False
            for fired in timers.advance_in_parts(until, _MOST_TIMERS):
                if fired.num_rows:
                    has_fired = True
                    backend.set_keys(fired.select(range(fired.num_columns - 1)))
                    self._call(
                        "on_event_timers" if is_event_time else "on_processing_timers", fired
                    )

    def close(self) -> None:
        """Close the function."""
        function, self._function = self._function, None
        try:
            if function is not None:
                with calling(self._uid, "close"):
                    function.close()
        finally:
            super().close()


class ProcessOperator(FunctionOperator):
    """The operator of a :class:`~headgate.stream.ProcessFunction`."""

    def process(self, batch: pa.RecordBatch) -> None:
        """Call the function with a batch whose keys are set."""
        if self._backend is not None:
            self._backend.set_keys(batch.select(self._key_schema.names))
        self._call("process", batch)


def _emit_rows(
    context: OperatorContext,
    results: Mapping[str | None, Results],
    rows: FunctionRows,
    output: str | None,
) -> None:
    """Emit what a function gives to its context."""
    if output not in results:
        raise StateError(
            f"{context.uid} has no side output {output!r}",
            have=", ".join(name for name in results if name) or "none",
            remedy="side_outputs={name: schema} of process()",
        )
    for batch in results[output].batches("emit()", rows):
        context.emit(batch, output)
