"""Values in Arrow arrays: what a read and a snapshot cost depends on what they take, not on all there is."""

from itertools import accumulate

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.stream import (
    KeyedStateBackend,
    ListStateDescriptor,
    SnapshotFolder,
    ValueStateDescriptor,
)
from headgate.stream.state.values import take

MIB = 1 << 20
LENGTHS = st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any)


@settings(deadline=None)
@given(LENGTHS, st.data())
def test_values_at_positions_of_several_arrays(lengths, data):
    ends = list(accumulate(lengths))
    parts = tuple(
        pa.array([str(n) if n % 3 else None for n in range(end - length, end)], pa.string())
        for end, length in zip(ends, lengths, strict=True)
    )
    positions = np.array(data.draw(st.lists(st.integers(-1, ends[-1] - 1), min_size=1)))
    hidden = positions < 0
    hidden |= np.array(
        data.draw(st.lists(st.booleans(), min_size=len(hidden), max_size=len(hidden)))
    )
    if hidden.all():
        hidden[0], positions[0] = False, 0
    want = pa.chunked_array(parts).take(pa.array(positions, mask=hidden))
    assert take(parts, positions, hidden).equals(want.combine_chunks())


def test_more_strings_than_one_array_can_hold():
    part = pa.repeat(pa.scalar("x" * MIB), 256)
    got = take((part,) * 9, np.array([9 * 256 - 1, 0, 256]))
    assert got.to_pylist() == ["x" * MIB] * 3


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
