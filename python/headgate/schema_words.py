"""Schemas and remedies in words, for the errors of :class:`headgate.schema_cast.SchemaCast`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

#: Largest number of missing columns, and of unexpected ones, that an error names.
_NAMED: Final = 8


def difference(
    missing: Iterable[str], extra: Iterable[str], given: pa.Schema, want: pa.Schema
) -> str:
    """Return how the columns of a batch differ from the declared ones."""
    parts = []
    for word, found in (("no column", missing), ("an unexpected column", extra)):
        names = list(found)
        if names:
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            parts.append(f"{word} {', '.join(map(repr, names[:_NAMED]))}{more}")
    return " and ".join(parts) or f"{len(given)} columns where {len(want)} are declared"


def words(schema: pa.Schema) -> str:
    """Return the columns and types of a schema."""
    not_null = (" not null", "")
    return ", ".join(f"{f.name}: {f.type}{not_null[f.nullable]}" for f in schema) or "no columns"


def how_to_cast(name: str, have: pa.DataType, want: pa.DataType) -> str:
    """Return what to write in a function that returns a column of another type; empty if nothing helps."""
    from pyarrow import types  # noqa: PLC0415 - slow to import

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
