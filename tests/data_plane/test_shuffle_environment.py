"""Contract of ShuffleEnvironment: options, what works after a close, its pool, and its statistics."""

import subprocess
import sys

import pytest
from plane import NUMBERS, Task, drain, numbers, open_gates

import headgate as hg

errors = hg.errors


def everything(producer):
    partition = producer.create_result_partition(1, schema=NUMBERS)
    gate = producer.create_input_gate([partition.address(0)], sealed=False)
    return partition, gate, hg.RecordWriter(partition), hg.RecordReader(gate), hg.BufferReader(gate)


USES = {
    "address": lambda e, p, g, w, r, b: e.address,
    "create_result_partition": lambda e, p, g, w, r, b: e.create_result_partition(1),
    "create_input_gate": lambda e, p, g, w, r, b: e.create_input_gate(),
    "partition.address": lambda e, p, g, w, r, b: p.address(0),
    "release_subpartition": lambda e, p, g, w, r, b: p.release_subpartition(0),
    "wait_consumed": lambda e, p, g, w, r, b: p.wait_consumed(5),
    "partition.fail": lambda e, p, g, w, r, b: p.fail("late"),
    "add_channel": lambda e, p, g, w, r, b: g.add_channel(ADDRESS),
    "seal": lambda e, p, g, w, r, b: g.seal(),
    "gate.fail": lambda e, p, g, w, r, b: g.fail("late"),
    "RecordWriter": lambda e, p, g, w, r, b: hg.RecordWriter(p, NUMBERS),
    "emit": lambda e, p, g, w, r, b: w.emit(numbers(1)),
    "broadcast_emit": lambda e, p, g, w, r, b: w.broadcast_emit(numbers(1)),
    "broadcast_event": lambda e, p, g, w, r, b: w.broadcast_event("late"),
    "flush": lambda e, p, g, w, r, b: w.flush(),
    "finish": lambda e, p, g, w, r, b: w.finish(),
    "next": lambda e, p, g, w, r, b: next(r),
    "next buffer": lambda e, p, g, w, r, b: next(b),
}
ADDRESS = hg.ChannelAddress("127.0.0.1", 1, bytes(16), 0, bytes(16))


@pytest.mark.parametrize("use", USES)
def test_nothing_works_in_a_closed_environment(environment, use):
    producer = environment()
    objects = everything(producer)
    producer.close()
    error = Task(USES[use], producer, *objects).error(5)
    assert isinstance(error, errors.ClosedError), repr(error)
    assert "closed" in str(error)


def test_every_close_may_come_twice(link):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    reader = hg.RecordReader(gate)
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(1))
    writer.finish()
    for _ in range(2):
        reader.close()
        gate.close()
        partition.close()
        consumer.close()
        producer.close()
    gate.close()
    partition.close()


def test_an_environment_that_was_never_used(environment):
    with environment() as unused:
        assert len(unused.process_id) == 16
        assert unused.process_id != environment().process_id
    with pytest.raises(errors.ClosedError):
        unused.create_input_gate()


@pytest.mark.parametrize("end", ["abort", "close"])
def test_the_end_of_an_environment_ends_every_call(link, end):
    producer, consumer = link(memory="1m")
    partition = producer.create_result_partition(2, schema=NUMBERS)
    gates = open_gates(partition, consumer)
    writer = hg.RecordWriter(partition, selector=lambda b: [0] * len(b))
    writing = Task(lambda: [writer.emit(numbers(10_000)) for _ in range(1000)])
    with pytest.raises(AssertionError, match="hangs"):
        writing.join(0.3)
    calls = [writing, Task(partition.wait_consumed), Task(drain, gates[1])]
    if end == "abort":
        producer.abort(RuntimeError("the run is over"))
    else:
        Task(producer.close).result(5)
    for call in calls:
        error = call.error(2)
        assert isinstance(error, hg.HeadgateError), repr(error)
        assert end == "close" or "the run is over" in str(error)


@pytest.mark.parametrize(
    "options",
    [
        {"secret": b"short"},
        {"secret": bytes(33)},
        {"exchange_id": b"short"},
        {"run": -1},
        {"epoch": 2**32},
        {"memory": 0},
        {"segment_size": 1000},
        {"listen": "nowhere"},
        {"max_record_size": 0},
    ],
    ids=str,
)
def test_options_outside_their_limits_are_refused(options):
    with pytest.raises(errors.OptionError) as caught:
        hg.ShuffleEnvironment(**options)
    assert next(iter(options)) in str(caught.value)


def test_directories_that_do_not_exist_are_refused_at_once(environment, tmp_path):
    with pytest.raises(errors.OptionError, match=r"temp_directories=.*missing.* does not exist"):
        environment(temp_directories=tmp_path / "missing")
    environment(temp_directories=[tmp_path / "missing", tmp_path])


@pytest.mark.parametrize("listen", ["203.0.113.1:0", "no.such.host.invalid:0"])
def test_an_address_that_cannot_be_listened_on(environment, listen):
    error = Task(lambda: environment(listen=listen).address).error()
    assert isinstance(error, errors.ConnectError)
    assert listen.split(":", maxsplit=1)[0] in str(error)


def test_a_pool_too_small_for_a_partition_says_the_numbers(environment):
    producer = environment(memory="1m", segment_size="64k")
    with pytest.raises(errors.PoolTooSmallError) as caught:
        producer.create_result_partition(100)
    text = str(caught.value)
    for words in ("101 segments", "of 16", "memory=", "segment_size="):
        assert words in text
    assert isinstance(caught.value, MemoryError)
    producer.create_result_partition(15).close()


def test_a_pool_too_small_for_a_gate_says_the_numbers(environment):
    producer, consumer = environment(), environment(memory="256k", segment_size="64k")
    partition = producer.create_result_partition(20, schema=NUMBERS)
    addresses = [partition.address(i) for i in range(20)]
    with pytest.raises(errors.PoolTooSmallError) as caught:
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


def test_channels_without_segments_of_their_own(environment):
    options = {"buffers_per_channel": 0, "floating_buffers_per_gate": 1}
    producer, consumer = environment(), environment(**options)
    partitions = [producer.create_result_partition(1, schema=NUMBERS) for _ in range(6)]
    gate = consumer.create_input_gate([partition.address(0) for partition in partitions])
    assert {channel["credit"] for channel in consumer.stats()["gates"][0]} == {0}
    reading = Task(drain, gate)

    def write(partition):
        with hg.RecordWriter(partition) as writer:
            for turn in range(50):
                writer.emit(numbers(100, 100 * turn))
                if turn % 7 == 0:
                    writer.flush()

    writing = [Task(write, partition) for partition in partitions]
    assert reading.result().num_rows == 6 * 5000
    for task in writing:
        task.result()


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


def test_nothing_is_committed_before_it_is_needed(environment):
    lazy = environment(memory="1g", segment_size="1m")
    assert lazy.stats()["segments"]["idle"] == 0
    assert lazy.stats()["peak_bytes"] == 0
    assert lazy.stats()["segments"]["total"] == 1024
