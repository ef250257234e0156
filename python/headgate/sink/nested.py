"""Nulls below null structs: of a field that takes no null, where there is no struct that could have it.

Arrow allows any value there, also a null; writers of Parquet refuse it.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import SchemaMismatchError


def without_hidden_nulls(array: pa.Array, data_type: pa.DataType, name: str) -> pa.Array:
    """Return an array whose nulls below null structs are other values, where a type takes no null there.

    Args:
        array: of a type with the same names and nesting.
        data_type: says which fields take no null.
        name: of the column, for errors.

    Raises:
        SchemaMismatchError: there is a null in a struct whose field takes none.
    """
    t = pa.types
    if not _has_strict_fields(data_type) or not len(array):
        return array
    if array.offset:
        array = pa.concat_arrays([array])
    if t.is_struct(data_type) and t.is_struct(array.type):
        return _struct(array, data_type, name)
    if t.is_map(data_type) and t.is_map(array.type):
        items = without_hidden_nulls(array.items, data_type.item_type, f"{name}.value")
        made = pa.MapArray.from_arrays(array.offsets, array.keys, items)
        return _with_nulls_of(made, array)
    if _is_list(data_type) and _is_list(array.type):
        values = without_hidden_nulls(array.values, data_type.value_type, f"{name}.element")
        return _with_nulls_of(type(array).from_arrays(array.offsets, values), array)
    return array


def _struct(array: pa.StructArray, data_type: pa.StructType, name: str) -> pa.StructArray:
    is_there = array.is_valid()
    wanted = {field.name: field for field in data_type}
    children = []
    for at, own in enumerate(array.type):
        field, child = wanted.get(own.name), array.field(at)
        if field is not None:
            if not field.nullable and child.null_count:
                child = pc.if_else(is_there, child, _any_value(child.type))
            if not field.nullable and child.null_count:
                raise SchemaMismatchError(
                    f"{name}.{own.name} has a null, and takes none",
                    remedy="fill the nulls · a schema whose field may be null",
                )
            child = without_hidden_nulls(child, field.type, f"{name}.{own.name}")
        children.append(child)
    fields = [
        pa.field(own.name, child.type) for own, child in zip(array.type, children, strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())


def _with_nulls_of(made: pa.Array, array: pa.Array) -> pa.Array:
    """Return lists with the nulls of other ones."""
    if not array.null_count:
        return made
    validity = array.buffers()[0]
    return pa.Array.from_buffers(
        made.type,
        len(made),
        [validity, made.buffers()[1]],
        children=[
            pa.StructArray.from_arrays(
                [made.keys, made.items], fields=list(made.type.field(0).type)
            )
        ]
        if pa.types.is_map(made.type)
        else [made.values],
    )


def _any_value(data_type: pa.DataType) -> pa.Scalar:
    """Return a value that is not null: what a null struct has in its field."""
    (value,) = pa.array([None], pa.struct([pa.field("of", data_type)])).field(0)
    return value


def _is_list(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_list(data_type) or pa.types.is_large_list(data_type))


def _has_strict_fields(data_type: pa.DataType) -> bool:
    """Return True if a struct in a type has a field that takes no null."""
    if pa.types.is_struct(data_type):
        return any(not field.nullable or _has_strict_fields(field.type) for field in data_type)
    if pa.types.is_map(data_type):
        return _has_strict_fields(data_type.item_type)
    return _is_list(data_type) and _has_strict_fields(data_type.value_type)
