"""Arrow's types, as far as state can have them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate import _native
from headgate._matches import close_matches
from headgate.errors import StateError, UnknownColumnError, UnsupportedTypeError
from headgate.stream.state.values import storage_type

if TYPE_CHECKING:
    from collections.abc import Callable

_SUMS: Final = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_duration,
)


def check_type(of: Any, what: str) -> None:
    """Refuse a type whose values cannot be kept.

    Args:
        of: the type.
        what: a name for it in the error.

    Raises:
        StateError: it is no type of Arrow.
        UnsupportedTypeError: Arrow cannot choose rows among values of the type, as of ``string_view``.
    """
    if not isinstance(of, pa.DataType):
        raise StateError(f"{what} is of type {of!r}, which is no Arrow type", remedy="pa.int64()")
    if not can_take(of):
        raise UnsupportedTypeError(
            f"{what} is of type {of}, of which pyarrow cannot choose rows",
            remedy="cast it to string, binary or another plain type",
        )


def check_columns(schema: pa.Schema) -> None:
    """Refuse columns of types whose rows Arrow cannot choose.

    Raises:
        UnsupportedTypeError: a column of such a type.
    """
    for field in schema:
        check_type(field.type, f"column {field.name!r}")


def check_sent(schema: pa.Schema) -> None:
    """Refuse columns of types that cannot move to another task.

    Raises:
        UnsupportedTypeError: a column of such a type.
    """
    _native.check_schema(schema)


def column_index(schema: pa.Schema, name: str, call: str = "{}") -> int:
    """Return the position of a column.

    Args:
        schema: of the batches.
        name: of the column.
        call: that names it, for the error.

    Raises:
        UnknownColumnError: no column, or more than one, has the name.
    """
    positions = schema.get_all_field_indices(name)
    if len(positions) != 1:
        near = close_matches(name, schema.names)
        how_many, remedy = "is no column", " · ".join(call.format(repr(column)) for column in near)
        if positions:
            how_many = f"are {len(positions)} columns"
            remedy = (
                "map(lambda batch: batch.rename_columns([...])), so that each has a name of its own"
            )
        raise UnknownColumnError(
            f"there {how_many} {name!r}",
            asked=call.format(repr(name)),
            have=", ".join(schema.names),
            remedy=remedy,
        )
    return int(positions[0])


def check_reduce(reduce: str, of: pa.DataType, what: str) -> None:
    """Refuse a sum, a minimum or a maximum of a type that has none.

    Raises:
        UnsupportedTypeError: the type has none.
    """
    if reduce == "sum" and not any(can(of) for can in _SUMS):
        raise UnsupportedTypeError(
            f"a sum of {what}, which is of type {of}",
            remedy="cast it to an integer, a decimal, pa.float64() or a duration",
        )
    if reduce in {"min", "max"} and not can_compare(of):
        raise UnsupportedTypeError(
            f"a {reduce} of {what}, which is of type {of}",
            remedy="cast it to a number, a time, string or binary",
        )


@cache
def can_take(of: pa.DataType) -> bool:
    """Return True if Arrow chooses rows among values of a type."""

    def use(values: pa.Array) -> None:
        both = pa.concat_arrays([values, values])
        both.take(pa.array([0, None]))
        both.filter(pa.array([True, False]))

    return _works(of, use)


@cache
def can_compare(of: pa.DataType) -> bool:
    """Return True if one of two values of a type is the least."""
    if storage_type(of) is not None:
        return True
    # Of dictionaries the least is a value, from which Arrow does not make all types of dictionaries.
    return _works(of, lambda values: pc.min_element_wise(values, values).cast(of))


def _works(of: pa.DataType, use: Callable[[pa.Array], Any]) -> bool:
    try:
        use(pa.nulls(1, of))
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError, TypeError):
        return False
    return True


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return an empty batch."""
    # Arrow makes no list of values of an extension type, but nulls of any type.
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)
