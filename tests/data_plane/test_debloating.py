"""Buffer sizes that a reader announces, or that follow its speed (spec 4.5, 12.1)."""

import pytest
from plane import NUMBERS, Task, numbers, open_gates, wait_until

import headgate as hg
from headgate import flink

SEGMENT = 64 << 10


def sizes_of(reader):
    return [batch.num_rows * 8 for batch in reader]


def came(partition):
    """Wait for a task event: everything its consumer sent before it has arrived too."""
    wait_until(lambda: partition._native.has_task_events)


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


def test_a_debloated_gate_begins_with_the_starting_size(link):
    """How the size follows its reader is in rust_core/exchange/src/gate/debloat/tests.rs."""
    producer, consumer = link(buffer_debloat_enabled=True, starting_segment_size="32k")
    partition = producer.create_result_partition(
        1, schema=NUMBERS, on_task_event={"said": lambda _event: None}
    )
    [gate] = open_gates(partition, consumer)
    metrics = consumer.stats()["metrics"]["gates"][0]
    assert metrics["debloatedBufferSize"] == 32 << 10
    assert isinstance(metrics["estimatedTimeToConsumeBuffersMs"], int)
    gate.send_task_event("said")
    came(partition)
    reading = Task(lambda: sizes_of(hg.RecordReader(gate)))
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(5_000))
    sizes = reading.result()
    assert sum(sizes) == 40_000
    assert max(sizes) <= 32 << 10


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
