"""Unions of gates, channels with unknown producers, and supersteps."""

import asyncio
import time

import pyarrow as pa
import pytest
from plane import NUMBERS, SECRET, Task, drain, numbers, wait_until

import headgate as hg
from headgate import flink


def bytes_partition(producer, *records):
    partition = producer.create_result_partition(1)
    with hg.RecordWriter(partition, serializer="bytes") as writer:
        for record in records:
            writer.emit(record)
    return partition


def test_a_union_reads_its_gates_to_the_end_of_all(link):
    producer, consumer = link()
    partitions = [bytes_partition(producer, b"%d" % number) for number in range(3)]
    gates = [consumer.create_input_gate([partition.address(0)]) for partition in partitions]
    union = flink.UnionInputGate(gates)
    assert union.num_channels == 3
    assert union.gates == gates
    reader = hg.RecordReader(union, serializer="bytes")

    async def read():
        return [record async for record in reader]

    assert sorted(Task(asyncio.run, read()).result()) == [b"0", b"1", b"2"]
    assert reader.is_finished
    for partition in partitions:
        assert Task(partition.wait_consumed, 10).result()


def test_a_failed_gate_fails_the_union_again_and_again(link):
    producer, consumer = link()
    good, bad = (producer.create_result_partition(1) for _ in range(2))
    gates = [consumer.create_input_gate([partition.address(0)]) for partition in (good, bad)]
    reader = hg.RecordReader(flink.UnionInputGate(gates), serializer="bytes")
    bad.fail("broken")
    for _ in range(3):
        error = Task(next, reader).error()
        assert "broken" in str(error)
    for gate in gates:
        gate.close()


def test_a_union_answers_the_channels_that_its_events_name(link):
    producer, consumer = link()
    partitions = [producer.create_result_partition(1) for _ in range(3)]
    first, second, third = (partition.address(0) for partition in partitions)
    gates = [consumer.create_input_gate(addresses) for addresses in ([first, second], [third])]
    union = flink.UnionInputGate(gates)
    writers = [hg.RecordWriter(partition, serializer="bytes") for partition in partitions]
    for writer in writers:
        writer.emit(b"before")
        writer.broadcast_event("barrier", is_barrier=True, is_timeoutable=True)
        writer.emit(b"behind")
        writer.end_of_data()
    got = []

    def handle(event):
        got.append((event.channel, type(event).__name__, getattr(event, "name", None)))
        if isinstance(event, hg.EventAnnouncement):
            assert union.convert_to_priority(event.channel, event.sequence_number)
        elif event.name == "barrier":
            union.resume_consumption(event.channel)
        else:
            union.acknowledge_all_records_processed(event.channel)

    if link.kind != "local":  # the announcements have arrived, and everything before them
        queued = lambda: [c["queued"] for gate in consumer.stats()["gates"] for c in gate]  # noqa: E731
        wait_until(lambda: min(queued()) >= 3)
    reader = hg.RecordReader(union, serializer="bytes", on_event=handle)
    records = [Task(next, reader).result() for _ in range(6)]
    assert sorted(records) == [b"before"] * 3 + [b"behind"] * 3
    for writer in writers:
        writer.finish()
    assert Task(list, reader).result() == []
    announced = [] if link.kind == "local" else [("EventAnnouncement", None)]
    expected = [*announced, ("Event", "barrier"), ("Event", "EndOfData(Drain)")]
    for channel in range(3):
        assert [event[1:] for event in got if event[0] == channel] == expected
    with pytest.raises(hg.errors.ClosedError, match="not blocked"):
        union.resume_consumption(2)
    with pytest.raises(hg.errors.ClosedError, match="no such channel"):
        union.resume_consumption(3)


def test_a_union_acknowledges_to_the_producer_of_a_channel(link):
    producer, consumer = link()
    partitions = [producer.create_result_partition(1) for _ in range(3)]
    gates = [consumer.create_input_gate([partition.address(0)]) for partition in partitions]
    union = flink.UnionInputGate(gates)
    writers = [hg.RecordWriter(partition, serializer="bytes") for partition in partitions]
    ended = []
    reading = Task(list, hg.RecordReader(union, serializer="bytes", on_event=ended.append))
    for writer in writers:
        writer.end_of_data()
    wait_until(lambda: len(ended) == 3)
    union.acknowledge_all_records_processed(1)
    assert Task(partitions[1].wait_all_data_processed).result()
    assert not partitions[0].wait_all_data_processed(0.1)
    assert not partitions[2].wait_all_data_processed(0.1)
    for writer in writers:
        writer.finish()
    reading.result()


@pytest.mark.parametrize(
    ("gates", "error"),
    [
        (lambda env: [], hg.errors.OptionError),
        (lambda env: [env.create_input_gate()], hg.errors.OptionError),
        (lambda env: [env.create_input_gate()] * 2, hg.errors.ClosedError),
        (
            lambda env: [env.create_input_gate(), env.create_input_gate(sealed=False)],
            hg.errors.ClosedError,
        ),
        (
            lambda env: [
                env.create_input_gate(),
                flink.UnionInputGate([env.create_input_gate(), env.create_input_gate()]),
            ],
            hg.errors.OptionError,
        ),
        (
            lambda env: [
                env.create_input_gate(schema=NUMBERS),
                env.create_input_gate(schema=pa.schema([("other", pa.utf8())])),
            ],
            hg.errors.SchemaMismatchError,
        ),
    ],
    ids=["none", "one", "twice", "not sealed", "nested", "two schemas"],
)
def test_invalid_unions(environment, gates, error):
    with pytest.raises(error):
        flink.UnionInputGate(gates(environment()))


def test_a_union_is_of_one_environment(environment):
    gates = [environment().create_input_gate(), environment().create_input_gate()]
    with pytest.raises(hg.errors.ClosedError, match="one environment"):
        flink.UnionInputGate(gates)


def test_a_channel_that_could_not_be_made_known_stays_unknown(environment):
    env = environment()
    gate = env.create_input_gate(sealed=False)
    assert gate.add_unknown_channel() == 0
    gate.seal()
    taken = bytes_partition(env, b"taken")
    other = env.create_input_gate([taken.address(0)])
    for _ in range(2):
        with pytest.raises(hg.errors.PartitionNotFoundError):
            gate.update_channel(0, taken.address(0))
    with pytest.raises(hg.errors.ClosedError, match="no channel"):
        gate.update_channel(1, taken.address(0))
    assert env.stats()["gates"][0][0]["name"] == "unknown channel"
    assert gate.update_channel(0, bytes_partition(env, b"mine").address(0))
    assert Task(drain, gate, serializer="bytes").result() == [b"mine"]
    assert Task(drain, other, serializer="bytes").result() == [b"taken"]


def test_a_gate_with_unknown_channels_can_be_closed(link):
    _, consumer = link()
    gate = consumer.create_input_gate(unknown=3, schema=NUMBERS)
    reading = Task(drain, gate)
    time.sleep(0.03)
    gate.close()
    assert isinstance(reading.error(), hg.errors.ClosedError)
    with pytest.raises(hg.errors.OptionError):
        consumer.create_input_gate(unknown=-1)


@pytest.mark.parametrize("union", [False, True], ids=["gate", "union"])
def test_supersteps_are_counted_across_channels(link, union):
    producer, consumer = link()
    partitions = [producer.create_result_partition(1, schema=NUMBERS) for _ in range(3)]
    addresses = [partition.address(0) for partition in partitions]
    if union:
        parts = addresses[:1], addresses[1:]
        gate = flink.UnionInputGate([consumer.create_input_gate(part) for part in parts])
    else:
        gate = consumer.create_input_gate(addresses)
    reader = flink.SuperstepReader(gate)

    def produce(index):
        with hg.RecordWriter(partitions[index]) as writer:
            # The first channel ends one superstep early; the last superstep does not wait for it.
            for step in range(4 if index else 3):
                writer.emit(numbers(2, 100 * step + 10 * index))
                flink.end_of_superstep(writer)

    writing = [Task(produce, index) for index in range(3)]

    def consume():
        steps = []
        while not reader.is_finished:
            with pytest.raises(hg.errors.ClosedError, match="superstep"):
                reader.start_next_superstep()
            steps.append(sorted(n for batch in reader for n in batch["n"].to_pylist()))
            if reader.has_reached_end_of_superstep:
                assert not reader.is_finished
                reader.start_next_superstep()
        return steps

    steps = Task(consume).result()
    for task in writing:
        task.result()
    expected = [
        sorted(100 * step + 10 * index + n for index in range(3) for n in range(2))
        for step in range(3)
    ]
    last = sorted(300 + 10 * index + n for index in (1, 2) for n in range(2))
    assert steps == [*expected, last, []]


def test_another_reader_gets_the_end_of_a_superstep_as_an_event_and_resumes_the_channel(link):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    gate = consumer.create_input_gate([partition.address(0)])
    heard = []

    def resume(event):
        heard.append(event.name)
        gate.resume_consumption(event.channel)

    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(2))
        flink.end_of_superstep(writer)
        writer.emit(numbers(2, 2))
    reader = hg.RecordReader(gate, on_event=resume)
    assert Task(reader.read_all).result()["n"].to_pylist() == [0, 1, 2, 3]
    assert heard == ["headgate.flink.end_of_superstep"]


def test_supersteps_need_a_gate_to_which_no_channel_is_added(environment):
    gate = environment().create_input_gate(sealed=False)
    with pytest.raises(hg.errors.ClosedError, match="sealed"):
        flink.SuperstepReader(gate)


def test_a_poll_ends_with_the_superstep(link):
    producer, consumer = link(secret=SECRET)
    partition = producer.create_result_partition(1)
    gate = consumer.create_input_gate([partition.address(0)])
    reader = flink.SuperstepReader(gate, serializer="bytes")
    writer = hg.RecordWriter(partition, serializer="bytes")
    writer.emit(b"one")
    flink.end_of_superstep(writer)
    got = []

    def poll():
        if (record := reader.poll_next()) is not None:
            got.append(record)
        return reader.has_reached_end_of_superstep

    wait_until(poll)
    assert got == [b"one"]
    assert reader.poll_next() is None
    reader.start_next_superstep()
    assert not reader.has_reached_end_of_superstep
    writer.finish()
    assert Task(list, reader).result() == []
    assert reader.is_finished
