"""Snapshots that are damaged, incomplete, or could not be written: an error, and never other state."""

import threading

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs
from tests.stream.test_snapshots import LAST, LONGS, PAIR, TOTAL, contents, folder, keyed

from headgate.errors import SnapshotError, StateError
from headgate.stream import KeyedStateBackend, SnapshotRetention


def test_every_changed_byte_of_every_file_is_an_error(tmp_path):
    backend = KeyedStateBackend(LONGS)
    store = folder(str(tmp_path), fs.LocalFileSystem())
    backend.set_keys(keyed(0, 50))
    backend.get_state(TOTAL).add(np.arange(50))
    backend.snapshot(1).write(store)
    backend.complete(1)
    backend.set_keys(keyed(0, 5))
    backend.get_state(LAST).put(pa.array([{"n": n, "s": "x"} for n in range(5)], PAIR))
    backend.snapshot(2).write(store)
    expected = contents(KeyedStateBackend.restore([(store, 2)]), [TOTAL, LAST])
    assert len(expected["total"]) == 50
    assert len(expected["last"]) == 5
    manifest = store.read_manifest(2)
    files = [tmp_path / "0000000002.manifest", *(tmp_path / name for name in manifest.names)]
    assert len(files) == 3
    for file in files:
        data = file.read_bytes()
        for at in range(0, len(data), max(1, len(data) // 60)):
            file.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
            with pytest.raises(SnapshotError, match=file.name):
                KeyedStateBackend.restore([(store, 2)])
        for other in (b"", data[:-1], data + b"x"):
            file.write_bytes(other)
            with pytest.raises(SnapshotError, match=file.name):
                KeyedStateBackend.restore([(store, 2)])
        file.unlink()
        with pytest.raises(SnapshotError, match=file.name):
            KeyedStateBackend.restore([(store, 2)])
        file.write_bytes(data)
    (tmp_path / "0000000002.manifest").write_bytes((tmp_path / "0000000001.manifest").read_bytes())
    with pytest.raises(SnapshotError, match="of snapshot 1"):
        KeyedStateBackend.restore([(store, 2)])


@pytest.mark.parametrize("damaged", [0, 1, 7])
def test_a_damaged_file_among_several_ends_the_threads_that_read(tmp_path, monkeypatch, damaged):
    monkeypatch.setattr("headgate.stream.state.files.FILE_BYTES", 1)
    backend = KeyedStateBackend(LONGS)
    store = folder(str(tmp_path), fs.LocalFileSystem())
    for number in range(1, 9):
        backend.set_keys(keyed(number, 50 + number))
        backend.get_state(TOTAL).add(np.arange(50) * number)
        backend.snapshot(number).write(store)
        backend.complete(number)
    expected = contents(backend, [TOTAL])
    assert contents(KeyedStateBackend.restore([(store, 8)]), [TOTAL]) == expected
    (files,) = (state.files for state in store.read_manifest(8).states)
    assert len(files) > 8
    file = tmp_path / files[damaged].name
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(SnapshotError, match=file.name):
        KeyedStateBackend.restore([(store, 8)])
    assert not [t.name for t in threading.enumerate() if t.name.startswith("headgate-restore")]


def test_a_write_that_fails_leaves_no_snapshot_and_the_next_one_has_its_changes(tmp_path):
    backend = KeyedStateBackend(LONGS)
    backend.set_keys(keyed(0, 50))
    backend.get_state(TOTAL).add(np.arange(50))
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(SnapshotError, match="cannot be written"):
        backend.snapshot(1).write(folder(str(blocked), fs.LocalFileSystem()))
    with pytest.raises(StateError, match="not written"):
        backend.complete(1)
    backend.abort(1)
    store = folder(str(tmp_path / "task"), fs.LocalFileSystem())
    backend.snapshot(2).write(store)
    assert contents(KeyedStateBackend.restore([(store, 2)]), [TOTAL]) == contents(backend, [TOTAL])


def test_retention_deletes_nothing_if_a_manifest_is_damaged(tmp_path):
    backend = KeyedStateBackend(LONGS)
    store = folder(str(tmp_path), fs.LocalFileSystem())
    for number in (1, 2):
        backend.set_keys(keyed(0, 50))
        backend.get_state(TOTAL).add(np.arange(50))
        backend.snapshot(number).write(store)
        backend.complete(number)
    (tmp_path / "0000000001.manifest").write_text("{}")
    before = store.names()
    with pytest.raises(SnapshotError, match=r"0000000001\.manifest"):
        SnapshotRetention(store).complete(2)
    assert store.names() == before
