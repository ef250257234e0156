"""Flink's key groups, the units in which keyed state is assigned to operators.

The group of a key depends only on the key and ``max_parallelism``. Each parallel operator owns a
range of groups. When the parallelism changes, whole groups move, and no key changes its group.
Source: Flink's KeyGroupRangeAssignment.

>>> import pyarrow as pa
>>> key_groups(pa.array(["flink", "hello"]), 128).to_pylist()
[98, 35]
>>> operator_index(98, parallelism=3, max_parallelism=128)
2
>>> key_group_range(2, parallelism=3, max_parallelism=128)
range(86, 128)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate import _native
from headgate.errors import SelectorError

if TYPE_CHECKING:
    import pyarrow as pa

#: Limit of key groups, and so of operators.
MAX_KEY_GROUPS: Final = 1 << 15
#: The least that :func:`default_max_parallelism` returns.
_FEWEST_BY_DEFAULT: Final = 128


def key_groups(keys: Any, max_parallelism: int) -> pa.UInt32Array:
    """Return the key group of each key: ``murmur(hashCode(key)) % max_parallelism``.

    Args:
        keys: an Arrow array, or an object that exports one. The hash codes are those of Java's
            Boolean, Byte, Short, Integer, Long, Float, Double and String, so a negative number has
            another group as int32 than as int64. Unlike in Java, -0.0 has the group of 0.0.
        max_parallelism: number of groups, from 1 to 32768.

    Returns:
        One number from 0 to ``max_parallelism - 1`` per key.

    Raises:
        SelectorError: a null key, or a number of groups outside its limits.
        UnsupportedTypeError: keys of another type.
    """
    return _native.key_groups(keys, check_max_parallelism(max_parallelism))


def operator_index(key_group: int, parallelism: int, max_parallelism: int) -> int:
    """Return the number of the operator that owns a key group.

    Raises:
        SelectorError: not ``0 <= key_group < max_parallelism``, or a parallelism outside its limits.
    """
    check_max_parallelism(max_parallelism, parallelism)
    if not 0 <= key_group < max_parallelism:
        raise SelectorError(
            f"key_group={key_group} is not one of max_parallelism={max_parallelism}",
            remedy=f"key_group= from 0 to {max_parallelism - 1}",
        )
    return key_group * parallelism // max_parallelism


def key_group_range(index: int, parallelism: int, max_parallelism: int) -> range:
    """Return the key groups that an operator owns.

    Args:
        index: the operator's number, from 0.
        parallelism: number of operators.
        max_parallelism: number of key groups, from ``parallelism`` to 32768.

    Raises:
        SelectorError: a number outside its limits.
    """
    check_max_parallelism(max_parallelism, parallelism)
    if not 0 <= index < parallelism:
        raise SelectorError(
            f"index={index} is not one of parallelism={parallelism} operators",
            remedy=f"index= from 0 to {parallelism - 1}",
        )
    start = (index * max_parallelism + parallelism - 1) // parallelism
    return range(start, ((index + 1) * max_parallelism - 1) // parallelism + 1)


def default_max_parallelism(parallelism: int) -> int:
    """Return the default number of key groups.

    It is 1.5 times the parallelism, rounded up to a power of two, from 128 to 32768.

    >>> [default_max_parallelism(p) for p in (1, 86, 171, 32768)]
    [128, 256, 256, 32768]

    Raises:
        SelectorError: not ``1 <= parallelism <= 32768``.
    """
    check_max_parallelism(MAX_KEY_GROUPS, parallelism)
    wanted = 1 << (parallelism + parallelism // 2 - 1).bit_length()
    return min(max(wanted, _FEWEST_BY_DEFAULT), MAX_KEY_GROUPS)


def check_max_parallelism(max_parallelism: int, parallelism: int = 1) -> int:
    """Return the number of key groups if it is within its limits.

    Raises:
        SelectorError: not ``1 <= parallelism <= max_parallelism <= 32768``.
    """
    if parallelism < 1:
        raise SelectorError(f"parallelism={parallelism} is less than 1", remedy="parallelism=1")
    if not parallelism <= max_parallelism <= MAX_KEY_GROUPS:
        raise SelectorError(
            f"max_parallelism={max_parallelism} is outside its limits",
            have=f"{parallelism} to {MAX_KEY_GROUPS}, with {parallelism} operators or subpartitions",
            remedy=f"max_parallelism= from {parallelism} to {MAX_KEY_GROUPS}",
        )
    return max_parallelism
