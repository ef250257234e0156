"""Converts Spark's schemas to Arrow's, and checks that columns can be sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.errors import UnsupportedTypeError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import types
    from pyspark.sql.types import DataType, StructType


_FLAT: Final = "boolean, whole numbers, float, double, decimal, string, binary, date, timestamp"
#: Use of a column -> the types that allow it, beside flat ones.
_FURTHER: Final = {
    "be sent": ", arrays and structs of these, maps, day-time interval",
    "be a key": ", arrays and structs of these",
    "be sorted by": ", day-time interval",
}
_REMEDIES: Final = {
    "be sent": "cast the column · drop it before the exchange",
    "be a key": "cast the column · give another one, or a field of it",
    "be sorted by": "give another column, or a field of it",
}
#: Collation of text that is compared byte by byte.
_BYTEWISE: Final = "UTF8_BINARY"


def arrow_schema(schema: StructType, timezone: str) -> pa.Schema:
    """Return the schema of the batches to send, with the types in which Spark gives them to Python.

    Args:
        schema: schema of the DataFrame.
        timezone: time zone of its timestamp columns; Spark uses that of the session.

    Raises:
        UnsupportedTypeError: A column has a type that cannot be sent. The error names column and
            type.
    """
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    fields = []
    for field in schema.fields:
        kind = arrow_type(field.dataType, timezone)
        if kind is None:
            raise unsupported(field.name, field.dataType, "be sent")
        fields.append(pa.field(field.name, kind, field.nullable))
    return pa.schema(fields)


def arrow_type(kind: DataType, timezone: str) -> pa.DataType | None:
    """Return the type in which Spark gives a type to Python; None if it cannot be sent."""
    import pyarrow as pa  # noqa: PLC0415
    from pyspark.sql import types  # noqa: PLC0415

    if isinstance(kind, (types.ArrayType, types.MapType, types.StructType)):
        return _nested_type(kind, timezone)
    if isinstance(kind, types.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, (types.StringType, types.CharType, types.VarcharType)):
        return pa.string()
    plain: dict[type, Any] = {
        types.BooleanType: pa.bool_(),
        types.ByteType: pa.int8(),
        types.ShortType: pa.int16(),
        types.IntegerType: pa.int32(),
        types.LongType: pa.int64(),
        types.FloatType: pa.float32(),
        types.DoubleType: pa.float64(),
        types.BinaryType: pa.binary(),
        types.DateType: pa.date32(),
        types.TimestampType: pa.timestamp("us", tz=timezone),
        types.TimestampNTZType: pa.timestamp("us"),
        types.DayTimeIntervalType: pa.duration("us"),
    }
    return plain.get(type(kind))


def is_bytewise(kind: DataType) -> bool:
    """Return True if all texts in a type are compared byte by byte."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType  # noqa: PLC0415

    match kind:
        case StringType():
            return bool(getattr(kind, "collation", _BYTEWISE) == _BYTEWISE)
        case ArrayType():
            return is_bytewise(kind.elementType)
        case MapType():
            return is_bytewise(kind.keyType) and is_bytewise(kind.valueType)
        case StructType():
            return all(is_bytewise(field.dataType) for field in kind.fields)
    return True


def result_schema(schema: StructType, timezone: str) -> pa.Schema:
    """Return the schema of the batches that Spark takes for a result with these columns.

    Unlike :func:`arrow_schema` it takes all of Spark's types.

    Args:
        schema: schema of the result.
        timezone: time zone of its timestamp columns.
    """
    try:
        return arrow_schema(schema, timezone)
    except UnsupportedTypeError:
        return arrow_schema_in_utc(schema)  # a type that cannot be sent, such as Spark's intervals


def arrow_schema_in_utc(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark's data sources have: any type, timestamps in UTC."""
    import inspect  # noqa: PLC0415 - only here

    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - only where Spark is

    # Spark 4.0 has no parameter `timezone` and uses UTC.
    named: dict[str, Any] = {"timezone": "UTC"}
    parameters = inspect.signature(to_arrow_schema).parameters
    return to_arrow_schema(schema, **(named if "timezone" in parameters else {}))


def unsupported(column: str, kind: DataType, what: str) -> UnsupportedTypeError:
    """Return the error for a column whose type cannot do what is asked, such as "be sent"."""
    return UnsupportedTypeError(
        f"column {column!r} of type {kind.simpleString()} cannot {what}",
        asked=f"{column} {kind.simpleString()}",
        have=_FLAT + _FURTHER[what],
        remedy=_REMEDIES[what],
        details={"column": column, "type": kind.simpleString()},
    )


def _nested_type(
    kind: types.ArrayType | types.MapType | types.StructType, timezone: str
) -> pa.DataType | None:
    """Return the nested Arrow type, with Spark's names of inner fields; None if it cannot be sent."""
    import pyarrow as pa  # noqa: PLC0415
    from pyspark.sql import types  # noqa: PLC0415

    def inside(name: str, kind: DataType, *, nullable: bool) -> pa.Field | None:
        arrow_field = arrow_type(kind, timezone)
        return None if arrow_field is None else pa.field(name, arrow_field, nullable)

    if isinstance(kind, types.ArrayType):
        element = inside("element", kind.elementType, nullable=kind.containsNull)
        return None if element is None else pa.list_(element)
    if isinstance(kind, types.MapType):
        key = inside("key", kind.keyType, nullable=False)
        value = inside("value", kind.valueType, nullable=kind.valueContainsNull)
        return None if key is None or value is None else pa.map_(key, value)
    fields = []
    for field in kind.fields:
        arrow_field = inside(field.name, field.dataType, nullable=field.nullable)
        if arrow_field is None:
            return None
        fields.append(arrow_field)
    return pa.struct(fields)
