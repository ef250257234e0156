"""Columns of a file as columns of the table: by names, by physical names or by ids, also inside of structs.

A field of the table's schema has its *key* in its metadata. A file's field with the same key has its values. A key that
begins with ``#`` is an id, and is compared with the id that the file's field has; any other is the name in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from headgate._nested import with_inner
from headgate.errors import SchemaMismatchError

_KEY: Final = b"headgate.key"
_ID: Final = b"PARQUET:field_id"

Change = Callable[[pa.Array], pa.Array]


def keyed(field: pa.Field, key: str) -> pa.Field:
    """Return a field of the table with its key."""
    return field.with_metadata({_KEY: key})


def nullable_inside(kind: Any) -> pa.DataType:
    """Return a type whose inner fields may be null, since a file may lack them; the keys of maps stay as they are."""
    if pt.is_map(kind):
        key = kind.key_field.with_type(nullable_inside(kind.key_type))
        return pa.map_(key, _nullable(kind.item_field))
    return with_inner(kind, _nullable)


def plain_types(schema: pa.Schema) -> pa.Schema:
    """Return a schema of a table without keys."""
    return pa.schema([_plain(field) for field in schema])


def retyped(schema: pa.Schema, types: pa.Schema) -> pa.Schema:
    """Return a schema of a table, whose columns have the types of another one if that has them too.

    A struct may have less fields in the other one.

    Raises:
        SchemaMismatchError: the other one has more columns, or more fields in one.
    """
    if set(types.names) - set(schema.names):
        raise _other_columns(schema.names, types.names)
    return pa.schema(
        [
            _retyped(field, types.field(field.name)) if field.name in types.names else field
            for field in schema
        ]
    )


def has_ids(schema: pa.Schema) -> bool:
    """Return True if the columns of a table are found by ids in its files."""
    return any(_key(field).startswith("#") for field in schema)


def named_by_keys(schema: pa.Schema) -> pa.Schema:
    """Return a schema of a table with the names that its columns have in files, if its keys are names."""
    return pa.schema([_named_by_key(field) for field in schema])


def with_ids(schema: pa.Schema, names: Sequence[Mapping[str, Any]] | None) -> pa.Schema:
    """Return the schema of a file, with ids by its names if it has none.

    Args:
        schema: the file's schema.
        names: ``names``, ``field-id`` and ``fields`` of each column; None to leave the schema as it is.
    """
    if names is None or any(_ID in (field.metadata or {}) for field in schema):
        return schema
    return pa.schema([_with_id(field, names) for field in schema])


@dataclass(frozen=True, slots=True)
class Projection:
    """The columns of one file that are read for columns of the table.

    Attributes:
        stored: the name in the file of each column that the file has, by its name in the table.
        changes: functions that give columns with other fields inside their place; by name in the table.
    """

    stored: Mapping[str, str]
    changes: Mapping[str, Change]

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns that the file has, with their names in the table."""
        columns = {}
        for name, stored in self.stored.items():
            column = batch.column(batch.schema.get_field_index(stored))
            change = self.changes.get(name)
            columns[name] = column if change is None else change(column)
        names = list(columns)
        if not names:  # so that the batch has its rows
            return pa.RecordBatch.from_arrays([pa.nulls(batch.num_rows)], [""])
        return pa.RecordBatch.from_arrays(list(columns.values()), names)


def projection(file: pa.Schema, wanted: pa.Schema, path: str) -> Projection:
    """Return how columns of a table are read from a file.

    Args:
        file: the file's schema.
        wanted: columns of the table, with their keys.
        path: the file's path, for errors.

    Raises:
        SchemaMismatchError: the file has a column twice.
    """
    stored, changes = {}, {}
    for field in wanted:
        places = _places(file, _key(field), path)
        if places is None:
            continue
        stored[field.name] = file.field(places).name
        change = _inside(file.field(places).type, field.type, path)
        if change is not None:
            changes[field.name] = change
    return Projection(stored, changes)


def _key(field: pa.Field) -> str:
    key: bytes = (field.metadata or {}).get(_KEY, field.name.encode())
    return key.decode()


def _places(fields: Any, key: str, path: str) -> int | None:
    """Return the place of the field with a key; None if there is none."""
    places = [place for place, field in enumerate(fields) if _has_key(field, key)]
    if len(places) > 1:
        raise SchemaMismatchError(
            f"{path} has more than one column {key!r}",
            asked=key,
            have=", ".join(field.name for field in fields),
            remedy="write the file again",
            details={"path": path, "column": key},
        )
    return places[0] if places else None


def _has_key(field: pa.Field, key: str) -> bool:
    if key.startswith("#"):
        return (field.metadata or {}).get(_ID) == key[1:].encode()
    return bool(field.name == key)


def _inside(file: Any, wanted: Any, path: str) -> Change | None:
    """Return a function from values of a file to those of the table; None if their fields are the same."""
    if pt.is_struct(file) and pt.is_struct(wanted):
        return _of_struct(file, wanted, path)
    if _is_list(file) and _is_list(wanted):
        values = _inside(file.value_type, wanted.value_type, path)
        return None if values is None else _of_list(values, wanted)
    if pt.is_map(file) and pt.is_map(wanted):
        keys = _inside(file.key_type, wanted.key_type, path)
        items = _inside(file.item_type, wanted.item_type, path)
        return None if keys is None and items is None else _of_map(keys, items)
    return None


def _of_struct(file: Any, wanted: Any, path: str) -> Change | None:
    fields = list(wanted)
    places = [_places(list(file), _key(field), path) for field in fields]
    inner = [
        None if place is None else _inside(file.field(place).type, field.type, path)
        for place, field in zip(places, fields, strict=True)
    ]
    same_names = [field.name for field in file] == [field.name for field in fields]
    if same_names and places == list(range(len(fields))) and not any(inner):
        return None
    parts = list(zip(fields, places, inner, strict=True))

    def change(column: pa.Array) -> pa.Array:
        children = []
        for field, place, make in parts:
            child = pa.nulls(len(column), field.type) if place is None else column.field(place)
            children.append(child if make is None else make(child))
        kinds = [
            pa.field(field.name, child.type) for field, child in zip(fields, children, strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=kinds, mask=column.is_null())

    return change


def _of_list(values: Change, wanted: Any) -> Change:
    def change(column: pa.Array) -> pa.Array:
        whole = _from_first(column)
        return pa.ListArray.from_arrays(
            whole.offsets.cast(pa.int32()), values(whole.values), mask=whole.is_null()
        )

    del wanted
    return change


def _of_map(keys: Change | None, items: Change | None) -> Change:
    def change(column: pa.Array) -> pa.Array:
        whole = _from_first(column)
        inner = whole.keys if keys is None else keys(whole.keys)
        values = whole.items if items is None else items(whole.items)
        offsets = whole.offsets
        if whole.null_count:  # a null is an offset that is null
            starts = pa.concat_arrays([whole.is_valid(), pa.array([True])])
            offsets = pa.array(
                [
                    at if is_valid else None
                    for at, is_valid in zip(offsets.to_pylist(), starts.to_pylist(), strict=True)
                ],
                pa.int32(),
            )
        return pa.MapArray.from_arrays(offsets, inner, values)

    return change


def _retyped(field: pa.Field, other: pa.Field) -> pa.Field:
    parts = {part.name: part for part in _inner(field.type)}
    names = [part.name for part in _inner(other.type)]
    if not parts.keys() >= set(names):
        raise _other_columns(field.type, other.type)
    following = iter(names)
    kind = with_inner(other.type, lambda part: _retyped(parts[next(following)], part))
    return field.with_type(kind).with_nullable(other.nullable)


def _inner(kind: Any) -> list[pa.Field]:
    """Return the fields inside of a type; those of lists and maps by the names of the standard."""
    if pt.is_struct(kind):
        return list(kind)
    if pt.is_map(kind):
        return [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
    return [kind.value_field.with_name("element")] if _is_list(kind) else []


def _other_columns(have: object, wanted: object) -> SchemaMismatchError:
    return SchemaMismatchError(
        "the table has other columns than were asked for", asked=str(wanted), have=str(have)
    )


def _named_by_key(field: pa.Field) -> pa.Field:
    return pa.field(_key(field), with_inner(field.type, _named_by_key), field.nullable)


def _from_first(column: pa.Array) -> pa.Array:
    """Return a column whose buffers begin with its first value."""
    return column if column.offset == 0 else pa.concat_arrays([column, column.slice(0, 0)])


def _nullable(field: pa.Field) -> pa.Field:
    return field.with_type(nullable_inside(field.type)).with_nullable(True)


def _is_list(kind: Any) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind))


def _plain(field: pa.Field) -> pa.Field:
    return pa.field(field.name, with_inner(field.type, _plain), field.nullable)


def _with_id(field: pa.Field, names: Sequence[Mapping[str, Any]]) -> pa.Field:
    entry = next((entry for entry in names if field.name in entry.get("names", ())), None)
    if entry is None or "field-id" not in entry:
        return field
    inner = entry.get("fields", ())
    kind: Any = field.type
    if pt.is_struct(kind):
        kind = with_inner(kind, lambda child: _with_id(child, inner))
    elif pt.is_list(kind) or pt.is_map(kind):
        # The names of the inner fields of lists and maps are those of the standard.
        parts = iter(("element",) if pt.is_list(kind) else ("key", "value"))
        kind = with_inner(
            kind,
            lambda child: _with_id(child.with_name(next(parts)), inner).with_name(child.name),
        )
    return field.with_type(kind).with_metadata({_ID: str(entry["field-id"]).encode()})
