"""Operators that keep nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headgate.stream.graph.operator import Operator, OperatorContext
from headgate.stream.operators.results import Results, calling, mask_of

if TYPE_CHECKING:
    from headgate.stream.graph.context import FunctionRows


class MapOperator(Operator):
    """Calls a function with each batch.

    Args:
        function: returns rows.
        schema: of the result.
    """

    def __init__(
        self, function: Callable[[pa.RecordBatch], FunctionRows], schema: pa.Schema
    ) -> None:
        self._function = function
        self._schema = schema

    def open(self, context: OperatorContext) -> None:
        """Get ready."""
        super().open(context)
        self._results = Results(context.uid, self._schema)

    def process(self, batch: pa.RecordBatch) -> None:
        """Emit what the function returns."""
        with calling(self._context.uid, "map"):
            result = self._function(batch)
        for rows in self._results.batches("map", result):
            self._context.emit(rows, None)


class FilterOperator(Operator):
    """Keeps some rows.

    Args:
        predicate: an expression, or a function from a batch to a boolean array.
    """

    def __init__(self, predicate: Any) -> None:
        self._predicate = predicate

    def process(self, batch: pa.RecordBatch) -> None:
        """Emit the rows for which the predicate is true."""
        uid = self._context.uid
        with calling(uid, "filter"):
            if isinstance(self._predicate, pc.Expression):
                rows = batch.filter(self._predicate)
            else:
                rows = batch.filter(mask_of(uid, self._predicate(batch), batch.num_rows))
        if rows.num_rows:
            self._context.emit(rows, None)
