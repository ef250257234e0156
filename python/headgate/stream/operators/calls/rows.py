"""The rows of calls: what functions return, rows that failed, and the form of both in checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headgate.errors import SchemaMismatchError
from headgate.stream.operators.results import Results

if TYPE_CHECKING:
    from headgate.stream.operators.calls.loop import Call

#: Column of rows whose results are remembered: the same bytes for equal rows. No function sees it.
DIGEST: Final = "__digest__"
#: The side output of calls that have failed, and its columns behind those of the rows.
ERRORS: Final = "errors"
ERROR_COLUMNS: Final = pa.schema(
    [("_error", pa.string()), ("_attempts", pa.int32()), ("_call_id", pa.string())]
)
#: Types of values that nobody can change once a call has returned them.
_CONSTANT: Final = frozenset(
    (int, float, str, bytes, bool, type(None), date, datetime, time, timedelta, Decimal)
)
#: Most bytes of results that share memory: one that waits holds all of them.
_SHARED_BYTES: Final = 1 << 16


def error_schema(rows: pa.Schema) -> pa.Schema:
    """Return the schema of the side output of calls that have failed."""
    return pa.schema([*(field for field in rows if field.name != DIGEST), *ERROR_COLUMNS])


def error_rows(call: Call, text: str) -> pa.RecordBatch:
    """Return the rows of a call that has failed, with its error."""
    rows = without_digest(call.rows)
    columns = [[text], [call.failed], [call.call_id]]
    of_error = [
        pa.array(column * rows.num_rows, field.type)
        for column, field in zip(columns, ERROR_COLUMNS, strict=True)
    ]
    return pa.RecordBatch.from_arrays([*rows.columns, *of_error], schema=error_schema(rows.schema))


def without_digest(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows as functions and side outputs have them."""
    names = rows.schema.names
    return rows.select([at for at, name in enumerate(names) if name != DIGEST])


def null_rows(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of a schema with the columns that they have, and nulls."""
    columns = [
        rows[field.name] if is_same_column(rows.schema, field) else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def is_same_column(rows: pa.Schema, field: pa.Field) -> bool:
    """Return True if rows have one column of the name, with the same type."""
    places = rows.get_all_field_indices(field.name)
    return len(places) == 1 and rows.field(places[0]).type == field.type


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return batches as one."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


class CallResults:
    """Makes batches of what calls return: dicts, or rows of any library.

    Args:
        uid: of the operator.
        schema: of the batches.
    """

    def __init__(self, uid: str, schema: pa.Schema) -> None:
        self._uid, self._schema, self._names = uid, schema, frozenset(schema.names)
        self._results = Results(uid, schema)

    def batches(self, result: Any) -> list[pa.RecordBatch]:
        """Return the batches that have rows.

        Raises:
            SchemaMismatchError: no rows, or rows of another schema.
            UserFunctionError: the function failed, as a generator.
        """
        rows = [result] if isinstance(result, Mapping) else result
        if isinstance(rows, Sequence) and rows and all(isinstance(row, Mapping) for row in rows):
            result = self._of_dicts(rows)
        return list(self._results.batches("the call", result))

    def _of_dicts(self, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        unknown = [name for row in rows for name in row if name not in self._names]
        if unknown:
            raise SchemaMismatchError(
                f"the call of {self._uid} returned a dict with {unknown[0]!r}, which is no column of schema=",
                have=", ".join(self._schema.names),
                remedy="the names of schema= · schema= with this column",
            )
        try:
            columns = [
                pa.array([row.get(field.name) for row in rows], field.type)
                for field in self._schema
            ]
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise SchemaMismatchError(
                f"the call of {self._uid} returned a dict that does not fit schema=: {error}",
                have=", ".join(f"{field.name} {field.type}" for field in self._schema),
            ) from error
        return pa.RecordBatch.from_arrays(columns, names=self._schema.names)


@dataclass(frozen=True, slots=True)
class SharedRows:
    """Rows of several calls, one of each, which were converted together.

    Attributes:
        rows: of all calls.
        size: bytes of a row, about.
    """

    rows: pa.RecordBatch
    size: float


class SharedResults:
    """Makes one batch of the results of several calls that returned a dict each: some values cost as much as one.

    Args:
        uid: of the operator.
        schema: of the batches.
    """

    def __init__(self, uid: str, schema: pa.Schema) -> None:
        self._schema, self._names, self._columns = schema, schema.names, frozenset(schema.names)
        self._results = CallResults(uid, schema)

    def constants(self, result: Any) -> tuple[Any, ...] | None:
        """Return the values of a dict that can be converted later; None if it is none, or not sure to stay as it is."""
        if type(result) is not dict or not result.keys() <= self._columns:
            return None
        values = tuple(map(result.get, self._names))
        return values if values and _CONSTANT.issuperset(map(type, values)) else None

    def convert(self, calls: Sequence[Call]) -> None:
        """Give calls their result instead of its values, or the error of a value that does not fit."""
        try:
            (rows,) = self._batches(zip(*(call.values or () for call in calls), strict=True))
        except Exception:  # noqa: BLE001 - each call has the error of its own values
            rows = None
        if rows is None or rows.nbytes > _SHARED_BYTES:
            for call in calls:
                self._convert_alone(call)
            return
        shared = SharedRows(rows, rows.nbytes / rows.num_rows)
        for at, call in enumerate(calls):
            call.values, call.shared, call.place = None, shared, at
            call.result = [rows.slice(at, 1)]

    def _batches(self, columns: Iterable[Sequence[Any]]) -> Sequence[pa.RecordBatch]:
        arrays = [
            pa.array(values, field.type)
            for values, field in zip(columns, self._schema, strict=True)
        ]
        return self._results.batches(pa.RecordBatch.from_arrays(arrays, names=self._names))

    def _convert_alone(self, call: Call) -> None:
        values, call.values = call.values or (), None
        try:
            call.result = self._results.batches(dict(zip(self._names, values, strict=True)))
        except Exception as error:  # noqa: BLE001 - of the call
            call.error = error


def rows_to_send(calls: Sequence[Call]) -> list[pa.RecordBatch]:
    """Return the results of calls in their order: those that share memory and follow each other as one batch."""
    batches: list[pa.RecordBatch] = []
    shared, start, stop = None, 0, 0
    for call in calls:
        if call.shared is not None and call.shared is shared and call.place == stop:
            stop += 1
            continue
        if shared is not None:
            batches.append(shared.rows.slice(start, stop - start))
        shared, start, stop = call.shared, call.place, call.place + 1
        if shared is None:
            batches += call.outcome or ()
    if shared is not None:
        batches.append(shared.rows.slice(start, stop - start))
    return batches
