"""State that expires: never returned, and in no snapshot."""

from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs

from headgate.errors import OptionError, StateError
from headgate.stream import (
    KeyedStateBackend,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    SnapshotFolder,
    StateTtlConfig,
    ValueStateDescriptor,
)

KEYS = pa.schema([("id", pa.int64())])
TTL = 10


class Expiring(dict):
    """A dict whose entries expire ``TTL`` after the last write, or also the last read."""

    def __init__(self, clock, on_read):
        super().__init__()
        self.clock, self.on_read, self.since = clock, on_read, {}

    def write(self, key, value):
        self[key] = value
        self.since[key] = self.clock()

    def alive(self):
        return {key: v for key, v in self.items() if self.since[key] > self.clock() - TTL}

    def read(self, key):
        value = self.alive().get(key)
        if value is not None and self.on_read:
            self.since[key] = self.clock()
        return value


steps = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "read", "wait", "wait", "snapshot", "restore"]),
        st.lists(st.integers(0, 4), min_size=1, max_size=5),
        st.integers(1, 7),
    ),
    max_size=30,
)


class Both:
    """Four states in a backend, and in dicts."""

    def __init__(self, update_type):
        ttl = StateTtlConfig(timedelta(milliseconds=TTL), update_type)
        self.now = 100
        on_read = update_type == "on_read_and_write"
        self.values, self.sums, self.maps, self.lists = (
            Expiring(lambda: self.now, on_read) for _ in range(4)
        )
        self.element = 0
        self.descriptors = (
            ValueStateDescriptor("v", pa.string(), ttl),
            ReducingStateDescriptor("s", "sum", pa.int64(), ttl),
            MapStateDescriptor("m", pa.int64(), pa.int64(), ttl),
            ListStateDescriptor("l", pa.int64(), ttl),
        )
        self.use(KeyedStateBackend(KEYS, clock=lambda: self.now))

    def use(self, backend):
        self.backend = backend
        self.states = [backend.get_state(descriptor) for descriptor in self.descriptors]

    def write(self, number, keys):
        values, sums, maps, lists = self.states
        self.backend.set_keys([pa.array(keys)])
        distinct = list(dict.fromkeys(keys))
        values.put([f"{number}/{key}" for key in distinct])
        sums.add([key + 1 for key in keys])
        maps.put([key % 2 for key in keys], [number] * len(keys))
        self.element += 10
        lists.add([self.element + at for at in range(len(keys))])
        for key in distinct:
            self.values.write(key, f"{number}/{key}")
        for at, key in enumerate(keys):
            self.sums.write(key, self.sums.alive().get(key, 0) + key + 1)
            self.maps.write((key, key % 2), number)
            self.lists.write((key, self.element + at), self.element + at)

    def read(self, keys):
        values, sums, maps, lists = self.states
        self.backend.set_keys([pa.array(keys)])
        distinct = list(dict.fromkeys(keys))
        assert values.get().to_pylist() == [self.values.read(key) for key in distinct]
        assert sums.get().to_pylist() == [self.sums.read(key) for key in distinct]
        found = maps.get([key % 2 for key in keys]).to_pylist()
        assert found == [self.maps.read((key, key % 2)) for key in keys]
        expected = [
            [self.lists.read(pair) for pair in list(self.lists.alive()) if pair[0] == key]
            for key in distinct
        ]
        assert lists.get().to_pylist() == expected

    def restored(self, store, number):
        """Check the files of a snapshot: without a time to live, a restored state shows all of them."""
        copy = KeyedStateBackend.restore([(store, number)], clock=lambda: self.now)
        values, sums, maps, lists = (
            copy.states[descriptor.name].table().columns for descriptor in self.descriptors
        )
        for found, model in ((values, self.values), (sums, self.sums)):
            assert dict(zip(*(c.to_pylist() for c in found), strict=True)) == model.alive()
        *pairs, numbers = (column.to_pylist() for column in maps)
        assert dict(zip(zip(*pairs, strict=True), numbers, strict=True)) == self.maps.alive()
        elements = [element for one in lists[1].to_pylist() for element in one]
        assert sorted(elements) == sorted(self.lists.alive().values())
        return copy


@pytest.mark.parametrize("update_type", ["on_create_and_write", "on_read_and_write"])
@settings(max_examples=40, deadline=None)
@given(steps)
def test_expired_state_is_gone_everywhere(update_type, steps):
    both = Both(update_type)
    store = SnapshotFolder("task", fs._MockFileSystem())
    for number, (step, keys, wait) in enumerate(steps):
        if step == "write":
            both.write(number, keys)
        elif step == "read":
            both.read(keys)
        elif step == "wait":
            both.now += wait
        else:
            both.backend.snapshot(number).write(store)
            both.backend.complete(number)
            copy = both.restored(store, number)
            if step == "restore":
                both.use(copy)


def test_state_from_before_there_was_a_time_to_live_lives_since_then():
    now = 50
    backend = KeyedStateBackend(KEYS, clock=lambda: now)
    backend.set_keys([pa.array([1])])
    backend.get_state(ValueStateDescriptor("v", pa.int64())).put([1])
    backend.get_state(ListStateDescriptor("l", pa.int64())).add([2])
    ttl = StateTtlConfig(timedelta(milliseconds=TTL))
    value = backend.get_state(ValueStateDescriptor("v", pa.int64(), ttl))
    lists = backend.get_state(ListStateDescriptor("l", pa.int64(), ttl))
    now += TTL - 1
    assert (value.get().to_pylist(), lists.get().to_pylist()) == ([1], [[2]])
    now += 1
    assert (value.get().to_pylist(), lists.get().to_pylist()) == ([None], [[]])


def test_jobs_with_and_without_a_time_to_live_take_turns_at_a_state():
    now, store = 0, SnapshotFolder("task", fs._MockFileSystem())

    def clock():
        return now

    forever = ValueStateDescriptor("n", pa.int64())
    brief = ValueStateDescriptor("n", pa.int64(), StateTtlConfig(timedelta(milliseconds=TTL)))
    backend, with_times = KeyedStateBackend(KEYS, clock=clock), []
    for number, descriptor in enumerate((forever, brief, forever, brief, forever, brief)):
        state = backend.get_state(descriptor)
        backend.set_keys([pa.array([number])])
        state.put(pa.array([number]))
        file = backend.snapshot(number).write(store).states[0].files[-1]
        with_times.append("stamp" in store.read_chunk(file).column_names)
        backend = KeyedStateBackend.restore([(store, number)], clock=clock)
        now += 4
    assert with_times == [False, True, True, True, True, True]
    # The last two were written 4 ms ago, and with the one before the time to live of the last job began.
    assert backend.get_state(brief).table()["value"].to_pylist() == [4, 5]


def test_a_key_in_the_slot_of_an_expired_one_has_not_its_time():
    now = 5
    backend = KeyedStateBackend(KEYS, clock=lambda: now)
    ttl = StateTtlConfig(timedelta(milliseconds=TTL))
    column = backend.get_state(ValueStateDescriptor("n", pa.int64(), ttl)).column
    backend.set_keys([pa.array([1])])
    slots = backend.current.batch.slots
    column.put(slots, pa.array([1]))
    column.drop(slots)
    column.set_ttl(None)
    column.put(slots, pa.array([2]))
    now += TTL + 1
    column.set_ttl(ttl)
    assert column.alive(slots).tolist() == [True]


def test_expired_state_frees_its_slots_with_the_next_snapshot():
    now = 0
    backend = KeyedStateBackend(KEYS, clock=lambda: now)
    ttl = StateTtlConfig(timedelta(seconds=1))
    state = backend.get_state(ValueStateDescriptor("v", pa.int64(), ttl))
    store = SnapshotFolder("task", fs._MockFileSystem())
    for number in range(20):
        keys = pa.array(range(number * 2000, number * 2000 + 2000), pa.int64())
        backend.set_keys([keys])
        state.put(keys)
        backend.snapshot(number).write(store)
        backend.complete(number)
        now += 1000
    assert backend.space.capacity <= 16384
    assert state.table().num_rows == 0


def test_times_to_live_are_checked():
    with pytest.raises(OptionError, match="below the limit"):
        StateTtlConfig(timedelta(microseconds=999))
    with pytest.raises(StateError, match="not known"):
        StateTtlConfig(timedelta(1), "never")


@pytest.mark.parametrize("kind", ["value", "text", "reducing", "list", "map"])
def test_expired_state_is_freed_without_snapshots(kind):
    now = [0]
    ttl = StateTtlConfig(timedelta(seconds=5))
    backend = KeyedStateBackend(KEYS, clock=lambda: now[0])
    state = backend.get_state(
        {
            "value": ValueStateDescriptor("s", pa.int64(), ttl=ttl),
            "text": ValueStateDescriptor("s", pa.string(), ttl=ttl),
            "reducing": ReducingStateDescriptor("s", "sum", pa.int64(), ttl=ttl),
            "list": ListStateDescriptor("s", pa.int64(), ttl=ttl),
            "map": MapStateDescriptor("s", pa.int64(), pa.int64(), ttl=ttl),
        }[kind]
    )
    for first in range(0, 200_000, 1000):
        now[0] += 1000
        keys = pa.array(range(first, first + 1000))
        backend.set_keys([keys])
        if kind == "map":
            state.put(keys, keys)
        elif kind in {"value", "text"}:
            state.put(keys.cast(state.column.type))
        else:
            state.add(keys)
    # At most 6,000 keys have state that has not expired.
    assert state.table().num_rows == 5000
    assert backend.space.capacity <= 1 << 15
    assert state.space.capacity <= 1 << 15


@pytest.mark.parametrize("how", ["snapshot", "sweep", "write"])
def test_what_has_expired_is_counted(how):
    now = [100]
    backend = KeyedStateBackend(KEYS, clock=lambda: now[0])
    ttl = StateTtlConfig(timedelta(milliseconds=TTL))
    value = backend.get_state(ValueStateDescriptor("v", pa.string(), ttl))
    total = backend.get_state(ReducingStateDescriptor("s", "sum", pa.int64(), ttl))
    items = backend.get_state(ListStateDescriptor("l", pa.int64(), ttl))
    entries = backend.get_state(MapStateDescriptor("m", pa.int64(), pa.int64(), ttl))
    lasting = backend.get_state(ValueStateDescriptor("lasting", pa.string()))

    def write():
        backend.set_keys([pa.array([1, 2, 1])])
        for one in (value, lasting):
            one.put(["a", "b"])
        total.add([1, 2, 3])
        items.add([1, 2, 3])
        entries.put([7, 7, 8], [1, 2, 3])

    write()
    assert backend.num_expired_values == 0
    now[0] += TTL
    if how == "snapshot":
        backend.snapshot(1)
    elif how == "sweep":
        backend.space.sweep()
        entries.space.sweep()
    else:
        write()
        items.expire()
    # Two values, two sums, three elements and three entries.
    assert backend.num_expired_values == 10
    backend.snapshot(2)
    assert backend.num_expired_values == 10
