"""Nulls below null structs: of a field that takes no null, where there is no struct that could have it.

Arrow allows any value there, also a null; writers of Parquet refuse it.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def without_hidden_nulls(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch whose nulls below null structs are other values, where a schema takes no null there."""
    for place, name in enumerate(batch.schema.names):
        column, fields = batch.column(place), schema.get_all_field_indices(name)
        filled = _filled(column, schema.field(fields[0]).type) if len(fields) == 1 else column
        if filled is not column:
            batch = batch.set_column(place, name, filled)
    return batch


def _filled(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return an array of a type with the same names and nesting."""
    t = pa.types
    if not _has_strict_fields(data_type) or not len(array):
        return array
    if array.offset:
        array = pa.concat_arrays([array])
    if t.is_struct(data_type) and t.is_struct(array.type):
        return _struct(array, data_type)
    if t.is_map(data_type) and t.is_map(array.type):
        items = _filled(array.items, data_type.item_type)
        return _with_nulls_of(pa.MapArray.from_arrays(array.offsets, array.keys, items), array)
    if _is_list(data_type) and _is_list(array.type):
        values = _filled(array.values, data_type.value_type)
        return _with_nulls_of(type(array).from_arrays(array.offsets, values), array)
    return array


def _struct(array: pa.StructArray, data_type: pa.StructType) -> pa.StructArray:
    strict = {field.name: field for field in data_type}
    children = []
    for place, child_field in enumerate(array.type):
        field, child = strict.get(child_field.name), array.field(place)
        if field is not None:
            if not field.nullable and child.null_count:
                child = pc.if_else(array.is_valid(), child, _any_value(child.type))
            child = _filled(child, field.type)
        children.append(child)
    names = [field.name for field in array.type]
    return pa.StructArray.from_arrays(children, names=names, mask=array.is_null())


def _with_nulls_of(lists: pa.Array, array: pa.Array) -> pa.Array:
    """Return lists with the nulls of other ones."""
    if not array.null_count:
        return lists
    validity = array.buffers()[0]
    return pa.Array.from_buffers(
        lists.type,
        len(lists),
        [validity, lists.buffers()[1]],
        children=[
            pa.StructArray.from_arrays(
                [lists.keys, lists.items], fields=list(lists.type.field(0).type)
            )
        ]
        if pa.types.is_map(lists.type)
        else [lists.values],
    )


def _any_value(data_type: pa.DataType) -> pa.Scalar:
    """Return a value that is not null: what a null struct has in its field."""
    value: pa.Scalar = pa.array([None], pa.struct([pa.field("of", data_type)])).field(0)[0]
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
