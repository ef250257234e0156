"""Types, default values and limits of an Iceberg table's columns, as Arrow's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.types as pt

from headgate._nested import with_inner
from headgate.source.tables.columns import keyed, nullable_inside
from headgate.source.tables.pruning import has_bounds
from headgate.source.tables.table import ColumnBounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_PLAIN: Final = frozenset(
    {
        *("boolean", "int", "long", "float", "double", "date", "time", "string", "binary"),
        *("timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"),
    }
)
#: Types whose default values are read, for files that are older than the column.
_WITH_DEFAULTS: Final = frozenset({"boolean", "int", "long", "float", "double", "string"})


def table_schema(schema: Any) -> tuple[pa.Schema, dict[str, str]]:
    """Return the columns of a schema with their keys, and why columns are not read, by their names."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow  # noqa: PLC0415 - optional

    fields, unread = [], {}
    for each in schema.fields:
        problem = _problem(each.field_type, each.name)
        if each.initial_default is not None and str(each.field_type) not in _WITH_DEFAULTS:
            problem = problem or f"has a default value of the type {each.field_type}"
        kind = pa.null()
        if problem:
            unread[each.name] = problem
        else:
            kind = _keyed_inside(nullable_inside(schema_to_pyarrow(each.field_type)))
        fields.append(keyed(pa.field(each.name, kind, not each.required), f"#{each.field_id}"))
    return pa.schema(fields), unread


def default_values(schema: Any, arrow: pa.Schema) -> dict[str, str | None]:
    """Return the values of columns that are younger than a file, as texts."""
    return {
        each.name: as_text(each.initial_default, arrow.field(each.name).type)
        for each in schema.fields
        if each.initial_default is not None and not pt.is_null(arrow.field(each.name).type)
    }


def partition_values(schema: Any, spec: Any, file: Any, arrow: pa.Schema) -> dict[str, str | None]:
    """Return the columns by whose values a file's partition is chosen, as texts."""
    return {
        name: as_text(file.partition[place], arrow.field(name).type)
        for place, name in identities(schema, spec)
        if _has_text(arrow.field(name).type)
    }


def identities(schema: Any, spec: Any) -> list[tuple[int, str]]:
    """Return the columns by whose values a partition is chosen, each with its place in the partition."""
    from pyiceberg.transforms import IdentityTransform  # noqa: PLC0415 - optional

    names = {each.field_id: each.name for each in schema.fields}
    return [
        (place, names[part.source_id])
        for place, part in enumerate(spec.fields)
        if part.source_id in names and isinstance(part.transform, IdentityTransform)
    ]


def unread_partitions(schema: Any, specs: Iterable[Any], arrow: pa.Schema) -> dict[str, str]:
    """Return why columns of partitions are not read, by their names: a file need not have them."""
    return {
        name: "is binary, and partitions are chosen by it"
        for spec in specs
        for _, name in identities(schema, spec)
        if pt.is_binary(arrow.field(name).type) or pt.is_fixed_size_binary(arrow.field(name).type)
    }


def as_text(value: Any, kind: pa.DataType) -> str | None:
    """Return a value as PyIceberg has it, such as a date as days since 1970, as a text."""
    text: str | None = pa.array([value], kind).cast(pa.string())[0].as_py()
    return text


def bounds_of(
    schema: Any, file: Any, arrow: pa.Schema, columns: Sequence[str]
) -> dict[str, ColumnBounds]:
    """Return the limits of columns in a file, as far as its manifest has them."""
    bounds = {}
    for each in schema.fields:
        kind = arrow.field(each.name).type
        if each.name in columns and has_bounds(kind):
            low = _bound(each, kind, file.lower_bounds)
            high = _bound(each, kind, file.upper_bounds)
            nulls = (file.null_value_counts or {}).get(each.field_id)
            bounds[each.name] = ColumnBounds(low, high, nulls)
    return bounds


def _has_text(kind: Any) -> bool:
    is_binary = pt.is_binary(kind) or pt.is_fixed_size_binary(kind)
    return not (is_binary or pt.is_null(kind))


def _bound(field: Any, kind: pa.DataType, stored: Mapping[int, bytes] | None) -> Any:
    """Return a limit; None if there is none, or one of an older type of the column."""
    from pyiceberg.conversions import from_bytes  # noqa: PLC0415 - optional

    data = (stored or {}).get(field.field_id)
    is_older = not (pt.is_string(kind) or pt.is_decimal(kind)) and data is not None
    if data is None or (is_older and 8 * len(data) != kind.bit_width):
        return None
    return pa.array([from_bytes(field.field_type, data)], kind)[0]


def _problem(kind: Any, name: str) -> str:
    """Return why a type cannot be read; "" if it can."""
    inner = [getattr(kind, part, None) for part in ("element_field", "key_field", "value_field")]
    inner = [each for each in inner if each is not None] + list(getattr(kind, "fields", ()))
    if not inner:
        text = str(kind)
        is_plain = text in _PLAIN or text.startswith(("decimal(", "fixed["))
        return "" if is_plain else f"has the type {text}"
    for each in inner:
        if each.initial_default is not None:
            return f"has the field {each.name} with a default value inside of {name}"
        problem = _problem(each.field_type, each.name)
        if problem:
            return problem
    return ""


def _keyed_inside(kind: Any) -> pa.DataType:
    """Return a type without its large variants, whose fields have keys."""
    if pt.is_large_string(kind):
        return pa.string()
    if pt.is_large_binary(kind):
        return pa.binary()
    if pt.is_large_list(kind):
        return pa.list_(_keyed_field(kind.value_field))
    return with_inner(kind, _keyed_field)


def _keyed_field(field: pa.Field) -> pa.Field:
    number = field.metadata[b"PARQUET:field_id"].decode()
    return keyed(field.with_type(_keyed_inside(field.type)), f"#{number}")
