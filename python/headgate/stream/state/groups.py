"""The key group of each key, of any columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate import _native
from headgate.errors import UnsupportedTypeError
from headgate.key_groups import key_groups
from headgate.stream.state.types import check_type
from headgate.stream.state.zeros import normalized

#: Types that can be keys.
_HASHED = "bool · int8 to int64 · float32 · float64 · decimal128 · string · binary · date32 · timestamp · lists and structs of these"
_TEXT = (pa.types.is_string, pa.types.is_large_string)


def key_groups_of(keys: pa.RecordBatch, max_parallelism: int) -> npt.NDArray[np.int32]:
    """Return the key group of each row's key.

    A single column that :class:`~headgate.KeyGroupSelector` takes has the groups that this selector
    sends it to; null has the group of 0 or the empty string, since its hash code in Java is 0. All
    other keys have the group ``pmod(murmur3(columns, 42), max_parallelism)``, Spark's hash. -0.0 has the group of 0.0.

    Args:
        keys: the key columns.
        max_parallelism: number of groups, from 1 to 32768.

    Returns:
        One group per row, from 0 to ``max_parallelism - 1``.

    Raises:
        UnsupportedTypeError: a column of a type that cannot be hashed.
    """
    keys = normalized(keys)
    groups: Any
    if keys.num_columns == 1 and _has_hash_code(keys.schema.types[0]):
        column = keys.column(0)
        if column.null_count:
            column = column.fill_null(_zero(column.type))
        groups = key_groups(column, max_parallelism)
    else:
        # Names play no part in the hash, and may be equal.
        names = [str(at) for at in range(keys.num_columns)]
        batch = pa.RecordBatch.from_arrays(keys.columns, names=names)
        groups = _native.hash_partition_ids(batch, names, max_parallelism)
    return np.asarray(groups.to_numpy().astype(np.int32))


def check_keys(schema: pa.Schema, extra: pa.Schema | None = None) -> None:
    """Refuse key columns of types that cannot be keys.

    Args:
        schema: the key columns.
        extra: columns that tell keys apart, and play no part in the key group.

    Raises:
        UnsupportedTypeError: a column of a type of which Arrow cannot choose rows, or that cannot be hashed or compared.
    """
    for field in [*schema, *(extra or [])]:
        what = f"key column {field.name!r}"
        check_type(field.type, what)
        one = pa.RecordBatch.from_arrays([pa.nulls(1, field.type)], names=["key"])
        try:
            _native.KeyIndex(one.schema).find(normalized(one).columns)
            if field in schema:
                key_groups_of(one, 1)
        except (UnsupportedTypeError, pa.ArrowException) as error:
            raise UnsupportedTypeError(
                f"{what} is of type {field.type}, of which no keys can be made",
                remedy=f"map() that casts it: {_HASHED}",
            ) from error


def _has_hash_code(of: pa.DataType) -> bool:
    t = pa.types
    if t.is_boolean(of) or t.is_signed_integer(of) or any(is_text(of) for is_text in _TEXT):
        return True
    return bool(t.is_floating(of)) and of.bit_width >= 32


def _zero(of: pa.DataType) -> Any:
    if any(is_text(of) for is_text in _TEXT):
        return ""
    return False if pa.types.is_boolean(of) else 0
