"""Converts Spark's schemas to Arrow's, and checks that columns can be sent and hashed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate._matches import close_matches
from headgate.errors import UnknownColumnError, UnsupportedTypeError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from pyspark.sql import types
    from pyspark.sql.types import DataType, StructType


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
        kind = _arrow_type(field.dataType, timezone)
        if kind is None:
            raise _unsupported(field.name, field.dataType, "be sent")
        fields.append(pa.field(field.name, kind, field.nullable))
    return pa.schema(fields)


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
    known = inspect.signature(to_arrow_schema).parameters
    return to_arrow_schema(schema, **(named if "timezone" in known else {}))


def key_columns(
    schema: StructType, names: Iterable[str], *, case_sensitive: bool, of: str
) -> list[str]:
    """Return the names of the key columns, spelt as in the schema.

    Args:
        schema: schema of the rows to partition.
        names: the names that the user gave.
        case_sensitive: Spark's ``spark.sql.caseSensitive``.
        of: owner of the schema for the error text, such as "the input".

    Raises:
        UnknownColumnError: No column has the name, or more than one has it.
        UnsupportedTypeError: A column has a type that cannot be hashed.
    """
    found = []
    for name in names:
        fits = [f for f in schema.fields if _same(f.name, name, case_sensitive=case_sensitive)]
        if len(fits) != 1:
            near = [] if fits else close_matches(name, schema.names)
            problem = "there is no column" if not fits else "there is more than one column"
            twice = 'rename one of them · spark.conf.set("spark.sql.caseSensitive", True)'
            raise UnknownColumnError(
                f"{problem} {name!r} in {of}",
                asked=f"by={name!r}",
                have=", ".join(schema.names) or "no columns",
                remedy=twice if fits else " · ".join(f"by={column!r}" for column in near),
                details={"column": name, "columns": schema.names, "close": near},
            )
        if not _is_hashable(fits[0].dataType):
            raise _unsupported(fits[0].name, fits[0].dataType, "be a key")
        found.append(fits[0].name)
    return found


def _same(left: str, right: str, *, case_sensitive: bool) -> bool:
    return left == right if case_sensitive else left.casefold() == right.casefold()


def _unsupported(column: str, kind: DataType, what: str) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"column {column!r} of type {kind.simpleString()} cannot {what}",
        asked=f"{column} {kind.simpleString()}",
        have="boolean, whole numbers, float, double, decimal, string, binary, date, timestamp, "
        "arrays and structs of these" + ("" if what == "be a key" else ", maps, day-time interval"),
        details={"column": column, "type": kind.simpleString()},
    )


def _is_hashable(kind: DataType) -> bool:
    from pyspark.sql import types  # noqa: PLC0415 - pyspark only where Spark is

    if isinstance(kind, types.ArrayType):
        return _is_hashable(kind.elementType)
    if isinstance(kind, types.StructType):
        return all(_is_hashable(field.dataType) for field in kind.fields)
    if isinstance(kind, types.StringType):
        # Spark hashes a collated string by its collation key, which Python cannot compute.
        return getattr(kind, "collation", "UTF8_BINARY") in {None, "UTF8_BINARY"}
    # Spark cannot hash a map.
    return not isinstance(kind, (types.DayTimeIntervalType, types.MapType))


def _arrow_type(kind: DataType, timezone: str) -> pa.DataType | None:
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


def _nested_type(
    kind: types.ArrayType | types.MapType | types.StructType, timezone: str
) -> pa.DataType | None:
    """Return the nested Arrow type, with Spark's names of inner fields; None if it cannot be sent."""
    import pyarrow as pa  # noqa: PLC0415
    from pyspark.sql import types  # noqa: PLC0415

    def inside(name: str, kind: DataType, *, nullable: bool) -> pa.Field | None:
        found = _arrow_type(kind, timezone)
        return None if found is None else pa.field(name, found, nullable)

    if isinstance(kind, types.ArrayType):
        element = inside("element", kind.elementType, nullable=kind.containsNull)
        return None if element is None else pa.list_(element)
    if isinstance(kind, types.MapType):
        key = inside("key", kind.keyType, nullable=False)
        value = inside("value", kind.valueType, nullable=kind.valueContainsNull)
        return None if key is None or value is None else pa.map_(key, value)
    fields = []
    for field in kind.fields:
        found = inside(field.name, field.dataType, nullable=field.nullable)
        if found is None:
            return None
        fields.append(found)
    return pa.struct(fields)
