"""Buffer sizes that a reader announces, or that follow its speed (spec 4.5, 12.1)."""

import threading
import time

import pyarrow as pa
import pytest
from plane import NUMBERS, Task, numbers, open_gates, wait_until
from test_waiting_requests import LATER, address_of

import headgate as hg
from headgate import flink

SEGMENT = 64 << 10


class Producer:
    """A writer in a thread that emits numbers until it is stopped."""

    def __init__(self, environment):
        self.partition = environment.create_result_partition(1, schema=NUMBERS)
        self._stop = threading.Event()
        self._writing = Task(self._write)

    def _write(self):
        count = 0
        with hg.RecordWriter(self.partition) as writer:
            while not self._stop.is_set():
                writer.emit(numbers(5_000, count))
                count += 5_000
        return count

    def stop(self):
        self._stop.set()

    def count(self):
        return self._writing.result()


def first(batches, fits, most=5_000):
    """Return all batches up to the first one whose size fits."""
    taken = []
    for batch in batches:
        taken.append(batch)
        if fits(batch.num_rows * 8):
            return taken
        assert len(taken) < most, "no batch of such a size arrives"
    raise AssertionError("the end came before it")


def in_order(batches):
    table = pa.Table.from_batches(batches)
    return table["n"].to_pylist() == list(range(table.num_rows))


def test_spec_4_11_batches_are_as_small_as_wished_and_large_again(link):
    producer, consumer = link()
    writing = Producer(producer)
    [gate] = open_gates(writing.partition, consumer)

    def read():
        batches = iter(hg.RecordReader(gate))
        taken = first(batches, lambda size: size > SEGMENT - 2048)
        gate.announce_buffer_size(4096)
        taken += first(batches, lambda size: size <= 4096)
        size = taken[-1].num_rows * 8
        gate.announce_buffer_size(2**40)
        taken += first(batches, lambda size: size > SEGMENT - 2048)
        writing.stop()
        return taken + list(batches), size

    taken, small = Task(read).result()
    assert 3_500 < small <= 4096
    assert in_order(taken)
    assert sum(batch.num_rows for batch in taken) == writing.count()


@pytest.mark.parametrize("size", [0, -5])
def test_spec_12_05_a_wish_is_a_byte_at_least(environment, size):
    env = environment()
    partition = env.create_result_partition(1, schema=NUMBERS)
    gates = [env.create_input_gate([partition.address(0)]), env.create_input_gate()]
    for gate in [gates[0], flink.UnionInputGate(gates)]:
        with pytest.raises(hg.errors.OptionError, match=f"size={size} is less than 1 byte"):
            gate.announce_buffer_size(size)


def sizes_of(reader):
    return [batch.num_rows * 8 for batch in reader]


def came(partition):
    """Wait for a task event: everything its consumer sent before it has arrived too."""
    wait_until(lambda: partition._native.has_task_events)


def test_spec_12_05_a_wish_waits_for_the_partition_with_its_request(link):
    producer, consumer = link()
    gate = consumer.create_input_gate([address_of(producer)], schema=NUMBERS)
    gate.announce_buffer_size(1024)
    gate.send_task_event("said")
    partition = producer.create_result_partition(
        1, schema=NUMBERS, partition_id=LATER, on_task_event={"said": lambda _event: None}
    )
    came(partition)
    reading = Task(lambda: sizes_of(hg.RecordReader(gate)))
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(5_000))
    sizes = reading.result()
    assert sum(sizes) == 40_000
    assert max(sizes) <= 1024


@pytest.mark.parametrize("kind", ["hybrid", "blocking"])
def test_partitions_that_may_go_to_disk_keep_their_sizes(environment, kind):
    producer, consumer = environment(), environment()
    partition = producer.create_result_partition(
        1, schema=NUMBERS, kind=kind, on_task_event={"said": lambda _event: None}
    )
    writer = hg.RecordWriter(partition, selector=hg.HashSelector(["n"]), buffer_timeout=-1)
    if kind == "blocking":
        writer.emit(numbers(40_000))
        writer.finish()
    [gate] = open_gates(partition, consumer)
    gate.announce_buffer_size(1024)
    gate.send_task_event("said")
    reading = Task(lambda: sizes_of(hg.RecordReader(gate)))
    came(partition)
    if kind == "hybrid":
        writer.emit(numbers(40_000))
        writer.finish()
    sizes = reading.result()
    assert sum(sizes) == 320_000
    assert max(sizes) > SEGMENT - 2048


def test_a_wish_goes_to_the_producers_of_all_gates_of_a_union(link):
    producer, consumer = link()
    noted = {"said": lambda _event: None}
    create = producer.create_result_partition
    partitions = [create(1, schema=NUMBERS, on_task_event=noted) for _ in range(2)]
    gates = [consumer.create_input_gate([partition.address(0)]) for partition in partitions]
    union = flink.UnionInputGate(gates)
    union.announce_buffer_size(2048)
    union.send_task_event("said")
    reading = Task(lambda: sizes_of(hg.RecordReader(union)))
    for partition in partitions:
        came(partition)
        with hg.RecordWriter(partition) as writer:
            writer.emit(numbers(5_000))
    sizes = reading.result()
    assert sum(sizes) == 80_000
    assert max(sizes) <= 2048


def test_a_debloated_gate_begins_small_and_follows_its_reader(link):
    producer, consumer = link(
        buffer_debloat_enabled=True,
        buffer_debloat_target="10ms",
        buffer_debloat_period="10ms",
        buffer_debloat_samples=1,
        buffer_debloat_threshold_percentages=10,
        starting_segment_size="32k",
        min_segment_size="2k",
    )
    writing = Producer(producer)
    [gate] = open_gates(writing.partition, consumer)

    def gauge():
        return consumer.stats()["metrics"]["gates"][0]["debloatedBufferSize"]

    def read():
        begun = gauge()
        batches = iter(hg.RecordReader(gate))
        taken = []
        for batch in batches:
            taken.append(batch)
            if batch.num_rows * 8 <= 4096:
                break
            time.sleep(0.02)  # a slow reader: 32 KiB per 20 ms are 16 KiB within the target
        writing.stop()
        for batch in batches:
            taken.append(batch)
            time.sleep(0.001)
        return begun, taken

    begun, taken = Task(read).result()
    assert begun == 32 << 10
    assert in_order(taken)
    assert sum(batch.num_rows for batch in taken) == writing.count()
    time_to_consume = consumer.stats()["metrics"]["gates"][0]["estimatedTimeToConsumeBuffersMs"]
    assert isinstance(time_to_consume, int)
    assert time_to_consume >= 0


def test_without_the_option_there_is_no_gauge(environment):
    env = environment()
    gate = env.create_input_gate()
    assert env.stats()["metrics"]["gates"][0]["debloatedBufferSize"] == 0
    gate.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"min_segment_size": "128k"}, "min_segment_size=128k is larger than segment_size=64k"),
        ({"starting_segment_size": "128k"}, "starting_segment_size=128k is larger than segment"),
        (
            {"min_segment_size": "4k", "starting_segment_size": "2k"},
            "min_segment_size=4k is larger than starting_segment_size=2k",
        ),
        ({"buffer_debloat_samples": 0}, "buffer_debloat_samples=0 is below the limit of 1"),
    ],
)
def test_sizes_that_do_not_fit_each_other_are_refused(environment, options, said):
    with pytest.raises(hg.errors.OptionError, match=said):
        environment(buffer_debloat_enabled=True, **options)
