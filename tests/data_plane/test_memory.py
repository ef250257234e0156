"""Bounded memory: back-pressure, kept batches, wide rows, pools that are too small, statistics."""

import subprocess
import sys
import time

import pyarrow as pa
import pytest
from plane import NUMBERS, Task, assert_same, drain, emit_all, exchange, numbers, open_gates

import headgate as hg

MIB = 1 << 20


def test_keeping_ten_times_the_pool(link):
    producer, consumer = link(memory="2m", segment_size="64k")
    count = 20 * MIB // 8
    batches = [numbers(10_000, start) for start in range(0, count, 10_000)]
    # A hash copies rows into pages. Without it a batch would reach a local reader as it is.
    by_hash = hg.HashSelector(["n"])
    [got] = exchange(producer, consumer, emit_all(*batches), schema=NUMBERS, selector=by_hash)
    assert_same(got, pa.Table.from_batches(batches))
    stats = consumer.stats()
    if link.kind == "kept":
        assert stats["copies"]["pool_low"] == 0, "a mapped file needs no pool"
    else:
        assert stats["copies"]["pool_low"] > 15 * MIB
    for environment in {producer, consumer}:
        assert environment.stats()["peak_bytes"] <= 2 * MIB


def test_a_slow_reader_holds_the_writer_back(link):
    producer, consumer = link(memory="1m", segment_size="64k")
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    emitted = []

    def produce():
        with hg.RecordWriter(partition) as writer:
            for turn in range(1000):
                writer.emit(numbers(1000, 1000 * turn))
                emitted.append(turn)

    writing = Task(produce)
    with pytest.raises(AssertionError, match="hangs"):
        writing.join(0.5)
    # 1 MiB on each side and the socket buffers, of 8 MB to write.
    assert len(emitted) < 800
    before = len(emitted)
    with pytest.raises(AssertionError, match="hangs"):
        writing.join(0.3)
    assert len(emitted) == before
    assert Task(drain, gate).result().num_rows == 1_000_000
    writing.result()


def test_a_writer_measures_its_back_pressure(link):
    producer, consumer = link(memory="1m", segment_size="64k")
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    writer = hg.RecordWriter(partition)
    writer.emit(numbers(1000))
    assert writer.back_pressured_ns() == 0
    writing = Task(lambda: (writer.emit(numbers(2_000_000)), writer.finish()))
    end = time.monotonic() + 10.0
    while not writer.back_pressured_ns():  # the counter includes a wait that is not over
        assert time.monotonic() < end
        time.sleep(0.01)
    assert Task(drain, gate).result().num_rows == 2_001_000
    writing.result()


def test_a_dropped_batch_gives_its_segment_back(link):
    producer, consumer = link(memory="1m", segment_size="64k")
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    reader = hg.RecordReader(gate)
    writer = hg.RecordWriter(partition)
    writer.emit(numbers(10))
    writer.flush()
    batch = Task(next, reader).result()
    column = batch.column(0)
    assert consumer.stats()["segments"]["pinned"] == 1
    del batch
    assert consumer.stats()["segments"]["pinned"] == 1  # the column still refers to it
    del column
    assert consumer.stats()["segments"]["pinned"] == 0
    writer.finish()
    assert Task(list, reader).result() == []


@pytest.mark.parametrize("size", [65_000, 65_536, 70_000, 1_000_000, 20_000_000])
def test_wide_rows(link, size):
    producer, consumer = link()
    text = "ü" + "x" * (size - 2)
    batch = pa.record_batch({"n": [1, 2, 3], "t": ["narrow", text, None]})
    [got] = exchange(producer, consumer, emit_all(batch, batch), schema=batch.schema)
    assert_same(got, [batch, batch])
    if size > 65_536:
        assert producer.stats()["copies"]["spanning"] >= 2 * size


def test_wide_rows_to_all_and_by_hash(link):
    producer, consumer = link()
    batch = pa.record_batch({"k": ["a", "b", "a"], "t": ["x" * 300_000, "y", "z" * 100_000]})

    def write(writer):
        writer.emit(batch)
        writer.broadcast_emit(batch)
        writer.emit(batch)

    got = exchange(
        producer, consumer, write, n=2, schema=batch.schema, selector=hg.HashSelector("k")
    )
    assert sum(table.num_rows for table in got) == 12
    table = pa.concat_tables(got).sort_by("k")
    assert table.column("k").to_pylist() == ["a"] * 8 + ["b"] * 4
    assert (
        sorted(map(len, table.column("t").to_pylist())) == [1] * 4 + [100_000] * 4 + [300_000] * 4
    )


def test_a_row_above_the_limit_loses_no_other(link):
    producer, consumer = link(max_record_size="100k")
    schema = pa.schema([("t", pa.string())])
    fine = pa.record_batch({"t": ["a", "b" * 80_000]})

    def write(writer):
        writer.emit(fine)
        with pytest.raises(hg.errors.RecordTooLargeError, match="102400") as caught:
            writer.emit(pa.record_batch({"t": ["x" * 200_000]}))
        assert "max_record_size" in str(caught.value)
        writer.emit(fine)

    [got] = exchange(producer, consumer, write, schema=schema)
    assert_same(got, [fine, fine])


def test_a_record_above_the_limit_loses_no_other(link):
    producer, consumer = link(max_record_size="100k")

    def write(writer):
        writer.emit(b"first")
        with pytest.raises(hg.errors.RecordTooLargeError):
            writer.emit(bytes(102_401))
        writer.emit(bytes(102_400))

    [got] = exchange(producer, consumer, write, serializer="bytes")
    assert got == [b"first", bytes(102_400)]


def test_a_reader_with_a_lower_limit_refuses_the_record(environment):
    producer, consumer = environment(), environment(max_record_size="100k")
    partition = producer.create_result_partition(1)
    [gate] = open_gates(partition, consumer)
    with hg.RecordWriter(partition, serializer="bytes") as writer:
        writer.emit(b"first")
        writer.emit(bytes(200_000))
    reader = hg.RecordReader(gate, serializer="bytes")
    assert Task(next, reader).result() == b"first"
    for _ in range(2):
        assert isinstance(Task(next, reader).error(5), hg.errors.RecordTooLargeError)


def test_segments_of_different_sizes(environment):
    large, small = environment(segment_size="256k"), environment(segment_size="32k")
    [got] = exchange(small, large, emit_all(numbers(100_000)), schema=NUMBERS)
    assert_same(got, numbers(100_000))
    partition = large.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, small)
    writing = Task(lambda: [hg.RecordWriter(partition).emit(numbers(100_000)) for _ in range(1)])
    error = Task(drain, gate).error(5)
    assert "segment_size" in str(error)
    partition.close()
    writing.outcome(5)


def test_a_pool_too_small_for_a_partition_says_the_numbers(environment):
    producer = environment(memory="1m", segment_size="64k")
    with pytest.raises(hg.errors.PoolTooSmallError) as caught:
        producer.create_result_partition(100)
    text = str(caught.value)
    assert "101 segments" in text
    assert "of 16" in text
    assert "memory=" in text
    assert "segment_size=" in text
    assert isinstance(caught.value, MemoryError)
    producer.create_result_partition(15).close()


def test_a_pool_too_small_for_a_gate_says_the_numbers(environment):
    producer, consumer = environment(), environment(memory="256k", segment_size="64k")
    partition = producer.create_result_partition(20, schema=NUMBERS)
    addresses = [partition.address(i) for i in range(20)]
    with pytest.raises(hg.errors.PoolTooSmallError) as caught:
        Task(consumer.create_input_gate, addresses).result(5)
    text = str(caught.value)
    assert "5 segments" in text
    assert "memory=" in text
    # The refused gate holds no segments.
    consumer.create_result_partition(3).close()


#: Emits when the address space has no room for another segment.
NO_ROOM = """
import resource
import headgate as hg
environment = hg.ShuffleEnvironment(memory="512m", segment_size="64m")
partition = environment.create_result_partition(1)
writer = hg.RecordWriter(partition, serializer="bytes", buffer_timeout=-1)
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (48 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    writer.emit(b"x")
except hg.errors.PoolTooSmallError as error:
    print(limit >> 10, error)
"""


def test_memory_that_the_kernel_refuses_is_an_error_with_pool_and_limits():
    command = [sys.executable, "-c", NO_ROOM]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.stdout, done.stderr
    limit, text = done.stdout.split(" ", 1)
    assert "no memory for the result partition: " in text
    assert f"another segment of {64 << 20} bytes" in text
    assert "0 of 8 segments in its pool, 0 of 8 in all" in text
    assert f"ulimit -v (address space): {limit} KiB" in text
    assert "memory.max (of the container): " in text


def test_as_many_channels_as_segments_work(environment):
    producer, consumer = environment(), environment(memory="512k", segment_size="64k")
    partition = producer.create_result_partition(8, schema=NUMBERS)
    gate = consumer.create_input_gate([partition.address(i) for i in range(8)])
    reading = Task(drain, gate)
    with hg.RecordWriter(partition, selector=lambda b: [i % 8 for i in range(len(b))]) as writer:
        for turn in range(20):
            writer.emit(numbers(8000, 8000 * turn))
    values = reading.result().column("n").to_pylist()
    assert sorted(values) == list(range(160_000))


def test_the_statistics_add_up(link):
    producer, consumer = link()
    partition = producer.create_result_partition(2, schema=NUMBERS)
    gates = open_gates(partition, consumer)
    writer = hg.RecordWriter(partition, selector=lambda b: [0, 1, 1] * (len(b) // 3))
    assert writer.stats() == (0, 0, 0)
    writer.emit(numbers(6000))
    writer.finish()
    rows, size, buffers = writer.stats()
    assert (rows, buffers) == (6000, 2)
    assert size >= 8 * 6000
    readers = [hg.RecordReader(gate) for gate in gates]
    for reader, expected in zip(readers, (2000, 4000), strict=True):
        assert sum(len(batch) for batch in Task(list, reader).result()) == expected
        assert reader.totals()[0] == expected
    assert sum(reader.totals()[1] for reader in readers) >= size
    stats = producer.stats()
    assert stats["copies"]["scatter"] == size
    assert stats["copies"]["spanning"] == 0
    [subpartitions] = stats["partitions"]
    assert [s["rows"] for s in subpartitions] == [2000, 4000]
    assert sum(s["bytes"] for s in subpartitions) == size
    assert [s["queued"] for s in subpartitions] == [0, 0]
    sent, received = stats["bytes_sent"], consumer.stats()["bytes_received"]
    if link.kind == "local":
        assert sent == received == 0
        assert stats["gates"][0][0]["credit"] is None
    else:
        carried = size - stats["lent"]["bytes"]
        assert carried < received <= sent < carried + 1000
        assert (stats["lent"]["buffers"] > 0) == (link.kind == "same_host")
    segments = stats["segments"]
    assert segments["size"] == 65536
    assert segments["total"] == 128
    assert segments["peak"] * segments["size"] == stats["peak_bytes"]
    assert segments["held"] + segments["pinned"] + segments["idle"] <= segments["total"]


def test_the_statistics_show_queues_and_credit(environment):
    producer, consumer = environment(), environment()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    [[channel]] = consumer.stats()["gates"]
    assert channel["credit"] >= 1
    assert partition.id.hex() in channel["name"]
    writer = hg.RecordWriter(partition)
    for _ in range(3):
        writer.emit(numbers(8000))
        writer.flush()
    assert Task(next, hg.RecordReader(gate)).result().num_rows > 0
    gate.close()
    gone = consumer.stats()["gates"]
    assert all(entry["queued"] == 0 for channels in gone for entry in channels)


def test_nothing_is_committed_before_it_is_needed(environment):
    lazy = environment(memory="1g", segment_size="1m")
    assert lazy.stats()["segments"]["idle"] == 0
    assert lazy.stats()["peak_bytes"] == 0
    assert lazy.stats()["segments"]["total"] == 1024
