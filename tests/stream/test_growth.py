"""A job holds, and keeps in files, what its state needs, however long it has run."""

import pyarrow as pa
import pytest
from pyarrow import fs

from headgate.errors import SnapshotError, StateError
from headgate.stream import (
    KeyedStateBackend,
    ListStateDescriptor,
    SnapshotFolder,
    SnapshotRetention,
    ValueStateDescriptor,
)

MIB = 1 << 20
KEYS = pa.schema([("key", pa.int64())])


def folder():
    return SnapshotFolder("task", fs._MockFileSystem())


@pytest.mark.parametrize("empty_first", [False, True])
@pytest.mark.parametrize("kind", [ValueStateDescriptor, ListStateDescriptor])
def test_files_of_few_large_values_are_no_more_than_a_few_times_the_state(
    kind, empty_first, monkeypatch
):
    monkeypatch.setattr("headgate.stream.state.snapshot._FEW_BYTES", MIB)
    backend, store = KeyedStateBackend(KEYS), folder()
    retention = SnapshotRetention(store)
    state = backend.get_state(kind("large", pa.string()))
    backend.set_keys([pa.array(range(4))])
    most = 0
    for number in range(12):
        if number or not empty_first:
            if kind is ListStateDescriptor:
                state.clear()
                state.add(pa.array(["y" * MIB] * 4))
            else:
                state.put(pa.array(["y" * MIB] * 4))
        manifest = backend.snapshot(number).write(store)
        backend.complete(number)
        retention.complete(number, backend.files_in_flight)
        most = max(most, sum(file.size for file in manifest.states[0].files))
    assert 4 * MIB < most < 15 * MIB
    assert KeyedStateBackend.restore([(store, 11)]).states["large"].table().num_rows == 4


def test_files_of_a_state_that_only_grows_are_not_written_anew(monkeypatch):
    monkeypatch.setattr("headgate.stream.state.snapshot._FEW_BYTES", 1 << 16)
    backend, store = KeyedStateBackend(KEYS), folder()
    state = backend.get_state(ValueStateDescriptor("text", pa.string()))
    rows = 0
    for number in range(20):
        backend.set_keys([pa.array(range(number * 100, number * 100 + 100))])
        state.put(pa.array(["x" * 1000] * 100))
        snapshot = backend.snapshot(number)
        rows += snapshot.num_rows
        snapshot.write(store)
        backend.complete(number)
    assert rows == 2000


class Full:
    """A folder whose file system is full after some files."""

    def __init__(self, files):
        self.store = folder()
        write = self.store.write

        def limited(name, data):
            if len(self.store.names()) >= files:
                raise SnapshotError("the disk is full")
            write(name, data)

        self.store.write = limited


@pytest.mark.parametrize("files", [0, 1])
def test_a_snapshot_that_cannot_be_written_leaves_no_file(files):
    backend, store = KeyedStateBackend(KEYS), Full(files).store
    backend.set_keys([pa.array(range(4))])
    for name in "ab":
        backend.get_state(ValueStateDescriptor(name, pa.int64())).put(pa.array(range(4)))
    with pytest.raises(SnapshotError):
        backend.snapshot(1).write(store)
    assert store.names() == []


def test_a_snapshot_that_is_aborted_while_it_is_written_stops_and_leaves_no_file(monkeypatch):
    monkeypatch.setattr("headgate.stream.state.snapshot._BATCH_ROWS", 256)
    monkeypatch.setattr("headgate.stream.state.files.FILE_BYTES", 1)
    backend, store = KeyedStateBackend(KEYS), folder()
    backend.set_keys([pa.array(range(4096))])
    backend.get_state(ValueStateDescriptor("n", pa.int64())).put(pa.array(range(4096)))
    write, written = store.write, []

    def aborted(name, data):
        written.append(name)
        write(name, data)
        backend.abort(1)

    store.write = aborted
    with pytest.raises(StateError, match="aborted"):
        backend.snapshot(1).write(store)
    assert len(written) == 1
    assert store.names() == []


@pytest.mark.parametrize("file_bytes", [1 << 16, 1 << 30])
def test_of_state_that_fills_several_files_each_has_few_key_groups(file_bytes, monkeypatch):
    for module in ("files", "snapshot"):
        monkeypatch.setattr(f"headgate.stream.state.{module}.FILE_BYTES", file_bytes)
    monkeypatch.setattr("headgate.stream.state.snapshot._BATCH_ROWS", 512)
    backend, store = KeyedStateBackend(KEYS), folder()
    backend.set_keys([pa.array(range(30_000))])
    backend.get_state(ValueStateDescriptor("n", pa.int64())).put(pa.array(range(30_000)))
    files = backend.snapshot(1).write(store).states[0].files
    half = [file for file in files if file.first_group < 64]
    if file_bytes == 1 << 30:
        assert len(files) == 1
    else:
        assert len(files) > 6
        # Rows before their size is known are in two, and half of the others have half of the groups.
        assert len(half) <= len(files) / 2 + 2
    restored = [
        KeyedStateBackend.restore([(store, 1)], key_groups=groups).states["n"].table()
        for groups in (range(64), range(64, 128))
    ]
    assert sorted(pa.concat_tables(restored)["value"].to_pylist()) == [*range(30_000)]


def test_retention_remembers_only_the_snapshots_that_it_keeps():
    backend, store = KeyedStateBackend(KEYS), folder()
    retention = SnapshotRetention(store, 2)
    state = backend.get_state(ValueStateDescriptor("n", pa.int64()))
    for number in range(20):
        backend.set_keys([pa.array([1])])
        state.put(pa.array([number]))
        backend.snapshot(number).write(store)
        # Each third one is never completed.
        if number % 3:
            backend.complete(number)
            retention.complete(number, backend.files_in_flight)
    assert store.snapshots() == [17, 18, 19]
    assert retention._completed == {17, 19}


@pytest.mark.parametrize("others", [0, 1000])
def test_large_values_that_were_replaced_are_freed(others):
    backend = KeyedStateBackend(KEYS)
    state = backend.get_state(ValueStateDescriptor("text", pa.string()))
    backend.set_keys([pa.array(range(1, others + 1), pa.int64())])
    state.put(pa.array(["x"] * others, pa.string()))
    before = pa.total_allocated_bytes()
    backend.set_keys([pa.array([0])])
    for turn in range(100):
        state.put(pa.array([str(turn) * MIB]))
        assert pa.total_allocated_bytes() - before < 20 * MIB
    assert state.get().to_pylist() == ["99" * MIB]
    state.clear()
    assert pa.total_allocated_bytes() - before < MIB


def test_files_of_many_small_snapshots_do_not_pile_up(monkeypatch):
    monkeypatch.setattr("headgate.stream.state.snapshot._MOST_FILES", 4)
    backend, store = KeyedStateBackend(KEYS), folder()
    retention = SnapshotRetention(store)
    state = backend.get_state(ValueStateDescriptor("n", pa.int64()))
    backend.set_keys([pa.array(range(1000))])
    state.put(pa.array(range(1000)))
    rows = []
    for number in range(20):
        backend.set_keys([pa.array([number])])
        state.put(pa.array([-1]))
        snapshot = backend.snapshot(number)
        rows.append(snapshot.num_rows)
        snapshot.write(store)
        backend.complete(number)
        retention.complete(number, backend.files_in_flight)
        assert len(store.names()) <= 6
    assert rows == 4 * [1000, 1, 1, 1, 1]
    values = KeyedStateBackend.restore([(store, 19)]).states["n"].table()["value"].to_pylist()
    assert sorted(values) == 20 * [-1] + list(range(20, 1000))
