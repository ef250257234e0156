"""Key groups equal Flink's: Java's hash codes, groups, and the operators that own them."""

import math
import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plane import emit_all, exchange

import headgate as hg
from headgate.key_groups import (
    default_max_parallelism,
    key_group_range,
    key_groups,
    operator_index,
)


def word(value):
    return (value + 2**31) % 2**32 - 2**31


def murmur(code):
    """Return Flink's MathUtils.murmurHash, computed step by step."""
    mask = 0xFFFFFFFF
    code = (code & mask) * 0xCC9E2D51 & mask
    code = (code << 15 | code >> 17) & mask
    code = code * 0x1B873593 & mask
    code = (code << 13 | code >> 19) & mask
    code = (code * 5 + 0xE6546B64) & mask
    code ^= 4
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        code = (code ^ code >> shift) * factor & mask
    code = word(code)
    return code if code >= 0 else 0 if code == -(2**31) else -code


def long_code(value):
    bits = value & (2**64 - 1)
    return word((bits ^ bits >> 32) & 0xFFFFFFFF)


def string_code(text):
    units = text.encode("utf-16-le", "surrogatepass")
    code = 0
    for (unit,) in struct.iter_unpack("<H", units):
        code = (31 * code + unit) & 0xFFFFFFFF
    return word(code)


def double_code(value):
    # Unlike in Java, -0.0 is 0.0.
    if math.isnan(value):
        return long_code(0x7FF8 << 48)
    return long_code(struct.unpack("<Q", struct.pack("<d", value + 0.0))[0])


def float_code(value):
    bits = 0x7FC00000 if value != value else struct.unpack("<I", struct.pack("<f", value + 0.0))[0]  # noqa: PLR0124
    return word(bits)


CODES = {
    "bool": (pa.bool_(), st.booleans(), lambda v: 1231 if v else 1237),
    "int8": (pa.int8(), st.integers(-(2**7), 2**7 - 1), word),
    "int16": (pa.int16(), st.integers(-(2**15), 2**15 - 1), word),
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1), word),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1), long_code),
    "float": (pa.float32(), st.floats(width=32), float_code),
    "double": (pa.float64(), st.floats(), double_code),
    "string": (pa.string(), st.text(), string_code),
    "large_string": (pa.large_string(), st.text(), string_code),
    "string_view": (pa.string_view(), st.text(), string_code),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), st.text(), string_code),
}


@pytest.mark.parametrize("kind", CODES)
@settings(deadline=None)
@given(data=st.data(), groups=st.integers(1, 2**15))
def test_hash_codes_are_those_of_java(kind, data, groups):
    type_, values, code = CODES[kind]
    keys = data.draw(st.lists(values, min_size=1, max_size=20))
    expected = [murmur(code(key)) % groups for key in keys]
    assert key_groups(pa.array(keys, type_), groups).to_pylist() == expected
    behind = pa.array([keys[0], *keys], type_).slice(1)
    assert key_groups(behind, groups).to_pylist() == expected


def test_spec_5_10_ranges():
    def ranges(groups, operators):
        all_ = [key_group_range(i, operators, groups) for i in range(operators)]
        return [(some.start, some.stop - 1) for some in all_]

    assert ranges(128, 3) == [(0, 42), (43, 85), (86, 127)]
    assert ranges(10, 3) == [(0, 3), (4, 6), (7, 9)]
    assert ranges(7, 4) == [(0, 1), (2, 3), (4, 5), (6, 6)]


def test_spec_5_10_the_default():
    expected = {86: 256, 100: 256, 128: 256, 170: 256, 171: 256, 1000: 2048, 21844: 32768}
    expected |= dict.fromkeys((1, 2, 84, 85), 128) | dict.fromkeys((21845, 32767, 32768), 32768)
    assert {p: default_max_parallelism(p) for p in expected} == expected


@settings(deadline=None)
@given(st.data())
def test_a_range_contains_the_groups_that_the_index_assigns(data):
    groups = data.draw(st.integers(1, 2**15))
    operators = data.draw(st.integers(1, groups))
    group = data.draw(st.integers(0, groups - 1))
    index = operator_index(group, operators, groups)
    assert group in key_group_range(index, operators, groups)
    if operators > 1:
        other = (index + 1) % operators
        assert group not in key_group_range(other, operators, groups)


@pytest.mark.parametrize("groups", [None, 3, 100, 32768])
@pytest.mark.parametrize("column", ["user", "day"])
def test_rows_go_to_the_operator_of_their_group(environment, groups, column):
    batch = pa.record_batch(
        {
            "user": [f"user {i % 97}" for i in range(1000)],
            "day": pa.array([i % 31 - 15 for i in range(1000)], pa.int32()),
        }
    )
    producer, consumer = environment(), environment()
    got = exchange(
        producer,
        consumer,
        emit_all(batch.slice(0, 300), batch.slice(300)),
        n=3,
        schema=batch.schema,
        selector=hg.KeyGroupSelector(column, groups),
    )
    total = groups or 128
    for index, table in enumerate(got):
        owned = key_group_range(index, 3, total)
        found = key_groups(table.column(column).combine_chunks(), total).to_pylist()
        assert set(found) <= set(owned)
    assert sum(table.num_rows for table in got) == 1000


def test_a_null_key_is_an_error_that_names_column_and_row(environment):
    producer, consumer = environment(), environment()
    schema = pa.schema([("user", pa.string())])
    whole = pa.record_batch({"user": ["a", "b"]})
    holed = pa.record_batch({"user": ["c", "d", None]})

    def write(writer):
        writer.emit(whole)
        with pytest.raises(hg.errors.SelectorError, match='"user" is null in row 2'):
            writer.emit(holed)

    got = exchange(
        producer, consumer, write, n=2, schema=schema, selector=hg.KeyGroupSelector("user")
    )
    assert sorted(user for table in got for user in table.column(0).to_pylist()) == ["a", "b"]


def test_invalid_keys_and_numbers_of_groups_are_refused(environment):
    partition = environment(memory="16m").create_result_partition(200)
    schema = pa.schema([("user", pa.string()), ("when", pa.date32()), ("raw", pa.binary())])
    for column in ("when", "raw"):
        with pytest.raises(hg.errors.UnsupportedTypeError, match=column):
            hg.RecordWriter(partition, schema, selector=hg.KeyGroupSelector(column))
    with pytest.raises(hg.errors.UnknownColumnError, match="nobody"):
        hg.RecordWriter(partition, schema, selector=hg.KeyGroupSelector("nobody"))
    with pytest.raises(hg.errors.SelectorError, match="max_parallelism=199") as caught:
        hg.RecordWriter(partition, schema, selector=hg.KeyGroupSelector("user", 199))
    assert "200 to 32768" in str(caught.value)
    with pytest.raises(hg.errors.UnsupportedTypeError):
        key_groups(pa.array([b"raw"]), 128)
    with pytest.raises(hg.errors.SelectorError, match="null"):
        key_groups(pa.array(["a", None]), 128)
    for wrong in (
        lambda: key_groups(pa.array([1]), 0),
        lambda: key_groups(pa.array([1]), 32769),
        lambda: key_group_range(3, 3, 128),
        lambda: key_group_range(-1, 3, 128),
        lambda: key_group_range(0, 129, 128),
        lambda: operator_index(128, 3, 128),
        lambda: default_max_parallelism(0),
        lambda: default_max_parallelism(32769),
    ):
        with pytest.raises(hg.errors.SelectorError):
            wrong()
