"""Comparison of schemas.

Both ends of an exchange hold the schema, which never travels with the data: see
docs/adr/0002-page-format.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.errors import SchemaMismatchError

if TYPE_CHECKING:
    import pyarrow as pa


def same_schema(known: pa.Schema | None, given: pa.Schema, whose: str) -> None:
    """Refuse a schema with other names or types; nullability, metadata and time zones may differ.

    Args:
        known: the schema given first, or None.
        given: the schema to compare with it.
        whose: start of the error text, such as ``"the gate reads"``.

    Raises:
        SchemaMismatchError: the schemas differ.
    """
    if known is None or _fields(known) == _fields(given):
        return
    raise SchemaMismatchError(
        f"{whose} another schema",
        asked=_text(given),
        have=_text(known),
        remedy="give both sides the same schema",
    )


def _fields(schema: pa.Schema) -> list[tuple[str, str]]:
    return [(field.name, _type_name(field.type)) for field in schema]


def _type_name(data_type: pa.DataType) -> str:
    """Return a name of the type without names and nullability inside lists, which pages lack."""
    import pyarrow as pa

    if pa.types.is_timestamp(data_type) and data_type.tz is not None:
        return f"timestamp[{data_type.unit}, tz]"
    if isinstance(data_type, pa.StructType):
        return f"struct<{[(field.name, _type_name(field.type)) for field in data_type]}>"
    if isinstance(data_type, pa.MapType):
        return f"map<{_type_name(data_type.key_type)}, {_type_name(data_type.item_type)}>"
    if isinstance(data_type, (pa.ListType, pa.LargeListType, pa.FixedSizeListType)):
        kind, size = type(data_type).__name__, getattr(data_type, "list_size", "")
        return f"{kind}<{_type_name(data_type.value_type)}>{size}"
    return str(data_type)


def _text(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
