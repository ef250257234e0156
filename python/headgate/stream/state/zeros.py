"""Keys that SQL and Spark take for equal, as one: -0.0 becomes 0.0, and each NaN the same NaN, at any depth."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: Bits of a float -> its unsigned type, the sign bit, and the bits of infinity, above which are NaNs.
_BITS: Final[dict[int, tuple[Any, int, int]]] = {
    16: (np.uint16, 1 << 15, 0x7C00),
    32: (np.uint32, 1 << 31, 0x7F80_0000),
    64: (np.uint64, 1 << 63, 0x7FF0_0000_0000_0000),
}


def normalized(columns: pa.RecordBatch) -> pa.RecordBatch:
    """Return key columns with one form of each key; nulls stay."""
    if not any(map(has_floats, columns.schema.types)):
        return columns
    return pa.RecordBatch.from_arrays(list(map(_of, columns.columns)), schema=columns.schema)


@cache
def has_floats(of: pa.DataType) -> bool:
    """Return True if a type has floats, at any depth."""
    if pa.types.is_floating(of):
        return True
    if isinstance(of, pa.BaseExtensionType):
        return has_floats(of.storage_type)
    if pa.types.is_dictionary(of):
        return has_floats(of.value_type)
    return any(has_floats(of.field(at).type) for at in range(of.num_fields))


def _of(array: pa.Array) -> pa.Array:
    of = array.type
    if not has_floats(of):
        return array
    if pa.types.is_floating(of):
        return _floats(array)
    if pa.types.is_struct(of):
        # flatten() takes the struct's offset and nulls into account.
        return pa.StructArray.from_arrays(
            list(map(_of, array.flatten())), fields=list(of), mask=array.is_null()
        )
    if pa.types.is_dictionary(of):
        return encoded(_of(pc.cast(array, of.value_type)), of)
    if isinstance(of, pa.BaseExtensionType):
        return of.wrap_array(_of(array.storage))
    return _lists(array)


def _lists(array: pa.Array) -> pa.Array:
    of = array.type
    # flatten() leaves out elements that belong to no list.
    lengths = np.asarray(pc.list_value_length(array).fill_null(0).to_numpy())
    values = _of(array.flatten())
    if pa.types.is_fixed_size_list(of):
        mask = array.is_null()
        if array.null_count:
            at = np.full(len(array), -1)
            at[~np.asarray(mask.to_numpy(zero_copy_only=False))] = np.arange(
                len(array) - array.null_count
            )
            places = (at[:, None] * of.list_size + np.arange(of.list_size)).ravel()
            values = values.take(pa.array(places, mask=np.repeat(at < 0, of.list_size)))
        return pa.FixedSizeListArray.from_arrays(values, type=of, mask=mask)
    is_large = pa.types.is_large_list(of)
    kind = pa.LargeListArray if is_large else pa.ListArray
    offsets = pa.array(np.r_[0, np.cumsum(lengths)], pa.int64() if is_large else pa.int32())
    return kind.from_arrays(offsets, values, type=of, mask=array.is_null())


def encoded(values: pa.Array, of: pa.DictionaryType) -> pa.Array:
    """Return values as a dictionary type: Arrow casts only texts to one."""
    encoding = values.dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        encoding.indices.cast(of.index_type), encoding.dictionary, ordered=of.ordered
    )


def _floats(array: pa.Array) -> pa.Array:
    unsigned, sign, infinity = _BITS[array.type.bit_width]
    validity, data = array.buffers()
    # A slice of many rows is cut off at a byte of its validity.
    start, end = array.offset // 8 * 8, array.offset + len(array)
    bits = np.frombuffer(data or b"", unsigned)[start:end]
    bits = np.where(bits == sign, unsigned(0), bits)
    bits[(bits & unsigned(sign - 1)) > infinity] = infinity | (infinity & -infinity) >> 1
    buffers = [None if validity is None else validity.slice(start // 8), pa.py_buffer(bits)]
    return pa.Array.from_buffers(array.type, len(array), buffers, offset=array.offset - start)
