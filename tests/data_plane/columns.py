"""A column of every type that can travel, with edge values and nulls."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa

INF, NAN = float("inf"), float("nan")
TEXTS = ["", "a", None, "grüße", "日本語", "🚀" * 40, "\0", "x" * 300, None]
BLOBS = [b"", b"a", None, b"\xff\xfe", bytes(40), b"\0", bytes(range(256)), b"x" * 300, None]


def ints(width):
    return [0, 1, None, -1, 2 ** (width - 1) - 1, -(2 ** (width - 1)), 7, None, 3]


def unsigned(width):
    return [0, 1, None, 2, 2**width - 1, 2 ** (width - 1), 7, None, 3]


def decimals(precision):
    top = Decimal("9" * precision)
    # The operator - would round to the 28 digits of the context.
    least = top.copy_negate()
    return [Decimal(0), Decimal(1), None, Decimal(-1), top, least, Decimal(7), None, Decimal(3)]


def floats():
    # A NaN must keep its payload.
    odd = np.array([0x7FF8000000000123], np.uint64).view(np.float64)[0]
    return [0.0, -0.0, None, NAN, INF, -INF, 5e-324, None, odd]


def types():
    """Return every type, in the order of Arrow's format."""
    yield from (pa.null(), pa.bool_())
    yield from (pa.int8(), pa.int16(), pa.int32(), pa.int64())
    yield from (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
    yield from (pa.float16(), pa.float32(), pa.float64())
    yield from (pa.date32(), pa.date64())
    yield from (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))
    for unit in ("s", "ms", "us", "ns"):
        yield pa.timestamp(unit)
        yield pa.timestamp(unit, "UTC")
        yield pa.duration(unit)
    yield from (pa.timestamp("us", "Europe/Berlin"), pa.timestamp("ns", "+05:30"))
    yield pa.month_day_nano_interval()
    yield from (pa.decimal128(p, p // 2) for p in range(1, 39))
    yield from (pa.decimal32(9, 2), pa.decimal64(18, 0), pa.decimal256(76, 10))
    yield from (pa.decimal128(10, -3), pa.binary(1), pa.binary(7), pa.binary(16))
    yield from (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def nested_types():
    """Return nested lists, structs and maps, and dictionaries."""
    point = pa.struct(
        [pa.field("x", pa.float64(), nullable=False), ("tags", pa.list_(pa.string()))]
    )
    yield from (pa.list_(pa.int32()), pa.large_list(pa.string()), pa.list_(pa.bool_(), 2))
    yield from (pa.list_(pa.field("element", pa.int64(), nullable=False)), pa.list_(point))
    yield from (point, pa.struct([("at", point), ("n", pa.null())]), pa.struct([]))
    yield from (pa.map_(pa.string(), pa.int32()), pa.map_(pa.int64(), pa.list_(pa.binary())))
    yield pa.dictionary(pa.int32(), pa.string())
    yield pa.struct([("kind", pa.dictionary(pa.int32(), pa.string()))])


NESTED = list(nested_types())
TYPES = [*types(), *NESTED]


def value(data_type, seed):
    """Return a value of a nested type, or of a type inside it."""
    t = pa.types
    if t.is_struct(data_type):
        return {field.name: value(field.type, seed + i) for i, field in enumerate(data_type)}
    if t.is_map(data_type):
        return [
            (key_of(data_type.key_type, i), value(data_type.item_type, i)) for i in range(seed % 4)
        ]
    if t.is_fixed_size_list(data_type):
        return [value(data_type.value_type, i) for i in range(data_type.list_size)]
    if t.is_nested(data_type):
        has_nulls = data_type.value_field.nullable
        items = [value(data_type.value_type, seed + i) for i in range(seed * 7 % 5)]
        return [None if has_nulls and i % 3 == 1 else item for i, item in enumerate(items)]
    if t.is_null(data_type):
        return None
    return key_of(data_type, seed)


def key_of(data_type, seed):
    text = "xy🚀" * (seed % 5)
    kinds = {"int": seed * 1001 - 2000, "double": seed / 3, "bool": seed % 2 == 0}
    kinds |= {"string": text, "dictionary": text[:3], "binary": text.encode()}
    return next(found for name, found in kinds.items() if str(data_type).startswith(name))


def array(data_type):  # noqa: C901, PLR0911 - one way for each family of types
    """Return nine values of a type, some of them null."""
    t = pa.types
    if data_type in NESTED:
        values = [None if seed in {2, 7} else value(data_type, seed) for seed in range(9)]
        return pa.array(values, data_type)
    if t.is_null(data_type):
        return pa.nulls(9)
    if t.is_boolean(data_type):
        return pa.array([True, False, None, True, True, False, False, None, True])
    if t.is_signed_integer(data_type):
        return pa.array(ints(data_type.bit_width), data_type)
    if t.is_unsigned_integer(data_type):
        return pa.array(unsigned(data_type.bit_width), data_type)
    if t.is_float16(data_type):
        values = [np.float16(v) if v is not None else None for v in floats()]
        return pa.array(values, data_type)
    if t.is_floating(data_type):
        return pa.array(floats(), pa.float64()).cast(data_type, safe=False)
    if t.is_decimal(data_type):
        unscaled = pa.array(decimals(data_type.precision), _unscaled(data_type))
        return unscaled.view(data_type)
    if t.is_fixed_size_binary(data_type):
        width = data_type.byte_width
        values = [None if b is None else (b + bytes(width))[:width] for b in BLOBS]
        return pa.array(values, data_type)
    if t.is_string(data_type) or t.is_large_string(data_type):
        return pa.array(TEXTS, data_type)
    if t.is_binary(data_type) or t.is_large_binary(data_type):
        return pa.array(BLOBS, data_type)
    if t.is_interval(data_type):
        return pa.array([(1, 2, 3), None, (0, 0, 0), (-1, -2, -(2**40))] + [None] * 5, data_type)
    return _temporal(data_type)


def _unscaled(data_type):
    return type_of(data_type)(data_type.precision, 0)


def type_of(data_type):
    return {4: pa.decimal32, 8: pa.decimal64, 16: pa.decimal128, 32: pa.decimal256}[
        data_type.byte_width
    ]


def _temporal(data_type):
    t = pa.types
    if t.is_date32(data_type):
        return pa.array([0, 1, None, -1, 2**31 - 1, -(2**31), 7, None, 3], pa.int32()).view(
            data_type
        )
    if t.is_time(data_type):
        times = [dt.time(0), dt.time(23, 59, 59), None, dt.time(1, 2, 3)]
        return pa.array(times + [None] * 5, data_type)
    if t.is_date64(data_type):
        return pa.array([0, 86_400_000, None, -86_400_000] + [None] * 5, pa.int64()).view(data_type)
    return pa.array(ints(64), pa.int64()).view(data_type)


def batch():
    """Return a batch with a column of each type."""
    names = [f"c{i}" for i in range(len(TYPES))]
    return pa.record_batch([array(t) for t in TYPES], names=names)
