"""Snapshots: what a restore has, what is written again, what is deleted, what is damaged."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs
from tests.kit import keys as k

from headgate.errors import SchemaMismatchError, SnapshotError, StateError
from headgate.key_groups import key_group_range
from headgate.stream import (
    KeyedStateBackend,
    ReducingStateDescriptor,
    SnapshotFolder,
    SnapshotRetention,
    ValueStateDescriptor,
    key_groups_of,
)

PAIR = pa.struct([("n", pa.int64()), ("s", pa.string())])
LAST = ValueStateDescriptor("last", PAIR)
DAY = ValueStateDescriptor("day", pa.date32())
TOTAL = ReducingStateDescriptor("total", "sum", pa.int64())
LONGS = k.SCHEMAS["long"]


def folder(path="task", filesystem=None):
    return SnapshotFolder(path, filesystem or fs._MockFileSystem())


def contents(backend, descriptors=(LAST, DAY, TOTAL)):
    """Return each state as a dict from keys to values."""
    found = {}
    for descriptor in descriptors:
        table = backend.get_state(descriptor).table()
        *keys, values = table.columns
        found[descriptor.name] = dict(
            zip(map(k.frozen, k.rows_of(keys)), values.to_pylist(), strict=True)
        )
    return found


class Model:
    """Random changes to three states, in a backend and in dicts."""

    def __init__(self, kind):
        self.kind = kind
        self.maps = {"last": {}, "day": {}, "total": {}}
        self.number = 0

    def change(self, backend, keys, clear):
        last, day, total = map(backend.get_state, (LAST, DAY, TOTAL))
        if not keys:
            return
        # As if all slots were taken.
        backend.space.sweep()
        backend.set_keys(k.batch(self.kind, keys))
        distinct = k.distinct(keys)
        self.number += 1
        if clear:
            last.clear()
            total.clear()
            for key in distinct:
                self.maps["last"].pop(key, None)
                self.maps["total"].pop(key, None)
            return
        values = [{"n": self.number, "s": f"{self.number}/{at}"} for at in range(len(distinct))]
        last.put(pa.array(values, PAIR))
        self.maps["last"].update(zip(distinct, values, strict=True))
        days = pa.array([self.number * 10 + at for at in range(len(distinct))], pa.int32())
        day.put(days.cast(pa.date32()))
        self.maps["day"].update(zip(distinct, days.cast(pa.date32()).to_pylist(), strict=True))
        total.add(np.arange(len(keys)))
        for at, key in enumerate(map(k.frozen, keys)):
            self.maps["total"][key] = self.maps["total"].get(key, 0) + at

    def copy(self):
        return {name: dict(values) for name, values in self.maps.items()}


steps = st.lists(
    st.sampled_from(
        ["change", "change", "clear", "freeze", "write", "complete", "abort", "savepoint"]
    ),
    max_size=25,
)
many_batches = st.sampled_from(k.KINDS).flatmap(
    lambda kind: st.tuples(
        st.just(kind), st.lists(st.lists(k.VALUES[kind], max_size=6), min_size=25, max_size=25)
    )
)


@settings(max_examples=40, deadline=None)
@given(many_batches, steps)
def test_a_snapshot_restores_what_was_there_when_it_was_frozen(given, steps):
    kind, batches = given
    filesystem = fs._MockFileSystem()
    store, savepoints = folder("task", filesystem), folder("savepoints", filesystem)
    retention = SnapshotRetention(store)
    backend = KeyedStateBackend(k.SCHEMAS[kind])
    model = Model(kind)
    frozen, written, completed = [], {}, -1
    for number, (step, keys) in enumerate(zip(steps, batches, strict=False)):
        waiting = sorted(n for n in written if n > completed)
        if step in {"change", "clear"}:
            model.change(backend, keys, step == "clear")
        elif step == "freeze":
            frozen.append((backend.snapshot(number), model.copy()))
        elif step == "savepoint":
            backend.snapshot(number, savepoint=True).write(savepoints)
            assert contents(KeyedStateBackend.restore([(savepoints, number)])) == model.copy()
        elif step == "write" and frozen:
            snapshot, expected = frozen.pop(len(keys) % len(frozen))
            snapshot.write(store)
            written[snapshot.number] = expected
        elif step == "complete" and waiting:
            completed = waiting[len(keys) % len(waiting)]
            backend.complete(completed)
            retention.complete(completed, backend.files_in_flight)
            frozen = [one for one in frozen if one[0].number > completed]
            written = {n: expected for n, expected in written.items() if n >= completed}
            assert store.snapshots() == sorted(written)
        elif step == "abort" and waiting:
            backend.abort(waiting[-1])
            retention.discard(waiting[-1])
            del written[waiting[-1]]
        elif step == "abort" and frozen:
            snapshot, _ = frozen.pop()
            backend.abort(snapshot.number)
            with pytest.raises(StateError, match="aborted"):
                snapshot.write(store)
        for n, expected in written.items():
            assert contents(KeyedStateBackend.restore([(store, n)])) == expected
    assert contents(backend) == model.copy()


def keyed(start, stop, step=1):
    return [pa.array(np.arange(start, stop, step))]


def test_updates_go_on_while_another_thread_writes():
    random = np.random.default_rng(7)
    backend = KeyedStateBackend(LONGS)
    store = folder()
    last, total = backend.get_state(LAST), backend.get_state(TOTAL)

    def change(turn):
        backend.set_keys([pa.array(random.integers(0, 15_000, 2000))])
        total.add(np.ones(2000, np.int64))
        n = len(backend.keys)
        texts = pa.array([str(turn)] * n)
        last.put(pa.StructArray.from_arrays([pa.array(np.full(n, turn)), texts], fields=list(PAIR)))
        if turn % 5 == 0:
            backend.set_keys([pa.array(random.integers(0, 15_000, 500))])
            total.clear()

    for turn in range(40):
        change(turn)
    for number in range(4):
        expected = contents(backend)
        snapshot = backend.snapshot(number)
        with ThreadPoolExecutor(1) as thread:
            written = thread.submit(snapshot.write, store)
            changes = 0
            while not written.done() or changes < 3:
                change(1000 * number + changes)
                changes += 1
            written.result()
        assert contents(KeyedStateBackend.restore([(store, number)])) == expected
        backend.complete(number)


def test_a_snapshot_has_only_the_rows_that_changed():
    backend = KeyedStateBackend(LONGS)
    store = folder()
    total = backend.get_state(TOTAL)
    backend.set_keys(keyed(0, 100_000))
    total.add(np.ones(100_000, np.int64))
    first = backend.snapshot(1)
    assert first.num_rows == 100_000
    files = first.write(store).names
    backend.complete(1)
    backend.set_keys(keyed(0, 1000, 10))
    total.add(np.ones(100, np.int64))
    backend.set_keys(keyed(5, 1000, 100))
    total.clear()
    second = backend.snapshot(2)
    assert second.num_rows == 110
    assert second.write(store).names > files
    backend.complete(2)
    nothing = backend.snapshot(3)
    assert nothing.num_rows == 0
    assert nothing.write(store).names == second.manifest.names
    restored = contents(KeyedStateBackend.restore([(store, 3)]), [TOTAL])["total"]
    assert len(restored) == 100_000 - 10
    assert sum(restored.values()) == 100_000 + 100 - 10


def of_ones(keys):
    """Return a backend whose total is 1 for each of so many keys, a folder, and the total."""
    backend = KeyedStateBackend(LONGS)
    total = backend.get_state(TOTAL)
    backend.set_keys(keyed(0, keys))
    total.add(np.ones(keys, np.int64))
    return backend, folder(), total


@pytest.mark.parametrize("aborted", [False, True])
def test_a_snapshot_has_the_changes_of_those_that_are_not_completed(aborted):
    backend, store, total = of_ones(100)
    backend.snapshot(1).write(store)
    backend.complete(1)
    backend.set_keys(keyed(0, 10))
    total.add(np.ones(10, np.int64))
    backend.set_keys(keyed(20, 30))
    total.clear()
    second = backend.snapshot(2)
    if aborted:
        backend.abort(2)
    else:
        second.write(store)
    backend.set_keys(keyed(10, 15))
    total.add(np.ones(5, np.int64))
    third = backend.snapshot(3)
    assert third.num_rows == 25
    third.write(store)
    expected = contents(backend, [TOTAL])
    assert contents(KeyedStateBackend.restore([(store, 3)]), [TOTAL]) == expected
    backend.complete(3)
    assert backend.snapshot(4).num_rows == 0


@pytest.mark.parametrize("savepoint", [False, True])
def test_keys_of_an_unwritten_snapshot_keep_their_slots(savepoint):
    backend, store, total = of_ones(10)
    expected = contents(backend, [TOTAL])
    snapshot = backend.snapshot(1, savepoint=savepoint)
    total.clear()
    backend.space.sweep()
    backend.set_keys(keyed(100, 120))
    total.add(np.ones(20, np.int64))
    snapshot.write(store)
    assert contents(KeyedStateBackend.restore([(store, 1)]), [TOTAL]) == expected


def test_a_key_that_a_snapshot_has_keeps_its_slot_until_a_later_one_says_that_it_is_gone():
    backend, store, total = of_ones(10)
    backend.snapshot(1).write(store)
    backend.complete(1)
    backend.set_keys(keyed(0, 5))
    total.clear()
    backend.space.sweep()
    backend.set_keys(keyed(100, 105))
    total.add(np.ones(5, np.int64))
    backend.snapshot(2).write(store)
    expected = contents(backend, [TOTAL])
    assert contents(KeyedStateBackend.restore([(store, 2)]), [TOTAL]) == expected
    backend.complete(2)
    backend.space.sweep()
    assert backend.space.num_keys == 10


def test_values_that_are_compacted_meanwhile_are_those_of_the_snapshot():
    text = ValueStateDescriptor("text", pa.string())
    backend = KeyedStateBackend(LONGS)
    store = folder()
    state = backend.get_state(text)
    backend.set_keys(keyed(0, 5000))
    state.put(pa.array(range(5000)).cast(pa.string()))
    # Compacting puts values in the order of their slots; these are in another one.
    backend.set_keys(keyed(0, 2000))
    state.put(pa.array([f"later {n}" for n in range(2000)]))
    expected = contents(backend, [text])
    held = state.column.values.num_held
    snapshot = backend.snapshot(1)
    for turn in range(20):
        # Slots of the second chunk only, so that nothing but compacting writes to the first.
        backend.set_keys(keyed(4400, 5000))
        state.put(pa.array([f"new {turn}"] * 600))
    assert state.column.values.num_held < held + 20 * 600
    snapshot.write(store)
    assert contents(KeyedStateBackend.restore([(store, 1)]), [text]) == expected


def test_files_that_an_unwritten_snapshot_builds_on_stay(monkeypatch):
    monkeypatch.setattr("headgate.stream.state.snapshot._FEW_ROWS", 0)
    backend = KeyedStateBackend(LONGS)
    store = folder()
    retention = SnapshotRetention(store)
    total = backend.get_state(TOTAL)
    backend.set_keys(keyed(0, 10))
    total.add(np.ones(10, np.int64))
    backend.snapshot(1).write(store)
    backend.complete(1)
    retention.complete(1)
    backend.set_keys(keyed(0, 8))
    total.clear()
    full = backend.snapshot(2)
    assert not full.builds_on
    backend.set_keys(keyed(10, 30))
    total.add(np.ones(20, np.int64))
    unwritten = backend.snapshot(3)
    assert unwritten.builds_on
    full.write(store)
    backend.complete(2)
    retention.complete(2, backend.files_in_flight)
    assert store.snapshots() == [2]
    unwritten.write(store)
    found = contents(KeyedStateBackend.restore([(store, 3)]), [TOTAL])
    assert found == contents(backend, [TOTAL])


def test_when_files_have_many_old_rows_all_are_written_anew():
    backend = KeyedStateBackend(LONGS)
    store = folder()
    retention = SnapshotRetention(store)
    total = backend.get_state(TOTAL)
    most = 0
    for number in range(8):
        backend.set_keys(keyed(0, 60_000))
        total.add(np.ones(60_000, np.int64))
        manifest = backend.snapshot(number).write(store)
        backend.complete(number)
        retention.complete(number)
        most = max(most, sum(file.rows for file in manifest.states[0].files))
    assert 60_000 < most <= 5 * 60_000
    assert len(store.names()) <= 6
    restored = contents(KeyedStateBackend.restore([(store, 7)]), [TOTAL])["total"]
    assert set(restored.values()) == {8}


def test_freezing_copies_nothing_until_somebody_writes():
    backend = KeyedStateBackend(LONGS)
    total = backend.get_state(TOTAL)
    backend.set_keys(keyed(0, 50_000))
    total.add(np.ones(50_000, np.int64))
    snapshot = backend.snapshot(1)
    frozen = snapshot._parts[0].frozen._frozen
    assert not frozen.copies
    backend.set_keys(keyed(0, 10))
    total.add(np.ones(10, np.int64))
    # 13 chunks of 4096 slots hold the keys, and one of them was written to.
    assert frozen._pending.sum() == 12
    backend.abort(1)


@pytest.mark.parametrize(("old", "new"), [(1, 3), (3, 1), (2, 5), (5, 2), (4, 4)])
@pytest.mark.parametrize("kind", ["long", "several"])
def test_another_parallelism(kind, old, new):
    most = 16
    random = np.random.default_rng(old * 10 + new)
    filesystem = fs._MockFileSystem()
    ids = random.integers(0, 300, 2000).astype(np.int32)
    columns = [pa.array(ids)]
    if kind == "several":
        names = pa.array([None if n % 7 == 0 else str(n % 3) for n in ids])
        columns = [*columns, names, pa.nulls(len(ids), pa.timestamp("us"))]
    else:
        columns = [columns[0].cast(pa.int64())]
    rows = pa.RecordBatch.from_arrays(columns, schema=k.SCHEMAS[kind])
    groups = key_groups_of(rows, most)

    def apply(backends, rows, groups):
        for backend in backends:
            mine = backend.scope.key_groups
            some = rows.filter(pa.array((groups >= mine.start) & (groups < mine.stop)))
            backend.set_keys(some)
            backend.get_state(TOTAL).add(np.ones(some.num_rows, np.int64))

    olds = [
        KeyedStateBackend(
            k.SCHEMAS[kind], key_groups=key_group_range(at, old, most), max_parallelism=most
        )
        for at in range(old)
    ]
    places = []
    for at, backend in enumerate(olds):
        apply([backend], rows.slice(0, 1000), groups[:1000])
        backend.snapshot(1).write(folder(f"{at}", filesystem))
        backend.complete(1)
        apply([backend], rows.slice(1000, 500), groups[1000:1500])
        backend.snapshot(2).write(folder(f"{at}", filesystem))
        places.append((folder(f"{at}", filesystem), 2))
    news = [
        KeyedStateBackend.restore(places, key_groups=key_group_range(at, new, most))
        for at in range(new)
    ]
    apply(news, rows.slice(1500), groups[1500:])
    expected = {}
    for key in map(k.frozen, k.rows_of(rows)):
        expected[key] = expected.get(key, 0) + 1
    found = [contents(backend, [TOTAL])["total"] for backend in news]
    assert sum(map(len, found)) == len(expected)
    assert {key: n for one in found for key, n in one.items()} == expected
    news[0].snapshot(3).write(folder("again", filesystem))


def test_structs_gain_fields():
    backend = KeyedStateBackend(LONGS)
    store = folder()
    backend.set_keys(keyed(0, 3))
    backend.get_state(LAST).put(pa.array([{"n": 1, "s": "a"}, {"n": None, "s": "b"}, None], PAIR))
    backend.snapshot(1).write(store)
    wider = pa.struct([("s", pa.string()), ("new", pa.list_(pa.int64())), ("n", pa.int64())])
    restored = KeyedStateBackend.restore([(store, 1)])
    state = restored.get_state(ValueStateDescriptor("last", wider))
    restored.set_keys(keyed(0, 3))
    values = [{"s": "a", "new": None, "n": 1}, {"s": "b", "new": None, "n": None}]
    assert state.get().to_pylist() == [*values, None]
    state.put(pa.array([values[1], {"s": "c", "new": [1], "n": 2}, None], wider))
    restored.snapshot(2).write(store)
    again = KeyedStateBackend.restore([(store, 2)])
    table = again.get_state(ValueStateDescriptor("last", wider)).table().sort_by("id")
    assert table["value"].to_pylist() == [values[1], {"s": "c", "new": [1], "n": 2}]
    for other in (
        pa.struct([("n", pa.int64())]),
        pa.struct([("n", pa.int32()), ("s", pa.string())]),
        pa.struct([*PAIR, pa.field("must", pa.int64(), nullable=False)]),
        pa.int64(),
    ):
        with pytest.raises(SchemaMismatchError, match="cannot become"):
            KeyedStateBackend.restore([(store, 1)]).get_state(ValueStateDescriptor("last", other))


def test_state_that_is_not_declared_is_kept():
    backend = KeyedStateBackend(LONGS)
    store = folder()
    backend.set_keys(keyed(0, 3))
    backend.get_state(TOTAL).add([1, 2, 3])
    backend.snapshot(1).write(store)
    restored = KeyedStateBackend.restore([(store, 1)])
    restored.snapshot(2).write(store)
    again = KeyedStateBackend.restore([(store, 2)])
    assert contents(again, [TOTAL]) == contents(backend, [TOTAL])


def test_snapshots_must_have_each_key_group_once():
    filesystem = fs._MockFileSystem()
    places = []
    for at in range(2):
        backend = KeyedStateBackend(LONGS, key_groups=key_group_range(at, 2, 128))
        backend.snapshot(1).write(folder(f"{at}", filesystem))
        places.append((folder(f"{at}", filesystem), 1))
    KeyedStateBackend.restore(places)
    with pytest.raises(SnapshotError, match="key group 64 is in 0 of"):
        KeyedStateBackend.restore(places[:1])
    with pytest.raises(SnapshotError, match="key group 0 is in 2 of"):
        KeyedStateBackend.restore([places[0], *places])
    KeyedStateBackend.restore(places[:1], key_groups=range(64))
    other = KeyedStateBackend(k.SCHEMAS["string"])
    other.snapshot(1).write(folder("other", filesystem))
    with pytest.raises(StateError, match="different keys"):
        KeyedStateBackend.restore([*places, (folder("other", filesystem), 1)])
    with pytest.raises(StateError, match="no snapshot"):
        KeyedStateBackend.restore([])


def test_numbers_of_snapshots_increase():
    backend = KeyedStateBackend(LONGS)
    backend.snapshot(5)
    with pytest.raises(StateError, match="follows snapshot 5"):
        backend.snapshot(5)
