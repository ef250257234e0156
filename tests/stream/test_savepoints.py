"""The state of all tasks as tables."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs

from headgate.errors import SnapshotError
from headgate.key_groups import key_group_range
from headgate.stream import (
    KeyedStateBackend,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    SnapshotFolder,
    ValueStateDescriptor,
    key_groups_of,
    read_savepoint,
)

KEYS = pa.schema([("user", pa.string()), ("n", pa.int64())])


def write(filesystem, numbers=(1,), tasks=3):
    rows = pa.RecordBatch.from_arrays(
        [pa.array([None if n % 10 == 0 else str(n % 4) for n in range(100)]), pa.array(range(100))],
        schema=KEYS,
    )
    groups = key_groups_of(rows, 32)
    for task in range(tasks):
        mine = key_group_range(task, tasks, 32)
        backend = KeyedStateBackend(KEYS, key_groups=mine, max_parallelism=32)
        some = rows.filter(pa.array((groups >= mine.start) & (groups < mine.stop)))
        backend.set_keys(some)
        backend.get_state(ValueStateDescriptor("v", pa.date32())).put(some["n"].cast(pa.int32()))
        backend.get_state(ReducingStateDescriptor("s", "sum", pa.int64())).add(some["n"])
        backend.get_state(ListStateDescriptor("l", pa.string())).add(some["user"])
        backend.get_state(MapStateDescriptor("m", pa.int8(), pa.float64())).put(
            np.ones(some.num_rows, np.int8), some["n"]
        )
        backend.event_timers.register(some["n"])
        for number in numbers:
            backend.snapshot(number).write(SnapshotFolder(f"op/{task}", filesystem))
            backend.complete(number)


def test_each_state_is_a_table_with_keys():
    filesystem = fs._MockFileSystem()
    write(filesystem)
    tables = read_savepoint("op", filesystem=filesystem)
    assert sorted(tables) == ["event timers", "l", "m", "s", "v"]
    columns = {name: table.schema.names[2:] for name, table in tables.items()}
    assert columns == {
        "event timers": ["timestamp"],
        "l": ["value"],
        "m": ["map_key", "value"],
        "s": ["value"],
        "v": ["value"],
    }
    for name, table in tables.items():
        assert table.schema.names[:2] == ["user", "n"]
        rows = table.sort_by("n")
        assert rows["n"].to_pylist() == list(range(100)), name
        users = [None if n % 10 == 0 else str(n % 4) for n in range(100)]
        assert rows["user"].to_pylist() == users
        last = rows.columns[-1].to_pylist()
        expected = {"l": [[user] for user in users], "v": last}.get(name, list(range(100)))
        assert last == expected
    assert tables["v"].schema.field("value").type == pa.date32()


def test_a_snapshot_is_chosen_by_its_number():
    filesystem = fs._MockFileSystem()
    write(filesystem, numbers=(1, 2))
    assert read_savepoint("op", filesystem=filesystem)["s"].num_rows == 100
    assert read_savepoint("op", filesystem=filesystem, snapshot=1)["s"].num_rows == 100
    assert read_savepoint(["op/0", "op/1", "op/2"], filesystem=filesystem)["s"].num_rows == 100
    with pytest.raises(SnapshotError, match="cannot be read"):
        read_savepoint("op", filesystem=filesystem, snapshot=3)
    filesystem.delete_file("op/1/0000000002.manifest")
    with pytest.raises(SnapshotError, match=r"different newest snapshots: \[1, 2\]"):
        read_savepoint("op", filesystem=filesystem)
    filesystem.delete_dir("op/1")
    with pytest.raises(SnapshotError, match="in 0 of the snapshots"):
        read_savepoint("op", filesystem=filesystem)
    with pytest.raises(SnapshotError, match="there is no snapshot in none"):
        read_savepoint("none", filesystem=filesystem)


def test_paths_and_uris_of_local_folders(tmp_path):
    write(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), tasks=1)
    for path in (str(tmp_path), (tmp_path / "op").as_uri()):
        assert read_savepoint(path)["m"].num_rows == 100
