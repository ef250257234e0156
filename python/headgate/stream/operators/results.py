"""Results of the functions of users: any rows that an exchange takes as well, cast to the schema of their operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate._kinds import kind_of
from headgate.batches import returned, schema_of
from headgate.errors import HeadgateError, SchemaMismatchError, UserFunctionError
from headgate.schema_cast import ExactCast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType


class calling:  # noqa: N801 - used as a statement
    """Names the operator in errors of the user's code.

    Args:
        uid: of the operator.
        what: the function that is called.
        error: class of the new error.
        unchanged: classes of errors that stay as they are.
    """

    __slots__ = ("_error", "_uid", "_unchanged", "_what")

    def __init__(
        self,
        uid: str,
        what: str,
        error: type[HeadgateError] = UserFunctionError,
        *unchanged: type[HeadgateError],
    ) -> None:
        self._uid, self._what, self._error = uid, what, error
        self._unchanged = unchanged or (SchemaMismatchError, UserFunctionError)

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Turn an error of the user's code into one that names the operator."""
        if isinstance(error, Exception) and not isinstance(error, self._unchanged):
            raise self._error(
                f"{self._what} of {self._uid} failed: {type(error).__name__}: {error}"
            ) from error


class Results:
    """Makes batches of one schema of what the functions of an operator return.

    Args:
        uid: of the operator.
        schema: of the batches.
        option: the argument that declares the schema, for errors; empty if there is none.
    """

    def __init__(self, uid: str, schema: pa.Schema, option: str = "schema") -> None:
        self._uid = uid
        self._schema = schema
        self._option = option
        self._casts: dict[str, ExactCast] = {}

    def batches(self, what: str, result: Any) -> Iterator[pa.RecordBatch]:
        """Yield the batches that have rows.

        Args:
            what: the function.
            result: of the function, whose own code runs in here, if it is a generator.

        Raises:
            SchemaMismatchError: it has no rows, such as None, or rows of another schema.
            UserFunctionError: the function failed.
        """
        cast = self._casts.get(what)
        name = f"{what} of {self._uid}"
        if cast is None:
            cast = self._casts[what] = ExactCast(self._schema, name, self._option)
        batches = cast.all(returned(name, result))
        while True:
            with calling(self._uid, what):
                batch = next(batches, None)
            if batch is None:
                return
            if batch.num_rows:
                yield batch


def learned_schema(
    call: str, function: Callable[[pa.RecordBatch], Any], rows: pa.RecordBatch
) -> pa.Schema:
    """Return the schema of what a function returns for a batch without rows.

    Args:
        call: that has no ``schema=``, such as ``"map()"``.
        function: of a user.
        rows: the batch.

    Raises:
        UserFunctionError: the function failed without rows, or its result says too little.
        SchemaMismatchError: it returned no rows, such as None.
    """
    attempt = f"{call} called its function with a batch without rows, to learn the schema,"
    remedy = "a function that takes a batch without rows"
    if call == "map()":
        remedy = f"map(function, schema=...) · {remedy}"
    try:
        schema = schema_of(f"the function of {call}", function(rows))
    except SchemaMismatchError:
        raise
    except Exception as error:
        raise UserFunctionError(
            f"{attempt} and it failed: {type(error).__name__}: {error}", remedy=remedy
        ) from error
    if schema is None:
        raise UserFunctionError(f"{attempt} and got nothing", remedy=remedy)
    unknown = [field.name for field in schema if pa.types.is_null(field.type)]
    if unknown and not any(pa.types.is_null(field.type) for field in rows.schema):
        raise UserFunctionError(
            f"{attempt} and got a column {unknown[0]!r} whose type it does not know without rows",
            have=", ".join(f"{field.name} {field.type}" for field in schema),
            remedy=remedy,
        )
    # Polars has views of texts, for which Arrow lacks many functions.
    plain = {"string_view": pa.string(), "binary_view": pa.binary()}
    fields = [field.with_type(plain.get(str(field.type), field.type)) for field in schema]
    return pa.schema(fields)


def mask_of(uid: str, result: Any, rows: int) -> pa.Array | pa.ChunkedArray:
    """Return what a predicate returned as an array of booleans.

    Args:
        uid: of the operator.
        result: an array or a series of any library, or a list.
        rows: number of rows.

    Raises:
        SchemaMismatchError: it is none, or has another length.
    """
    try:
        if isinstance(result, (pa.Array, pa.ChunkedArray)):
            mask = result
        elif hasattr(result, "__arrow_c_stream__"):
            mask = pa.chunked_array(result)
        else:
            mask = pa.array(result)
        have = f"{len(mask)} values of type {mask.type}"
    except (TypeError, ValueError, pa.ArrowException):
        mask, have = None, kind_of(result)
    if mask is None or not pa.types.is_boolean(mask.type) or len(mask) != rows:
        raise SchemaMismatchError(
            f"filter of {uid} returned {kind_of(result)}, not a boolean for each row",
            asked=f"{rows} booleans",
            have=have,
            remedy='return a boolean array, such as pc.greater(batch["price"], 3)',
        )
    return mask
