"""Casts batches to the declared schema, and says in errors how Spark declares another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.errors import UnsupportedTypeError
from headgate.schema_cast import SchemaCast

if TYPE_CHECKING:
    import pyarrow as pa


class DdlCast(SchemaCast):
    """A cast whose errors have a DDL string."""

    def _declaration(self, schema: pa.Schema) -> str:
        """Return the schema as a DDL string in quotes; empty if Spark lacks one of its types."""
        from headgate.spark.source_schema import spark_schema  # noqa: PLC0415 - only in an error

        try:
            fields = spark_schema(schema).fields
        except UnsupportedTypeError:
            return ""
        names = [name if name.isidentifier() else f"`{name}`" for name in schema.names]
        kinds = [field.dataType.simpleString() for field in fields]
        pairs = zip(names, kinds, strict=True)
        return f'"{", ".join(f"{name} {kind}" for name, kind in pairs)}"'
