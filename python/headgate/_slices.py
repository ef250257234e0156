"""Structs that are slices, which the native module must not see.

arrow-rs 59 applies the offset of a sliced struct, or of a sliced list of fixed size, twice to the structs
right inside it, and so reads other rows or panics (apache/arrow-rs#7750). Mended in arrow-rs 60, which
pyo3-arrow does not build with yet: then this module goes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def columns_at_risk(schema: pa.Schema) -> list[int]:
    """Return the columns of which a slice would be misread."""
    return [index for index, field in enumerate(schema) if _is_at_risk(field.type)]


def unsliced(batch: pa.RecordBatch, columns: list[int]) -> pa.RecordBatch:
    """Return the batch with copies of the given columns, in which nothing is a slice.

    They are copied whether they are slices or not: that shows in too many places.
    """
    import pyarrow as pa

    if batch.num_columns <= max(columns):
        return batch  # of another schema, which the writer says
    whole = list(batch.columns)
    part = pa.RecordBatch.from_arrays(
        [whole[i] for i in columns], schema=pa.schema([batch.schema.field(i) for i in columns])
    )
    copy = pa.BufferOutputStream()
    with pa.ipc.new_stream(copy, part.schema) as stream:
        stream.write_batch(part)
    copied = pa.ipc.open_stream(copy.getvalue()).read_next_batch()
    for index, column in zip(columns, copied.columns, strict=True):
        whole[index] = column
    return pa.RecordBatch.from_arrays(whole, schema=batch.schema)


def _is_at_risk(data_type: pa.DataType) -> bool:
    inside = _types_inside(data_type)
    if any(map(_is_at_risk, inside)):
        return True
    return _applies_offset_twice(data_type) and any(map(_is_struct, inside))


def _types_inside(data_type: pa.DataType) -> list[pa.DataType]:
    import pyarrow as pa

    data_type = _storage(data_type)
    if isinstance(data_type, pa.StructType):
        return [field.type for field in data_type]
    if isinstance(data_type, pa.MapType):
        # What is inside the entries, which are a struct.
        return [pa.struct([("key", data_type.key_type), ("value", data_type.item_type)])]
    inside = getattr(data_type, "value_type", None)
    return [] if inside is None else [inside]


def _applies_offset_twice(data_type: pa.DataType) -> bool:
    import pyarrow as pa

    return isinstance(_storage(data_type), (pa.StructType, pa.FixedSizeListType))


def _is_struct(data_type: pa.DataType) -> bool:
    import pyarrow as pa

    return isinstance(_storage(data_type), pa.StructType)


def _storage(data_type: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    return data_type.storage_type if isinstance(data_type, pa.BaseExtensionType) else data_type
