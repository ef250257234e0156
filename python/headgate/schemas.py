"""Comparison of schemas, and the texts of errors about them.

Both ends of an exchange hold the schema, which never travels with the data: see
docs/adr/0002-page-format.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

#: Largest number of missing columns, and of unexpected ones, that an error names.
_NAMED: Final = 8


def same_schema(expected: pa.Schema | None, actual: pa.Schema, whose: str) -> None:
    """Refuse a schema with other names or types; nullability, metadata and time zones may differ.

    Args:
        expected: the schema given first, or None.
        actual: the schema to compare with it.
        whose: start of the error text, such as ``"the gate reads"``.

    Raises:
        SchemaMismatchError: the schemas differ.
    """
    if expected is None or _fields(expected) == _fields(actual):
        return
    raise SchemaMismatchError(
        f"{whose} another schema",
        asked=columns_text(actual),
        have=columns_text(expected),
        remedy="give both sides the same schema",
    )


def difference(
    missing: Iterable[str], extra: Iterable[str], actual: pa.Schema, want: pa.Schema
) -> str:
    """Return how the columns of a batch differ from the declared ones."""
    parts = []
    for word, names in (("no column", [*missing]), ("an unexpected column", [*extra])):
        if names:
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            parts.append(f"{word} {', '.join(map(repr, names[:_NAMED]))}{more}")
    return " and ".join(parts) or f"{len(actual)} columns where {len(want)} are declared"


def columns_text(schema: pa.Schema) -> str:
    """Return the columns and types of a schema."""
    not_null = (" not null", "")
    return ", ".join(f"{f.name}: {f.type}{not_null[f.nullable]}" for f in schema) or "no columns"


def how_to_cast(name: str, have: pa.DataType, want: pa.DataType) -> str:
    """Return what to write in a function that returns a column of another type; empty if nothing helps."""
    from pyarrow import types

    if types.is_floating(have) and types.is_float32(want):
        return (
            f'in the function: pa.array(values, pa.float32()) · df[{name!r}].astype("float32") · '
            "numpy.float32(value) in a dict"
        )
    if types.is_floating(have) and types.is_decimal(want):
        return f"in the function: decimal.Decimal(str(round(value, {want.scale})))"
    if types.is_timestamp(have) and types.is_timestamp(want):
        return _of_zone(name, has_zone=want.tz is not None)
    if types.is_decimal(want):
        return f"in the function: column.cast(pa.decimal128({want.precision}, {want.scale}))"
    plain = (types.is_integer, types.is_floating, types.is_string, types.is_boolean, types.is_date)
    maker = {"bool": "bool_", "float": "float32", "double": "float64"}.get(str(want), str(want))
    is_plain = any(is_kind(want) for is_kind in plain)
    return f"in the function: column.cast(pa.{maker.partition('[')[0]}())" if is_plain else ""


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


def _of_zone(name: str, *, has_zone: bool) -> str:
    if not has_zone:
        return (
            f"in the function: pc.local_timestamp(column) · df[{name!r}].dt.tz_localize(None) · "
            "value.replace(tzinfo=None)"
        )
    return (
        f"in the function, with the zone that the times are in: pc.assume_timezone(column, zone) · "
        f"df[{name!r}].dt.tz_localize(zone) · value.replace(tzinfo=ZoneInfo(zone))"
    )
