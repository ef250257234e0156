"""A source's Arrow schema as Spark's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.errors import UnsupportedTypeError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

#: Of Spark's decimals.
_MAX_PRECISION: Final = 38


def spark_schema(schema: pa.Schema) -> StructType:
    """Return Spark's schema of a source, types as Spark itself reads them from Parquet.

    What Spark has no type for becomes the next larger one: unsigned whole numbers, half floats, time
    stamps of another unit; large, view and dictionary-encoded columns become plain ones.

    Raises:
        UnsupportedTypeError: a column that Spark has no type for; names both.
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
            (converted,) = from_arrow_schema(pa.schema([plain])).fields
        except PySparkException as error:
            raise _unsupported(field) from error
        fields.append(converted)
    return StructType(fields)


def _unsupported(field: pa.Field) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"Spark has no type for column {field.name!r} of Arrow type {field.type}",
        asked=f"{field.name} {field.type}",
        remedy="cast the column in the source · leave it out",
        details={"column": field.name, "type": str(field.type)},
    )


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that stands for ``kind`` in Spark; ``kind`` itself where it needs none."""
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
    # By name: the oldest pyarrow that we support does not have all of these types.
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
