"""ListState and MapState against dicts, with snapshots between the changes."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs
from tests.kit import keys as k
from tests.kit.calls import count_calls

from headgate.errors import SchemaMismatchError, StateError
from headgate.key_groups import key_group_range
from headgate.stream import (
    KeyedStateBackend,
    ListStateDescriptor,
    MapStateDescriptor,
    SnapshotFolder,
    ValueStateDescriptor,
)

EVENT = pa.struct([("n", pa.int64()), ("s", pa.string())])
TYPES = {
    "int64": (pa.int64(), lambda n: n),
    "string": (pa.string(), lambda n: f"v{n}"),
    "struct": (EVENT, lambda n: {"n": n, "s": str(n)}),
}
LONGS = k.SCHEMAS["long"]


def restored(backend, number):
    """Write a snapshot, let later ones build on it, and return what a restore has."""
    backend.snapshot(number).write(backend.store)
    backend.complete(number)
    return KeyedStateBackend.restore([(backend.store, number)])


def with_store(backend):
    backend.store = SnapshotFolder("task", fs._MockFileSystem())
    return backend


def lists_of(backend, descriptor):
    table = backend.get_state(descriptor).table()
    *keys, values = table.columns
    return dict(zip(map(k.frozen, k.rows_of(keys)), values.to_pylist(), strict=True))


@pytest.mark.parametrize("value_type", TYPES)
@settings(max_examples=40, deadline=None)
@given(k.many_keys, st.data())
def test_list_state_is_a_dict_of_lists(value_type, given, data):
    data_type, make = TYPES[value_type]
    kind, batches = given
    backend = with_store(KeyedStateBackend(k.SCHEMAS[kind]))
    state = backend.get_state(ListStateDescriptor("l", data_type))
    model, number = {}, 0
    for turn, keys in enumerate(batches):
        # As if all slots were taken.
        backend.space.sweep()
        state.space.sweep()
        backend.set_keys(k.batch(kind, keys))
        distinct = k.distinct(keys)
        step = data.draw(st.sampled_from(["add", "add", "add", "put", "clear", "snapshot"]))
        if step == "add":
            number += 100
            values = [None if at == 7 else make(number + at) for at in range(len(keys))]
            state.add(pa.array(values, data_type))
            for key, value in zip(map(k.frozen, keys), values, strict=True):
                model.setdefault(key, []).append(value)
        elif step == "put":
            number += 100
            lists = [
                None if at == 3 else [make(number + n) for n in range(at % 3)]
                for at in range(len(distinct))
            ]
            state.put(pa.array(lists, pa.list_(data_type)))
            model.update(zip(distinct, (one or [] for one in lists), strict=True))
        elif step == "clear":
            state.clear()
            for key in distinct:
                model.pop(key, None)
        else:
            copy = restored(backend, turn)
            found = lists_of(copy, ListStateDescriptor("l", data_type))
            assert found == {key: values for key, values in model.items() if values}
        assert state.get().to_pylist() == [model.get(key) or [] for key in distinct]
    assert lists_of(backend, ListStateDescriptor("l", data_type)) == {
        key: values for key, values in model.items() if values
    }


def maps_of(backend, descriptor):
    table = backend.get_state(descriptor).table()
    *keys, map_keys, values = table.columns
    found = {}
    rows = zip(k.rows_of(keys), map_keys.to_pylist(), values.to_pylist(), strict=True)
    for key, map_key, value in rows:
        found.setdefault(k.frozen(key), {})[map_key] = value
    return found


@pytest.mark.parametrize("value_type", TYPES)
@pytest.mark.parametrize("key_type", ["int32", "string"])
@settings(max_examples=40, deadline=None)
@given(k.many_keys, st.data())
def test_map_state_is_a_dict_of_dicts(value_type, key_type, given, data):
    data_type, make = TYPES[value_type]
    map_type = pa.int32() if key_type == "int32" else pa.string()
    descriptor = MapStateDescriptor("m", map_type, data_type)
    kind, batches = given
    backend = with_store(KeyedStateBackend(k.SCHEMAS[kind]))
    state = backend.get_state(descriptor)
    model, number = {}, 0
    one_map_key = st.integers(0, 3) if key_type == "int32" else st.sampled_from(["", "x", "yy"])
    for turn, keys in enumerate(batches):
        # As if all slots were taken.
        backend.space.sweep()
        state.space.sweep()
        backend.set_keys(k.batch(kind, keys))
        distinct, rows = k.distinct(keys), list(map(k.frozen, keys))
        drawn = data.draw(st.lists(one_map_key, min_size=len(keys), max_size=len(keys)))
        map_keys = pa.array(drawn, map_type)
        step = data.draw(st.sampled_from(["put", "put", "put", "remove", "clear", "snapshot"]))
        if step == "put":
            number += 100
            values = [None if at == 5 else make(number + at) for at in range(len(keys))]
            state.put(map_keys, pa.array(values, data_type))
            for key, map_key, value in zip(rows, drawn, values, strict=True):
                model.setdefault(key, {})[map_key] = value
        elif step == "remove":
            state.remove(map_keys)
            for key, map_key in zip(rows, drawn, strict=True):
                model.get(key, {}).pop(map_key, None)
        elif step == "clear":
            state.clear()
            for key in distinct:
                model.pop(key, None)
        else:
            found = maps_of(restored(backend, turn), descriptor)
            assert found == {key: entries for key, entries in model.items() if entries}
        expected = [model.get(key, {}).get(m) for key, m in zip(rows, drawn, strict=True)]
        assert state.get(map_keys).to_pylist() == expected
        there = [m in model.get(key, {}) for key, m in zip(rows, drawn, strict=True)]
        assert state.contains(map_keys).to_pylist() == there
        items = [dict(entries) for entries in state.items().to_pylist()]
        assert items == [model.get(key, {}) for key in distinct]
    assert maps_of(backend, descriptor) == {key: e for key, e in model.items() if e}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 2), st.sampled_from("ab"), st.integers(-2, 2)), max_size=6
        ),
        max_size=6,
    )
)
def test_numbers_are_added_to_entries_and_entries_of_zero_are_removed(batches):
    backend, store = KeyedStateBackend(LONGS), SnapshotFolder("task", fs._MockFileSystem())
    state = backend.get_state(MapStateDescriptor("sums", pa.string(), pa.int64()))
    sums = {}
    for number, rows in enumerate(batches):
        keys, entries, numbers = zip(*rows, strict=True) if rows else ((), (), ())
        backend.set_keys([pa.array(keys, pa.int64())])
        state.add(pa.array(entries, pa.string()), pa.array(numbers, pa.int64()))
        for key, entry, n in rows:
            sums[key, entry] = sums.get((key, entry), 0) + n
        sums = {place: n for place, n in sums.items() if n}
        of_keys = backend.keys["id"].to_pylist()
        expected = [{e: n for (of, e), n in sums.items() if of == key} for key in of_keys]
        assert [dict(items) for items in state.items().to_pylist()] == expected
        assert state.lengths().tolist() == list(map(len, expected))
        backend.store = store
        backend = restored(backend, number)
        state = backend.get_state(MapStateDescriptor("sums", pa.string(), pa.int64()))


def test_slots_of_elements_and_entries_are_used_again():
    backend = KeyedStateBackend(LONGS)
    lists = backend.get_state(ListStateDescriptor("l", pa.string()))
    maps = backend.get_state(MapStateDescriptor("m", pa.int64(), pa.string()))
    for start in range(0, 100_000, 1000):
        keys = pa.array(np.arange(start, start + 1000))
        backend.set_keys([keys])
        lists.add(keys.cast(pa.string()))
        maps.put(keys, keys.cast(pa.string()))
        assert lists.get().value_lengths().to_pylist() == [1] * 1000
        lists.clear()
        maps.remove(keys)
    assert lists._elements.capacity <= 4096
    assert maps.space.capacity <= 8192
    assert backend.space.capacity <= 8192


def test_a_key_with_elements_or_entries_keeps_its_slot():
    backend = KeyedStateBackend(LONGS)
    value = backend.get_state(ValueStateDescriptor("v", pa.int64()))
    lists = backend.get_state(ListStateDescriptor("l", pa.int64()))
    maps = backend.get_state(MapStateDescriptor("m", pa.int64(), pa.int64()))
    backend.set_keys([pa.array([1])])
    lists.add([10])
    backend.set_keys([pa.array([2])])
    maps.put([5], [20])
    for start in range(10, 50_000, 1000):
        backend.set_keys([pa.array(np.arange(start, start + 1000))])
        value.put(np.ones(1000, np.int64))
        value.clear()
    backend.space.sweep()
    assert backend.space.num_keys == 2
    backend.set_keys([pa.array([2, 1])])
    assert lists.get().to_pylist() == [[], [10]]
    assert maps.items().to_pylist() == [[(5, 20)], []]


def test_calls_do_not_depend_on_the_number_of_keys():
    def calls_of(keys):
        backend = KeyedStateBackend(k.SCHEMAS["several"])
        lists = backend.get_state(ListStateDescriptor("l", pa.int64()))
        maps = backend.get_state(MapStateDescriptor("m", pa.int32(), pa.string()))
        ids = np.arange(keys * 3, dtype=np.int32) % keys
        text = pa.array(ids).cast(pa.string())
        batch = [pa.array(ids), text, pa.nulls(len(ids), pa.timestamp("us"))]

        def all_methods():
            backend.set_keys(batch)
            lists.add(np.arange(len(ids)))
            lists.get()
            lists.put(lists.get())
            maps.put(pa.array(ids // 2), text)
            maps.get(pa.array(ids))
            maps.contains(pa.array(ids))
            maps.items()
            maps.remove(pa.array(ids))
            lists.clear()
            maps.clear()

        all_methods()  # the arrays grow
        return count_calls(all_methods)

    # So few rows that no column is compacted meanwhile.
    assert calls_of(400) == calls_of(4) > 10


def test_a_savepoint_of_maps_moves_to_another_parallelism():
    backend = with_store(KeyedStateBackend(LONGS, max_parallelism=16))
    lists = backend.get_state(ListStateDescriptor("l", EVENT))
    maps = backend.get_state(MapStateDescriptor("m", pa.string(), pa.int64()))
    ids = np.arange(1000) % 200
    backend.set_keys([pa.array(ids)])
    lists.add(pa.array([{"n": int(n), "s": None} for n in range(1000)], EVENT))
    maps.put(pa.array([str(n % 7) for n in range(1000)]), np.arange(1000))
    backend.snapshot(1, savepoint=True).write(backend.store)
    parts = [
        KeyedStateBackend.restore([(backend.store, 1)], key_groups=key_group_range(at, 3, 16))
        for at in range(3)
    ]
    for of, descriptor in (
        (lists_of, ListStateDescriptor("l", EVENT)),
        (maps_of, MapStateDescriptor("m", pa.string(), pa.int64())),
    ):
        found = [of(part, descriptor) for part in parts]
        assert min(map(len, found)) > 20
        merged = {key: value for one in found for key, value in one.items()}
        assert merged == of(backend, descriptor)
        assert sum(map(len, found)) == len(merged) == 200


def test_elements_gain_fields_also_in_the_files_of_older_snapshots():
    backend = with_store(KeyedStateBackend(LONGS))
    wide = pa.struct([*EVENT, ("more", pa.float64())])
    backend.set_keys([pa.array([1, 2])])
    backend.get_state(ListStateDescriptor("l", EVENT)).add(
        pa.array([{"n": 1, "s": "a"}, {"n": 2, "s": "b"}], EVENT)
    )
    backend.get_state(MapStateDescriptor("m", pa.int64(), EVENT)).put(
        [7, 8], pa.array([{"n": 1, "s": "a"}, None], EVENT)
    )
    restored(backend, 1)
    lists = backend.get_state(ListStateDescriptor("l", wide))
    maps = backend.get_state(MapStateDescriptor("m", pa.int64(), wide))
    backend.set_keys([pa.array([2])])
    lists.add(pa.array([{"n": 3, "s": "c", "more": 0.5}], wide))
    assert lists.get().to_pylist()[0][0] == {"n": 2, "s": "b", "more": None}
    copy = restored(backend, 2)
    assert lists_of(copy, ListStateDescriptor("l", wide)) == {
        "(1,)": [{"n": 1, "s": "a", "more": None}],
        "(2,)": [{"n": 2, "s": "b", "more": None}, {"n": 3, "s": "c", "more": 0.5}],
    }
    assert maps_of(copy, MapStateDescriptor("m", pa.int64(), wide)) == {
        "(1,)": {7: {"n": 1, "s": "a", "more": None}},
        "(2,)": {8: None},
    }
    assert maps.items().to_pylist() == [[(8, None)]]


def test_arguments_are_checked():
    backend = KeyedStateBackend(LONGS)
    lists = backend.get_state(ListStateDescriptor("l", pa.int8()))
    maps = backend.get_state(MapStateDescriptor("m", pa.string(), pa.int8()))
    backend.set_keys([pa.array([1, 1, 2])])
    with pytest.raises(StateError, match="2 values"):
        lists.add([1, 2])
    with pytest.raises(StateError, match="3 values"):
        lists.put([[1], [2], [3]])
    with pytest.raises(SchemaMismatchError, match="int8"):
        lists.add([1, 2, 1000])
    with pytest.raises(StateError, match="null"):
        maps.put(["a", None, "b"], [1, 2, 3])
    with pytest.raises(StateError, match="1 values"):
        maps.put(["a"], [1])
    with pytest.raises(StateError, match="1 values"):
        maps.get(["a"])
    with pytest.raises(SchemaMismatchError, match="there twice"):
        KeyedStateBackend(pa.schema([("map_key", pa.int64())])).get_state(
            MapStateDescriptor("m", pa.string(), pa.int8())
        )
    assert lists.get().to_pylist() == [[], []]
    assert maps.items().to_pylist() == [[], []]
