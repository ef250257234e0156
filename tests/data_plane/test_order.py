"""Order within a channel, fairness between channels, events among records, flushes."""

import pyarrow as pa
import pytest
from plane import NUMBERS, Task, assert_same, drain, exchange, numbers, open_gates, wait_until

import headgate as hg


def test_each_channel_in_order(link):
    producer, consumer = link(memory="16m")
    partitions = [producer.create_result_partition(1, schema=NUMBERS) for _ in range(4)]
    gate = consumer.create_input_gate([p.address(0) for p in partitions])

    def produce(partition, base):
        with hg.RecordWriter(partition) as writer:
            for turn in range(300):
                writer.emit(numbers(100, base + 100 * turn))
                if turn % 7 == 0:
                    writer.flush()

    writing = [Task(produce, p, i * 1_000_000) for i, p in enumerate(partitions)]
    values = Task(drain, gate).result().column("n").to_pylist()
    for task in writing:
        task.result()
    for index in range(4):
        ours = [v for v in values if v // 1_000_000 == index]
        assert ours == list(range(index * 1_000_000, index * 1_000_000 + 30_000))


def test_channels_with_data_are_served_in_turn(link):
    producer, consumer = link(memory="16m")
    partitions = [producer.create_result_partition(1, schema=NUMBERS) for _ in range(3)]
    gate = consumer.create_input_gate([p.address(0) for p in partitions])
    # As many buffers as the initial credit, so that all of them reach the gate before it is read.
    for index, partition in enumerate(partitions):
        with hg.RecordWriter(partition) as writer:
            for turn in range(2):
                writer.emit(numbers(1, 10 * index + turn))
                writer.flush()
    if link.kind != "local":
        # The end of a partition counts too, so two channels alone could reach the sum of all.
        wait_until(lambda: min(c["queued"] for c in consumer.stats()["gates"][0]) >= 2)
    order = [batch["n"][0].as_py() // 10 for batch in Task(list, hg.RecordReader(gate)).result()]
    assert sorted(order[:3]) == [0, 1, 2]
    assert sorted(order[3:]) == [0, 1, 2]


def test_a_busy_channel_does_not_starve_another(link):
    producer, consumer = link()
    busy, calm = (producer.create_result_partition(1, schema=NUMBERS) for _ in range(2))
    gate = consumer.create_input_gate([busy.address(0), calm.address(0)])
    reader = hg.RecordReader(gate)

    def flood():
        with hg.RecordWriter(busy) as writer:
            for _ in range(3000):
                writer.emit(numbers(100))
                writer.flush()

    writing = Task(flood)
    Task(next, reader).result()
    with hg.RecordWriter(calm) as writer:
        writer.emit(numbers(1, -5))
    if link.kind != "local":
        wait_until(lambda: consumer.stats()["gates"][0][1]["queued"] > 0)
    seen = []
    while not seen or seen[-1] >= 0:
        seen.append(Task(next, reader).result()["n"][0].as_py())
    assert len(seen) <= 40
    gate.close()
    writing.result()


def test_events_stay_in_their_place(link):
    producer, consumer = link()
    got = []

    def write(writer):
        for turn in range(10):
            writer.emit(numbers(3, 3 * turn))
            writer.broadcast_event("turn", bytes([turn]))
        writer.broadcast_event("", b"")
        writer.broadcast_event("last ü", b"\0" * 1000)

    partition = producer.create_result_partition(2, schema=NUMBERS)
    gates = open_gates(partition, consumer)
    with hg.RecordWriter(partition, selector=hg.BroadcastSelector()) as writer:
        write(writer)
    for gate in gates:
        got = []
        for batch in hg.RecordReader(gate, on_event=got.append):
            got.append(batch["n"].to_pylist())
        expected = []
        for turn in range(10):
            expected += [[3 * turn, 3 * turn + 1, 3 * turn + 2], (0, "turn", bytes([turn]))]
        assert got == [*expected, (0, "", b""), (0, "last ü", b"\0" * 1000)]


@pytest.mark.parametrize("serializer", ["bytes", "pickle"])
def test_events_among_records(link, serializer):
    producer, consumer = link()
    seen = []

    def write(writer):
        writer.emit(b"one")
        writer.emit(b"x" * 200_000)
        writer.broadcast_event("between", b"body")
        writer.emit(b"two")

    [got] = exchange(producer, consumer, write, serializer=serializer, on_event=seen.append)
    assert got == [b"one", b"x" * 200_000, b"two"]
    assert seen == [hg.Event(0, "between", b"body")]


def test_events_without_a_handler_are_dropped(link):
    producer, consumer = link()

    def write(writer):
        writer.broadcast_event("a", b"")
        writer.emit(numbers(3))
        writer.broadcast_event("b", b"")

    [got] = exchange(producer, consumer, write, schema=NUMBERS)
    assert_same(got, numbers(3))


def test_events_pass_without_credit(link):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    writer = hg.RecordWriter(partition)

    def produce():
        for number in range(5000):
            writer.broadcast_event("n", b"%d" % number)
        writer.finish()

    writing = Task(produce)
    seen = []
    assert Task(list, hg.RecordReader(gate, on_event=seen.append)).result() == []
    writing.result()
    assert [event.body for event in seen] == [b"%d" % number for number in range(5000)]


def test_an_event_that_is_too_large_is_refused(environment):
    producer = environment()

    def write(writer):
        writer.emit(numbers(3))
        with pytest.raises(hg.HeadgateError):
            writer.broadcast_event("n" * 70_000, b"")
        with pytest.raises(hg.HeadgateError):
            writer.broadcast_event("n", b"x" * 1_000_000)
        writer.emit(numbers(3, 3))

    [got] = exchange(producer, environment(), write, schema=NUMBERS)
    assert_same(got, numbers(6))


def test_flush_shows_pages_that_are_not_full(link):
    producer, consumer = link()
    partition = producer.create_result_partition(2, schema=NUMBERS)
    gates = open_gates(partition, consumer)
    got = [[], []]
    readers = [
        Task(lambda g=gate, into=into: into.extend(hg.RecordReader(g)))
        for gate, into in zip(gates, got, strict=True)
    ]
    writer = hg.RecordWriter(partition, selector=hg.BroadcastSelector())
    for turn in range(3):
        writer.emit(numbers(2, 2 * turn))
        writer.flush()
        wait_until(lambda t=turn: [len(batches) for batches in got] == [t + 1, t + 1])
    writer.flush()
    writer.finish()
    for reader in readers:
        reader.result()
    for batches in got:
        assert_same(pa.Table.from_batches(batches), numbers(6))


def test_without_a_flush_small_batches_share_a_page(link):
    producer, consumer = link(buffer_timeout=-1)
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    with hg.RecordWriter(partition) as writer:
        for number in range(1000):
            writer.emit(numbers(1, number))
    batches = Task(list, hg.RecordReader(gate)).result()
    assert len(batches) == 1
    assert_same(batches[0], numbers(1000))


def test_raw_buffers_and_events(link):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(5))
        writer.broadcast_event("mark", b"body")
    page, event, end = Task(list, hg.BufferReader(gate)).result()
    assert (page.data_type, event.data_type, end.data_type) == (8, 2, 10)
    assert page.data[:4] == b"HDGP"
    assert event.data.startswith(b"\0\0\0\3")
    assert b"mark" in event.data
    assert end.data[:12] == b"\0\0\0\0" + (5).to_bytes(8, "big")
    assert int.from_bytes(end.data[12:20], "big") == len(page.data)
    assert {buffer.channel for buffer in (page, event, end)} == {0}
