"""Values of Spark's expressions, as Arrow's expressions compute them."""

from __future__ import annotations

import decimal
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Literal, TypeAlias

from headgate.spark.filters import scalar as exact_scalar
from headgate.spark.schema import arrow_type, is_bytewise

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql.types import StructType

#: The least and the largest value of a whole number.
Bounds: TypeAlias = tuple[int, int]
#: A column of floats in a filter, and when Spark's reader may lose rows of it: always, if there is a NaN, or only
#: then and if the comparison is negated.
Risk: TypeAlias = tuple[str, Literal["always", "nan", "negated"]]


@dataclass(frozen=True, slots=True)
class Value:
    """An Arrow expression that has the values of one of Spark's.

    Attributes:
        expression: the expression.
        type: its type.
        columns: names of the columns that it needs.
        is_bytewise: True if texts in it are compared byte by byte.
        bounds: of a whole number; None for other types.
        literal: its value, if it is the same for all rows.
        float_column: its name, if it is a column of floats as it is in files, or a field of one; else empty.
        risks: of a filter by it.
    """

    expression: pc.Expression
    type: pa.DataType
    columns: frozenset[str] = frozenset()
    is_bytewise: bool = True
    bounds: Bounds | None = None
    literal: pa.Scalar | None = None
    float_column: str = ""
    risks: frozenset[Risk] = frozenset()


def values_of(schema: StructType, ids: Sequence[int], zone: str) -> dict[int, Value]:
    """Return Spark's ids of the columns of a schema that can be sent -> their values.

    Args:
        schema: of Spark.
        ids: of its columns, in their order.
        zone: time zone of the session.
    """
    values = {}
    for id_, field in zip(ids, schema.fields, strict=True):
        type_ = arrow_type(field.dataType, zone)
        if type_ is not None:
            values[id_] = _column(field.name, type_, is_bytewise=is_bytewise(field.dataType))
    return values


def _column(name: str, type_: pa.DataType, *, is_bytewise: bool) -> Value:
    """Return the values of a column."""
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

    return Value(
        pc.field(name),
        type_,
        frozenset({name}),
        is_bytewise,
        limits(type_),
        float_column=name if is_float(type_) else "",
    )


def is_float(type_: pa.DataType) -> bool:
    """Return True for Spark's float and double."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    return bool(pa.types.is_float32(type_) or pa.types.is_float64(type_))


def constant(value: pa.Scalar) -> Value:
    """Return a value that is the same for all rows."""
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

    bounds = limits(value.type)
    if bounds is not None and value.is_valid:
        bounds = (value.as_py(), value.as_py())
    return Value(pc.scalar(value), value.type, bounds=bounds, literal=value)


def limits(type_: pa.DataType) -> Bounds | None:
    """Return the least and the largest value of a type of whole numbers; None for other types."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    if not pa.types.is_signed_integer(type_):
        return None
    half = 1 << (type_.bit_width - 1)
    return -half, half - 1


def number_of_time(number: int, type_: pa.DataType) -> pa.Scalar:
    """Return a date or timestamp from its days or microseconds since 1970, as Spark counts them."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    counted = pa.int32() if pa.types.is_date(type_) else pa.int64()
    return pa.scalar(number, counted).cast(type_)


def parsed(text: str, type_: pa.DataType) -> pa.Scalar | None:
    """Return the value of a number, boolean or text that the JVM wrote; None if there is none."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    types = pa.types
    try:
        if types.is_boolean(type_):
            return exact_scalar({"true": True, "false": False}[text], type_)
        if types.is_signed_integer(type_):
            return exact_scalar(int(text), type_)
        if types.is_decimal(type_):
            return pa.scalar(Decimal(text), type_)
        if types.is_floating(type_):
            # Arrow's parser rounds once; Python's would round to a double first.
            return pa.scalar(text).cast(type_)
        return exact_scalar(text, type_) if types.is_string(type_) else None
    except (KeyError, ValueError, OverflowError, pa.ArrowException, decimal.InvalidOperation):
        return None
