"""Conversion of schemas and batches between sources and Spark's Python Data Source API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.errors import OptionError
from headgate.spark.schema import arrow_schema_in_utc

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from headgate.source import Source


def spark_schema(source: Source[Any, Any, Any]) -> StructType:
    """Return a source's schema as a Spark schema, the same as in an exchange of the source.

    Raises:
        OptionError: the source has no schema.
        UnsupportedTypeError: Spark has no type for a column.
    """
    from headgate.spark import source_schema  # noqa: PLC0415 - pyspark only where Spark is

    schema = source.schema
    if schema is None:
        raise OptionError(
            f"{source.name} has no schema, so its records cannot become rows",
            remedy="a source whose schema property returns the Arrow schema of its batches",
        )
    return source_schema.spark_schema(schema)


def converter(schema: StructType) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Return a function that casts batches to exactly the Arrow schema that Spark expects.

    It finds columns by name and leaves out those that Spark did not ask for.
    """
    from headgate.schema_cast import ExactCast  # noqa: PLC0415 - slow to import

    target = arrow_schema_in_utc(schema)
    cast, names = ExactCast(target, "the source"), set(target.names)

    def convert(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.equals(target):
            return batch
        return cast(batch.select([name for name in batch.schema.names if name in names]))

    return convert
