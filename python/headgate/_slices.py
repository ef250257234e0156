"""Copies of sliced structs, which arrow-rs 59 misreads.

arrow-rs 59 applies the offset of a sliced struct, or of a sliced list of fixed size, twice to the
structs directly inside it. It then reads other rows, or panics (apache/arrow-rs#7750). arrow-rs 60
has the fix. Delete this module once pyo3-arrow builds with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def columns_at_risk(schema: pa.Schema) -> list[int]:
    """Return the columns whose slices arrow-rs would misread."""
    return [index for index, field in enumerate(schema) if _is_at_risk(field.type)]


def unsliced(batch: pa.RecordBatch, columns: list[int]) -> pa.RecordBatch:
    """Return the batch with unsliced copies of the given columns.

    Copies them even if they are not slices: an offset can be at any depth.
    """
    import pyarrow as pa

    if batch.num_columns <= max(columns):
        return batch  # another schema, which the writer refuses
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
    import pyarrow as pa

    inside = [_storage(kind) for kind in _types_inside(data_type)]
    applies_offset_twice = isinstance(_storage(data_type), (pa.StructType, pa.FixedSizeListType))
    has_struct = any(isinstance(kind, pa.StructType) for kind in inside)
    return (applies_offset_twice and has_struct) or any(map(_is_at_risk, inside))


def _types_inside(data_type: pa.DataType) -> list[pa.DataType]:
    import pyarrow as pa

    data_type = _storage(data_type)
    if isinstance(data_type, pa.StructType):
        return [field.type for field in data_type]
    if isinstance(data_type, pa.MapType):
        # The entries of a map are structs.
        return [pa.struct([("key", data_type.key_type), ("value", data_type.item_type)])]
    inside = getattr(data_type, "value_type", None)
    return [] if inside is None else [inside]


def _storage(data_type: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    return data_type.storage_type if isinstance(data_type, pa.BaseExtensionType) else data_type
