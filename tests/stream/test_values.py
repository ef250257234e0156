"""Values in Arrow arrays: what a read and a snapshot cost depends on what they take, not on all there is."""

from itertools import accumulate

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.stream import (
    KeyedStateBackend,
    ListStateDescriptor,
    SnapshotFolder,
    ValueStateDescriptor,
)
from headgate.stream.state.table import SlotTable
from headgate.stream.state.values import adopt_type, frozen_values, values_of

MIB = 1 << 20
LENGTHS = st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any)


@settings(deadline=None)
@given(LENGTHS, st.data())
def test_values_at_positions_of_several_arrays(lengths, data):
    ends = list(accumulate(lengths))
    parts = [
        pa.array([str(n) if n % 3 else None for n in range(end - length, end)], pa.string())
        for end, length in zip(ends, lengths, strict=True)
    ]
    positions = np.array(data.draw(st.lists(st.integers(0, ends[-1]), min_size=1)))
    places = pa.array(positions - 1, mask=positions == 0)
    want = pa.chunked_array(parts).take(places).combine_chunks()
    assert frozen_values(parts).take(positions).equals(want)


def test_more_strings_than_one_array_can_hold():
    values = frozen_values([pa.repeat(pa.scalar("x" * MIB), 256)] * 9)
    got = values.take(pa.array([9 * 256, 1, 257]))
    assert got.to_pylist() == ["x" * MIB] * 3


class Uuid(pa.ExtensionType):
    """A type of somebody else."""

    def __init__(self):
        super().__init__(pa.binary(2), "tests.uuid")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, data):
        return cls()


STRICT = pa.struct([pa.field("n", pa.int64(), nullable=False, metadata={"id": "1"})])
OF_TYPES = {
    "null": pa.nulls(2),
    "decimal": pa.array([None, 2], pa.decimal128(30, 2)),
    "fixed": pa.array([b"ab", None], pa.binary(2)),
    "interval": pa.array([None, (1, 2, 3)], pa.month_day_nano_interval()),
    "dictionary": pa.array(["a", None], pa.dictionary(pa.int8(), pa.string(), ordered=True)),
    "list": pa.array([[1, None], None], pa.list_(pa.field("of", pa.int64(), nullable=True))),
    "fixed list": pa.array([[1, 2], None], pa.list_(pa.int64(), 2)),
    "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    "extension": Uuid().wrap_array(pa.array([b"ab", None], pa.binary(2))),
    # Such nulls are against the type, and pyarrow lets them pass.
    "not null": pa.StructArray.from_arrays([pa.array([1, None])], fields=list(STRICT)),
    "lists not null": pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()),
        pa.array([1, None]),
        type=pa.list_(pa.field("item", pa.int64(), nullable=False)),
    ),
    "nested": pa.array([{"a": [{"b": "x"}]}, None]),
    "large": pa.array(["a", None], pa.large_string()),
}


def test_structs_get_fields_whatever_metadata_the_old_ones_have():
    table = SlotTable()
    table.grow(2)
    values = values_of(table, pa.struct([pa.field("n", pa.int64(), metadata={"id": "1"})]))
    values.put(np.array([0]), pa.array([{"n": 1}]))
    more = pa.struct([pa.field("n", pa.int64(), metadata={"id": "2"}), ("new", pa.string())])
    adopt_type(values, more)
    values.put(np.array([1]), pa.array([{"n": 2, "new": "x"}]))
    got = values.get(np.array([0, 1]), np.array([True, True]))
    assert got.to_pylist() == [{"n": 1, "new": None}, {"n": 2, "new": "x"}]


@pytest.mark.parametrize("name", OF_TYPES)
def test_values_of_all_types_stay_what_they_are(name):
    values = OF_TYPES[name]
    got = frozen_values([values] * 9).take(pa.array([2, 1, 18, 0, 17, 9]))
    assert got.type == values.type
    want = values.to_pylist()
    assert got.to_pylist() == [want[1], want[0], want[1], None, want[0], want[0]]


def test_a_read_and_a_snapshot_of_few_keys_take_no_memory_for_the_others(tmp_path):
    backend = KeyedStateBackend(pa.schema([("key", pa.int64())]))
    state = backend.get_state(ValueStateDescriptor("value", pa.string()))
    for first in range(0, 8000, 1000):
        backend.set_keys([pa.array(range(first, first + 1000))])
        state.put(pa.repeat(pa.scalar("x" * 8192), 1000))
    backend.snapshot(1).write(SnapshotFolder(str(tmp_path)))
    backend.complete(1)
    backend.set_keys([pa.array([0, 7999])])
    pool = pa.system_memory_pool()  # nothing else here uses it
    before = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        assert state.get().to_pylist() == ["x" * 8192] * 2
        state.put(pa.array(["y", "z"]))
        backend.snapshot(2).write(SnapshotFolder(str(tmp_path)))
    finally:
        pa.set_memory_pool(before)
    assert pool.max_memory() < MIB


def test_a_snapshot_of_large_values_has_batches_of_few_rows(tmp_path):
    backend = KeyedStateBackend(pa.schema([("key", pa.int64())]))
    values = backend.get_state(ValueStateDescriptor("value", pa.large_string()))
    lists = backend.get_state(ListStateDescriptor("list", pa.string()))
    backend.set_keys([pa.array(range(1500))])
    text = "x" * 80_000
    values.put(pa.repeat(pa.scalar(text, pa.large_string()), 1500))
    lists.add(pa.repeat(pa.scalar(text), 1500))
    backend.snapshot(1).write(SnapshotFolder(str(tmp_path)))
    files = list(tmp_path.glob("*.arrow"))
    batches = [
        reader.get_batch(at)
        for reader in map(pa.ipc.open_file, map(pa.memory_map, map(str, files)))
        for at in range(reader.num_record_batches)
    ]
    assert sum(batch.num_rows for batch in batches) == 3000
    assert max(batch.nbytes for batch in batches) < 40 * MIB


def test_a_snapshot_of_a_few_very_large_values_has_batches_of_few_rows(tmp_path):
    backend = KeyedStateBackend(pa.schema([("key", pa.int64())]))
    values = backend.get_state(ValueStateDescriptor("value", pa.string()))
    backend.set_keys([pa.array(range(80))])
    values.put(pa.repeat(pa.scalar("x" * MIB), 80))
    backend.snapshot(1).write(SnapshotFolder(str(tmp_path)))
    readers = [pa.ipc.open_file(pa.memory_map(str(path))) for path in tmp_path.glob("*.arrow")]
    sizes = [r.get_batch(at).num_rows for r in readers for at in range(r.num_record_batches)]
    assert sum(sizes) == 80
    assert max(sizes) <= 33
