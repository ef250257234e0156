"""ValueState and ReducingState against dicts, for keys and values of many types."""

import datetime as dt
import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit import keys as k
from tests.kit.calls import count_calls

from headgate.errors import SchemaMismatchError, StateError, UnsupportedTypeError
from headgate.key_groups import key_group_range, key_groups
from headgate.stream import (
    KeyedStateBackend,
    ReducingStateDescriptor,
    ValueStateDescriptor,
    key_groups_of,
)

#: Types of values, with a function that makes a value of a number.
TYPES = {
    "int8": (pa.int8(), lambda n: n % 100),
    "double": (pa.float64(), lambda n: n / 2),
    "bool": (pa.bool_(), lambda n: n % 2 == 0),
    "timestamp": (
        pa.timestamp("us"),
        lambda n: dt.datetime.fromisoformat("2026-01-01") + n * dt.timedelta(1),
    ),
    "date": (pa.date32(), lambda n: dt.date(2026, 1, 1) + n * dt.timedelta(1)),
    "string": (pa.string(), lambda n: "v" * (n % 7) + str(n)),
    "decimal": (pa.decimal128(20, 2), lambda n: pa.scalar(n, pa.decimal128(20, 2)).as_py()),
    "struct": (pa.struct([("a", pa.int64()), ("b", pa.string())]), lambda n: {"a": n, "b": None}),
    "list": (pa.list_(pa.int64()), lambda n: [n] * (n % 3)),
}


@settings(max_examples=40, deadline=None)
@given(k.many_keys)
def test_a_batch_has_distinct_keys_and_rows_that_point_to_them(given):
    kind, batches = given
    backend = KeyedStateBackend(k.SCHEMAS[kind])
    for keys in batches:
        backend.set_keys(k.batch(kind, keys))
        found = [k.frozen(key) for key in k.rows_of(backend.keys)]
        assert found == k.distinct(keys)
        assert [found[row] for row in backend.rows.to_pylist()] == [k.frozen(key) for key in keys]


@pytest.mark.parametrize("value_type", TYPES)
@settings(max_examples=40, deadline=None)
@given(k.many_keys, st.data())
def test_value_state_is_a_dict(value_type, given, data):
    data_type, make = TYPES[value_type]
    kind, batches = given
    backend = KeyedStateBackend(k.SCHEMAS[kind])
    state = backend.get_state(ValueStateDescriptor("v", data_type))
    model = {}
    number = 0
    for keys in batches:
        backend.set_keys(k.batch(kind, keys))
        distinct = k.distinct(keys)
        assert state.get().type == data_type
        assert state.get().to_pylist() == [model.get(key) for key in distinct]
        if data.draw(st.integers(0, 4)) == 0:
            state.clear()
            for key in distinct:
                model.pop(key, None)
        else:
            holes = data.draw(
                st.lists(st.booleans(), min_size=len(distinct), max_size=len(distinct))
            )
            number += 10
            values = [None if hole else make(number + at) for at, hole in enumerate(holes)]
            state.put(pa.array(values, data_type))
            model.update(zip(distinct, values, strict=True))
        assert state.get().to_pylist() == [model.get(key) for key in distinct]


def longest(left, right):
    """Keep the longer text, and of equal ones the left: an order that is not the numbers'."""
    return pc.if_else(pc.less(pc.utf8_length(left), pc.utf8_length(right)), right, left)


REDUCES = {
    "sum": ("sum", pa.int64(), lambda a, b: a + b),
    "min": ("min", pa.int32(), min),
    "max": ("max", pa.float64(), max),
    "decimal sum": ("sum", pa.decimal128(38, 0), lambda a, b: a + b),
    "text max": ("max", pa.string(), max),
    "concatenation": (
        lambda left, right: pc.binary_join_element_wise(left, right, ""),
        pa.string(),
        lambda a, b: a + b,
    ),
    "longest": (longest, pa.string(), lambda a, b: b if len(a) < len(b) else a),
    "product": (pc.multiply, pa.float64(), lambda a, b: a * b),
}


@pytest.mark.parametrize("name", REDUCES)
@settings(max_examples=40, deadline=None)
@given(k.many_keys, st.data())
def test_reducing_state_is_a_dict_that_is_reduced_row_by_row(name, given, data):
    reduce, data_type, combine = REDUCES[name]
    kind, batches = given
    backend = KeyedStateBackend(k.SCHEMAS[kind])
    state = backend.get_state(ReducingStateDescriptor("r", reduce, data_type))
    counts = backend.get_state(ReducingStateDescriptor("n", "count", pa.int64()))
    model, counted = {}, {}
    for keys in batches:
        backend.set_keys(k.batch(kind, keys))
        numbers = [data.draw(st.none() | st.integers(-3, 9)) for _ in keys]
        text = pa.types.is_string(data_type)
        values = [n if n is None or not text else "abcdefghijklm"[n + 3 :] for n in numbers]
        array = pa.array(values, data_type)
        state.add(array)
        counts.add(array)
        for key, value in zip(map(k.frozen, keys), array.to_pylist(), strict=True):
            if value is not None:
                model[key] = combine(model[key], value) if key in model else value
                counted[key] = counted.get(key, 0) + 1
        assert state.get().to_pylist() == [model.get(key) for key in k.distinct(keys)]
        assert counts.get().to_pylist() == [counted.get(key) for key in k.distinct(keys)]
        if data.draw(st.integers(0, 3)) == 0:
            state.clear()
            counts.clear()
            for key in k.distinct(keys):
                model.pop(key, None)
                counted.pop(key, None)


def test_min_and_max_begin_with_the_first_value():
    backend = KeyedStateBackend(k.SCHEMAS["long"])
    low = backend.get_state(ReducingStateDescriptor("low", "min", pa.float64()))
    high = backend.get_state(ReducingStateDescriptor("high", "max", pa.int8()))
    both = backend.get_state(ReducingStateDescriptor("both", "min", pa.bool_()))
    backend.set_keys([pa.array([1, 1, 2])])
    low.add([math.inf, math.inf, 3.0])
    high.add([-128, -128, -5])
    both.add([True, False, True])
    assert low.get().to_pylist() == [math.inf, 3.0]
    assert high.get().to_pylist() == [-128, -5]
    assert both.get().to_pylist() == [False, True]


def test_slots_of_keys_without_state_are_used_again():
    backend = KeyedStateBackend(k.SCHEMAS["long"])
    state = backend.get_state(ValueStateDescriptor("v", pa.int64()))
    for start in range(0, 200_000, 1000):
        keys = pa.array(np.arange(start, start + 1000))
        backend.set_keys([keys])
        assert state.get().null_count == 1000
        state.put(keys)
        assert state.get().equals(keys)
        state.clear()
    assert backend.space.capacity <= 8192
    assert backend.space.num_keys <= 8192


def test_values_that_were_replaced_are_freed():
    backend = KeyedStateBackend(k.SCHEMAS["long"])
    state = backend.get_state(ValueStateDescriptor("v", pa.string()))
    keys = pa.array(np.arange(100))
    for turn in range(2000):
        backend.set_keys([keys])
        state.put(pa.array([f"{turn} {key}" for key in range(100)]))
    assert state.get().to_pylist()[:2] == ["1999 0", "1999 1"]
    assert state.column.values.num_held <= 8192


@pytest.mark.parametrize("rows", [1, 5])
def test_calls_do_not_depend_on_the_number_of_keys(rows):
    def calls_of(keys):
        backend = KeyedStateBackend(k.SCHEMAS["several"])
        total = backend.get_state(ReducingStateDescriptor("t", "sum", pa.int64()))
        last = backend.get_state(ValueStateDescriptor("l", pa.timestamp("us")))
        text = backend.get_state(ValueStateDescriptor("s", pa.string()))
        ids = np.arange(keys * rows, dtype=np.int32) % keys
        batch = [
            pa.array(ids),
            pa.array(ids).cast(pa.string()),
            pa.array(ids, pa.int64()).cast(pa.timestamp("us")),
        ]
        backend.set_keys(batch)  # the arrays grow

        def all_methods():
            backend.set_keys(batch)
            total.add(pa.array(ids, pa.int64()))
            total.get()
            last.put(backend.keys["at"])
            last.get()
            text.put(backend.keys["name"])
            text.get()
            last.clear()

        return count_calls(all_methods)

    assert calls_of(4000) == calls_of(40) > 10


def test_a_function_is_called_as_often_as_the_logarithm_of_the_values_of_a_key():
    backend = KeyedStateBackend(k.SCHEMAS["long"])
    called = []

    def add(left, right):
        called.append(len(left))
        return pc.add(left, right)

    state = backend.get_state(ReducingStateDescriptor("s", add, pa.int64()))
    backend.set_keys([pa.array([0] * 1000 + list(range(1, 100)))])
    state.add(np.ones(1099, np.int64))
    assert state.get().to_pylist() == [1000] + [1] * 99
    assert len(called) == 10
    assert sum(called) == 999


def test_keys_are_checked():
    backend = KeyedStateBackend(k.SCHEMAS["several"])
    state = backend.get_state(ValueStateDescriptor("v", pa.int64()))
    with pytest.raises(StateError, match="before any keys"):
        state.get()
    with pytest.raises(SchemaMismatchError, match="key columns"):
        backend.set_keys([pa.array([1])])
    with pytest.raises(SchemaMismatchError, match="key columns"):
        backend.set_keys([pa.array([1]), pa.array(["a"]), pa.array([1])])
    names = pa.array(["a", None, "a"]).dictionary_encode()
    backend.set_keys([pa.array([1, 1, 1], pa.int32()), names, pa.nulls(3, pa.timestamp("us"))])
    assert backend.rows.to_pylist() == [0, 1, 0]
    assert backend.keys["name"].to_pylist() == ["a", None]


def test_values_are_checked():
    backend = KeyedStateBackend(k.SCHEMAS["long"])
    state = backend.get_state(ValueStateDescriptor("v", pa.int8()))
    total = backend.get_state(ReducingStateDescriptor("t", "sum", pa.int64()))
    backend.set_keys([pa.array([1, 1, 2])])
    with pytest.raises(StateError, match="3 values"):
        state.put([1, 1, 2])
    with pytest.raises(StateError, match="2 values"):
        total.add([1, 2])
    with pytest.raises(SchemaMismatchError, match="int8"):
        state.put([1, 1000])
    with pytest.raises(StateError, match="'v' is declared as reducing"):
        backend.get_state(ReducingStateDescriptor("v", "sum", pa.int8()))
    with pytest.raises(SchemaMismatchError, match="cannot become"):
        backend.get_state(ValueStateDescriptor("v", pa.int16()))
    assert state.get().to_pylist() == [None, None]


def test_declarations_are_checked():
    with pytest.raises(StateError, match="not known"):
        ReducingStateDescriptor("r", "mean", pa.int64())
    with pytest.raises(UnsupportedTypeError, match="a sum of state 'r', which is of type string"):
        ReducingStateDescriptor("r", "sum", pa.string())
    with pytest.raises(StateError, match="a count of type double"):
        ReducingStateDescriptor("r", "count", pa.float64())
    with pytest.raises(UnsupportedTypeError):
        KeyedStateBackend(pa.schema([("m", pa.map_(pa.int64(), pa.int64()))])).set_keys(
            [pa.array([[(1, 1)]], pa.map_(pa.int64(), pa.int64()))]
        )


def test_a_function_that_returns_something_else_is_an_error():
    backend = KeyedStateBackend(k.SCHEMAS["long"])
    state = backend.get_state(ReducingStateDescriptor("r", lambda a, b: a[:0], pa.int64()))
    backend.set_keys([pa.array([1, 1])])
    with pytest.raises(StateError, match="for 1 pairs"):
        state.add([1, 2])
    assert state.get().to_pylist() == [None]


def test_key_groups_are_those_of_the_exchange():
    for keys in (pa.array([1, 2, -7]), pa.array(["flink", "hello"]), pa.array([0.5, math.nan])):
        batch = pa.record_batch({"k": keys})
        assert key_groups_of(batch, 128).tolist() == key_groups(keys, 128).to_pylist()
    nulls = pa.record_batch({"k": pa.array([None, 0], pa.int64())})
    assert len(set(key_groups_of(nulls, 128).tolist())) == 1
    pairs = pa.record_batch({"a": pa.array([1, None]), "b": pa.array(["x", None])})
    # Spark's hash(1L, "x") and, of nulls, its seed.
    assert key_groups_of(pairs, 1 << 15)[1] == 42
    with pytest.raises(UnsupportedTypeError):
        key_groups_of(pa.record_batch({"a": pa.array([{"m": 1}]), "t": pa.array([dt.time(1)])}), 8)


def test_a_key_of_another_task_is_refused_and_gets_no_slot():
    mine = key_group_range(0, 2, 128)
    backend = KeyedStateBackend(k.SCHEMAS["long"], key_groups=mine)
    groups = key_groups_of(pa.record_batch({"id": pa.array(np.arange(100))}), 128)
    inside, outside = np.flatnonzero(groups < 64), np.flatnonzero(groups >= 64)
    backend.set_keys([pa.array(inside)])
    before = backend.space.num_keys
    with pytest.raises(StateError, match=f"key group {groups[outside[0]]}"):
        backend.set_keys([pa.array(np.r_[inside[:3], outside])])
    assert backend.space.num_keys == before == len(inside)
    with pytest.raises(StateError, match="before any keys"):
        _ = backend.keys
