"""-0.0 and 0.0 are one key, and so are all NaNs, at any depth: in key groups, state, timers and windows, as in Spark."""

import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.windows import WINDOWS, operator

from headgate.stream import (
    Aggregate,
    KeyedStateBackend,
    MapStateDescriptor,
    ReducingStateDescriptor,
    key_groups_of,
)
from headgate.stream.state.zeros import normalized

ODD_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0123))[0]
FLOATS = [0.0, -0.0, 1.5, -1.5, float("nan"), ODD_NAN, float("-inf")]
SINGLE = pa.float32()
#: Types with floats, and a function that makes a value of two floats.
TYPES = {
    "float": (SINGLE, lambda one, _: one),
    "double": (pa.float64(), lambda one, _: one),
    "struct": (pa.struct([("x", pa.float64()), ("y", SINGLE)]), lambda x, y: {"x": x, "y": y}),
    "list": (pa.list_(pa.float64()), lambda *both: list(both)),
    "large list": (
        pa.large_list(pa.struct([("x", SINGLE)])),
        lambda x, y: [{"x": x}, None, {"x": y}],
    ),
    "fixed list": (pa.list_(pa.float64(), 2), lambda *both: list(both)),
    "strict": (
        pa.struct([pa.field("x", pa.float64(), nullable=False)]),
        lambda x, _: {"x": 0.0 if x is None else x},
    ),
    "lists": (pa.list_(pa.list_(pa.float64())), lambda x, y: [[x], [], [y, x]]),
    "dictionary": (pa.dictionary(pa.int8(), pa.float64()), lambda one, _: one),
}


def array_of(name, pairs):
    of, make = TYPES[name]
    values = [None if pair is None else make(*pair) for pair in pairs]
    if name == "dictionary":
        codes = pa.array([None if v is None else at for at, v in enumerate(values)], pa.int8())
        return pa.DictionaryArray.from_arrays(
            codes, pa.array([v or 0.0 if v is None else v for v in values], pa.float64())
        )
    return pa.array(values, of)


def plain(value):
    """Return a form in which keys that Spark takes for equal are equal."""
    return repr(value).replace("-0.0", "0.0")


pairs = st.lists(st.none() | st.tuples(*[st.none() | st.sampled_from(FLOATS)] * 2), max_size=8)


@pytest.mark.parametrize("name", TYPES)
@settings(deadline=None)
@given(pairs, st.integers(0, 2))
def test_keys_are_those_that_spark_takes_for_equal(name, pairs, offset):
    if name == "dictionary":
        pairs = [None if pair is None or pair[0] is None else pair for pair in pairs]
    array = array_of(name, pairs)[offset:]
    expected = [plain(value) for value in array.to_pylist()]
    distinct = list(dict.fromkeys(expected))
    batch = pa.record_batch({"k": array})
    one = normalized(batch)
    one.validate(full=True)
    assert one.schema == batch.schema
    assert [plain(value) for value in one["k"].to_pylist()] == expected
    assert "-0.0" not in repr(one.to_pydict())
    backend = KeyedStateBackend(batch.schema)
    count = backend.get_state(ReducingStateDescriptor("n", "count", pa.int64()))
    backend.set_keys(batch)
    count.add([1] * len(array))
    assert [plain(value) for value in backend.keys["k"].to_pylist()] == distinct
    assert count.get().to_pylist() == [expected.count(key) for key in distinct]
    groups = dict(zip(expected, key_groups_of(batch, 128).tolist(), strict=True))
    assert [groups[key] for key in expected] == key_groups_of(one, 128).tolist()
    assert "-0.0" not in repr(count.table().to_pydict())


@settings(deadline=None)
@given(st.lists(st.none() | st.sampled_from(FLOATS), max_size=40), st.integers(0, 40))
def test_slices_keep_their_nulls(values, offset):
    array = pa.array(values, pa.float64())[offset:]
    one = normalized(pa.record_batch({"k": array}))["k"]
    one.validate(full=True)
    assert list(map(plain, one.to_pylist())) == list(map(plain, array.to_pylist()))


def test_timers_and_maps_have_one_zero():
    backend = KeyedStateBackend(pa.schema([("k", pa.float64())]))
    entries = backend.get_state(MapStateDescriptor("m", pa.float64(), pa.int64()))
    backend.set_keys([pa.array([0.0, -0.0, ODD_NAN, float("nan")])])
    entries.put([-0.0, 0.0, ODD_NAN, float("nan")], [1, 2, 3, 4])
    assert [[value for _, value in one] for one in entries.items().to_pylist()] == [[2], [4]]
    assert entries.get([0.0, -0.0, float("nan"), ODD_NAN]).to_pylist() == [2, 2, 4, 4]
    backend.event_timers.register([5, 5, 6, 6])
    backend.set_keys([pa.array([-0.0])])
    backend.event_timers.delete([5])
    assert backend.event_timers.advance(10)["timestamp"].to_pylist() == [6]


@pytest.mark.parametrize("kind", WINDOWS)
def test_windows_have_one_zero(kind):
    schema = pa.schema([("user", pa.float64()), ("at", pa.int64())])
    ours = operator(WINDOWS[kind], schema, aggregates=[Aggregate("count")])
    for keys in ([0.0, ODD_NAN], [-0.0, float("nan")]):
        ours.process(pa.record_batch([pa.array(keys), pa.array([5, 5])], schema=schema))
    results = ours.advance_watermark(100).results
    assert "-0.0" not in repr(results["user"].to_pylist())
    assert set(results["count"].to_pylist()) == {2}
