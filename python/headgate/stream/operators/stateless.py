"""Operators that keep nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import SchemaMismatchError, UserFunctionError
from headgate.stream.operators.operator import Operator, OperatorContext

if TYPE_CHECKING:
    from types import TracebackType

    from headgate.stream.api.functions import Batches


class MapOperator(Operator):
    """Calls a function with each batch.

    Args:
        function: returns any number of batches.
        schema: of the result.
    """

    def __init__(self, function: Callable[[pa.RecordBatch], Batches], schema: pa.Schema) -> None:
        self._function = function
        self._schema = schema

    def open(self, context: OperatorContext) -> None:
        """Remember the context."""
        self._context = context

    def process(self, batch: pa.RecordBatch) -> None:
        """Emit what the function returns."""
        with calling(self._context.uid, "map"):
            found = self._function(batch)
        emit_all(self._context, found, self._schema)


class FilterOperator(Operator):
    """Keeps some rows.

    Args:
        predicate: an expression, or a function from a batch to a boolean array.
    """

    def __init__(self, predicate: Any) -> None:
        self._predicate = predicate

    def open(self, context: OperatorContext) -> None:
        """Remember the context."""
        self._context = context

    def process(self, batch: pa.RecordBatch) -> None:
        """Emit the rows for which the predicate is true."""
        with calling(self._context.uid, "filter"):
            if isinstance(self._predicate, pc.Expression):
                kept = batch.filter(self._predicate)
            else:
                kept = batch.filter(as_mask(self._predicate(batch)))
        if kept.num_rows:
            self._context.emit(kept, None)


class calling:  # noqa: N801 - used as a statement
    """Names the operator in errors of the user's code.

    Args:
        uid: of the operator.
        what: the function that is called.
    """

    __slots__ = ("_uid", "_what")

    def __init__(self, uid: str, what: str) -> None:
        self._uid, self._what = uid, what

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Turn an error of the user's code into one that names the operator."""
        if isinstance(error, Exception) and not isinstance(error, UserFunctionError):
            raise UserFunctionError(
                f"{self._what} of {self._uid} failed: {type(error).__name__}: {error}"
            ) from error


def emit_all(
    context: OperatorContext, found: Batches, schema: pa.Schema, output: str | None = None
) -> None:
    """Emit all batches of a result that have rows.

    Raises:
        SchemaMismatchError: a batch has another schema.
    """
    for batch in as_batches(found):
        if not batch.num_rows:
            continue
        if not batch.schema.equals(schema):
            batch = as_schema(batch, schema, context.uid)  # noqa: PLW2901 - the same rows
        context.emit(batch, output)


def as_batches(found: Batches) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a function's result."""
    if found is None:
        return
    if isinstance(found, pa.RecordBatch):
        yield found
    elif isinstance(found, pa.Table):
        yield from found.to_batches() or [pa.RecordBatch.from_pylist([], schema=found.schema)]
    else:
        for one in found:
            yield from as_batches(one)


def as_schema(batch: pa.RecordBatch, schema: pa.Schema, uid: str) -> pa.RecordBatch:
    """Return a batch with the declared schema: metadata is dropped, columns that differ are cast if all values fit.

    Raises:
        SchemaMismatchError: other columns, or values that do not fit.
    """
    if batch.schema.names == schema.names:
        try:
            return batch.cast(schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
            reason = f": {error}"
    else:
        reason = ""
    raise SchemaMismatchError(
        f"{uid} returned rows of another schema than it declares{reason}",
        asked=", ".join(f"{f.name} {f.type}" for f in schema),
        have=", ".join(f"{f.name} {f.type}" for f in batch.schema),
        remedy="schema= of the operator",
    )


def as_mask(found: Any) -> Any:
    """Return a mask as an Arrow array."""
    return found if isinstance(found, (pa.Array, pa.ChunkedArray)) else pa.array(found)
