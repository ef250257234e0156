"""Structs that are slices, which the native module must not see.

arrow-rs 59 applies the offset of a sliced struct twice to the structs inside it, and so reads other rows
or panics (apache/arrow-rs#7750). Mended in arrow-rs 60, which pyo3-arrow does not build with yet: then this
module goes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def has_structs(schema: pa.Schema) -> bool:
    """Return whether a batch of this schema has structs somewhere; maps are lists of them."""
    return any(_is_around_struct(field.type) for field in schema)


def unsliced(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with copies of those columns in which structs are slices; mostly as it is."""
    import pyarrow as pa

    columns = [column if not _is_sliced(column) else _copy(column) for column in batch.columns]
    if all(old is new for old, new in zip(batch.columns, columns, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _is_around_struct(data_type: pa.DataType) -> bool:
    import pyarrow as pa

    if isinstance(data_type, (pa.StructType, pa.MapType)):
        return True
    inside = getattr(data_type, "value_type", None)
    return inside is not None and _is_around_struct(inside)


def _is_sliced(array: pa.Array) -> bool:
    """Return whether a struct with others right inside it is a slice."""
    import pyarrow as pa

    if not _is_around_struct(array.type):
        return False
    if isinstance(array, pa.StructArray):
        fields = [array.field(i) for i in range(array.type.num_fields)]
        if array.offset and any(isinstance(field, pa.StructArray) for field in fields):
            return True
        return any(map(_is_sliced, fields))
    if isinstance(array, pa.MapArray):
        entries_are_sliced = array.keys.offset and isinstance(array.items, pa.StructArray)
        return bool(entries_are_sliced) or _is_sliced(array.items)
    return _is_sliced(array.dictionary if isinstance(array, pa.DictionaryArray) else array.values)


def _copy(array: pa.Array) -> pa.Array:
    import pyarrow as pa

    # Of one array alone pyarrow returns the same memory.
    return pa.concat_arrays([array, array.slice(0, 0)])
