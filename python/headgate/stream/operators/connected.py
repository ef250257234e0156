"""The operators of functions of two streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headgate.stream.graph.context import BroadcastContext, KeyedContext
from headgate.stream.operators.process import FunctionOperator
from headgate.stream.state.broadcast import BroadcastState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.stream.graph.operator import OperatorContext
    from headgate.stream.operators.sides import Sides

_METHODS: Final = ("process_first", "process_second")
#: The key columns of the state of an operator without keys, of which no row has any.
_NO_KEYS: Final = pa.schema([("no key", pa.int64())])


class _OperatorOfBoth(FunctionOperator):
    """An operator that calls a function with the rows of two streams.

    Args:
        function: an instance, or what makes one.
        sides: the two streams; the second one may be one that all tasks get.
        schema: of the result.
        side_outputs: schemas by name.
    """

    def __init__(
        self, function: Any, sides: Sides, schema: pa.Schema, side_outputs: Mapping[str, pa.Schema]
    ) -> None:
        super().__init__(function, sides.key_schema, schema, side_outputs)
        self._sides = sides


class CoProcessOperator(_OperatorOfBoth):
    """The operator of a :class:`~headgate.stream.CoProcessFunction`. The keys have the first stream's names."""

    def process(self, batch: pa.RecordBatch) -> None:
        """Call the function for the rows of each side."""
        for side, rows in self._sides.split(batch):
            if self._backend is not None:
                self._backend.set_keys([rows[key] for key in self._sides.keys[side]])
                self._call(_METHODS[side], rows)


class BroadcastOperator(_OperatorOfBoth):
    """The operator of a :class:`~headgate.stream.BroadcastProcessFunction`; its stream may have keys."""

    def _make_context(self, context: OperatorContext, emit: Any) -> KeyedContext:
        is_keyed = len(self._key_schema) > 0
        backend = self._restore(context, self._key_schema if is_keyed else _NO_KEYS)
        return BroadcastContext(context, emit, backend, is_keyed=is_keyed)

    def process(self, batch: pa.RecordBatch) -> None:
        """Call the function for the rows of each side."""
        backend = self._backend
        for side, rows in self._sides.split(batch):
            if backend is None:
                return
            if side:
                backend.current.set(None)
                self._write(rows)
                continue
            if len(self._key_schema):
                backend.set_keys([rows[key] for key in self._sides.keys[0]])
            self._call("process", rows)

    def _write(self, rows: pa.RecordBatch) -> None:
        states = self._backend.states if self._backend is not None else {}
        written = [s for s in states.values() if isinstance(s, BroadcastState)]
        for state in written:
            state.is_writable = True
        try:
            self._call("process_broadcast", rows)
        finally:
            for state in written:
                state.is_writable = False
