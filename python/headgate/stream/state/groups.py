"""The key group of each key, of any columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate import _native
from headgate.errors import UnsupportedTypeError
from headgate.key_groups import check_max_parallelism
from headgate.stream.state.types import check_type
from headgate.stream.state.zeros import normalized

#: Types that can be keys.
_HASHED = "bool · int8 to int64 · float32 · float64 · decimal128 · string · binary · date32 · timestamp · lists and structs of these"


def key_groups_of(keys: pa.RecordBatch, max_parallelism: int) -> npt.NDArray[np.int32]:
    """Return the key group of each row's key.

    :class:`~headgate.selectors.KeyedStateSelector` sends rows to the tasks that own these groups. A single column that
    :class:`~headgate.KeyGroupSelector` takes has the groups of that selector; null has the group of False, 0 or the
    empty string. All other keys have the group ``pmod(murmur3(columns, 42), max_parallelism)``, Spark's hash. -0.0 has the group of 0.0.

    Args:
        keys: the key columns.
        max_parallelism: number of groups, from 1 to 32768.

    Returns:
        One group per row, from 0 to ``max_parallelism - 1``.

    Raises:
        UnsupportedTypeError: a column of a type that cannot be hashed.
        SelectorError: a number of groups outside its limits.
    """
    groups = _native.key_groups_of_state(keys, check_max_parallelism(max_parallelism))
    return np.asarray(groups.to_numpy()).view(np.int32)


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
        key = pa.RecordBatch.from_arrays([pa.nulls(1, field.type)], names=["key"])
        try:
            _native.KeyIndex(key.schema).find(normalized(key).columns)
            if field in schema:
                key_groups_of(key, 1)
        except (UnsupportedTypeError, pa.ArrowException) as error:
            raise UnsupportedTypeError(
                f"{what} is of type {field.type}, of which no keys can be made",
                remedy=f"map() that casts it: {_HASHED}",
            ) from error
