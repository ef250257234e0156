"""Converts the Arrow schema of a source to Spark's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.errors import UnsupportedTypeError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

#: Largest precision of Spark's decimals.
_MAX_PRECISION: Final = 38


def spark_schema(schema: pa.Schema) -> StructType:
    """Return Spark's schema of a source, with the types in which Spark reads them from Parquet.

    Unsigned integers and half floats become the next larger type that Spark has. Timestamps and
    durations become microseconds. Large, view and dictionary-encoded columns become plain ones.

    Raises:
        UnsupportedTypeError: A column has a type for which Spark has none. The error names column
            and type.
    """
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    from pyspark.errors import PySparkException  # noqa: PLC0415 - only where Spark is
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - only where Spark is
    from pyspark.sql.types import StructType  # noqa: PLC0415 - only where Spark is

    fields: list[Any] = []
    for field in schema:
        plain = pa.field(field.name, plain_type(field.type), field.nullable)
        if pa.types.is_decimal(plain.type) and plain.type.precision > _MAX_PRECISION:
            raise _unsupported(field)
        try:
            # The default differs between versions of PySpark.
            converted = from_arrow_schema(pa.schema([plain]), prefer_timestamp_ntz=True).fields[0]
        except PySparkException as error:
            raise _unsupported(field) from error
        fields.append(converted)
    return StructType(fields)


def _unsupported(field: pa.Field) -> UnsupportedTypeError:
    import pyarrow.types as pt  # noqa: PLC0415 - slow to import

    return UnsupportedTypeError(
        f"Spark has no type for column {field.name!r} of Arrow type {field.type}",
        asked=f"{field.name} {field.type}",
        remedy=(
            f'declare it as text, as in .schema("{field.name} string") with all columns · '
            if pt.is_time(field.type)
            else ""
        )
        + "cast the column in the source · omit the column",
        details={"column": field.name, "type": str(field.type)},
    )


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the Arrow type as which Spark reads ``kind``; ``kind`` itself if it is not replaced."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    from pyarrow import types  # noqa: PLC0415 - slow to import

    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if types.is_decimal(kind) and kind.precision <= _MAX_PRECISION:
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    # Compared by name, because the oldest supported pyarrow lacks some of these types.
    plain = {
        "large_string": pa.string(),
        "string_view": pa.string(),
        "large_binary": pa.binary(),
        "binary_view": pa.binary(),
        "uint8": pa.int16(),
        "uint16": pa.int32(),
        "uint32": pa.int64(),
        "uint64": pa.decimal128(20, 0),
        "halffloat": pa.float32(),
        "date64[ms]": pa.date32(),
        **dict.fromkeys((f"duration[{unit}]" for unit in ("s", "ms", "ns")), pa.duration("us")),
    }
    return plain.get(str(kind), kind)
