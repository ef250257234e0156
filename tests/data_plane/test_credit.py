"""Credit on the wire, and channels without exclusive segments (spec 9)."""

import struct

import pytest
import wire
from plane import NUMBERS, SECRET, Task, drain, exchange, numbers

import headgate as hg

BACKLOG = 9


def read_frame(link):
    """Receive the next frame that is no heartbeat: its kind, fields and payload."""
    while True:
        head = wire.receive(link, 9)
        length, _, kind = struct.unpack(">IIB", head)
        rest = wire.receive(link, length - 9)
        if kind != 12:
            return kind, rest


def data_of(link):
    """Return the backlog and the type of a buffer."""
    kind, rest = read_frame(link)
    assert kind == 0
    _, _, _, backlog, data_type = struct.unpack(">IIIIB", rest[:17])
    return backlog, data_type


def served(environment, credit, pages):
    """Serve a partition with this many pages to a consumer with this much credit."""
    partition = environment().create_result_partition(1, schema=NUMBERS)
    writer = hg.RecordWriter(partition)
    for turn in range(pages):
        writer.emit(numbers(1, turn))
        writer.flush()
    link, _ = wire.consumer(partition.address(0), SECRET)
    schema = bytes(32)
    link.send_frames(wire.partition_request(partition.address(0), credit=credit, schema=schema))
    return partition, writer, link


def test_spec_9_04_data_stops_at_the_credit_and_events_pass(environment):
    _, writer, link = served(environment, 2, 3)
    with link:
        assert [data_of(link), data_of(link)] == [(2, wire.PAGE), (1, wire.PAGE)]
        writer.broadcast_event("overtakes", is_priority=True)
        assert data_of(link) == (1, 3)
        link.settimeout(0.2)
        with pytest.raises(TimeoutError):
            link.recv(1)
        link.settimeout(10)
        link.send_frames(wire.add_credit(1, 0))
        assert data_of(link) == (0, wire.PAGE)
        writer.finish()
        assert data_of(link) == (0, wire.END)
        link.send_frames(wire.cancel(0))


def test_spec_9_05_without_credit_the_backlog_is_announced(environment):
    partition, _, link = served(environment, 0, 2)
    with link:
        kind, rest = read_frame(link)
        assert (kind, struct.unpack(">II", rest[:8])) == (BACKLOG, (2, 0))
        link.send_frames(wire.add_credit(2, 0))
        assert [data_of(link), data_of(link)] == [(1, wire.PAGE), (0, wire.PAGE)]
        partition.fail("released")
        kind, rest = read_frame(link)
        assert kind == 1
        assert struct.unpack(">IH", rest[:6]) == (0, 6002)


def test_spec_9_08_nothing_is_sent_after_a_cancel(environment):
    partition, writer, link = served(environment, 1, 5)
    with link:
        assert data_of(link) == (4, wire.PAGE)
        link.send_frames(wire.cancel(0), wire.add_credit(4, 0))
        assert Task(partition.wait_consumed, 10).result()
        writer.emit(numbers(1))
        writer.finish()
        link.settimeout(0.2)
        with pytest.raises(TimeoutError):
            link.recv(1)


def test_a_resume_takes_back_the_credit_of_a_consumer_without_segments(environment):
    partition = environment().create_result_partition(1, schema=NUMBERS)
    writer = hg.RecordWriter(partition)
    link, _ = wire.consumer(partition.address(0), SECRET)
    link.send_frames(wire.partition_request(partition.address(0), credit=0), wire.add_credit(3, 0))
    with link:
        writer.broadcast_event("barrier", is_barrier=True)
        assert data_of(link) == (0, 4)
        writer.emit(numbers(1))
        writer.flush()
        link.send_frames(wire.frame(7, struct.pack(">I", 0)))
        kind, rest = read_frame(link)
        assert (kind, struct.unpack(">II", rest[:8])) == (BACKLOG, (1, 0))
        link.send_frames(wire.add_credit(1, 0))
        assert data_of(link) == (0, wire.PAGE)


def test_a_buffer_size_is_a_wish_for_the_next_buffers(environment):
    partition = environment().create_result_partition(1)
    writer = hg.RecordWriter(partition, serializer="bytes")
    link, _ = wire.consumer(partition.address(0), SECRET)
    with link:
        link.send_frames(
            wire.partition_request(partition.address(0), credit=50),
            wire.frame(10, struct.pack(">II", 10, 0)),
            wire.frame(10, struct.pack(">II", 10, 77)),  # an unknown channel: ignored
        )
        writer.broadcast_event("seen")
        assert data_of(link) == (0, 2)
        # A length precedes each record: 6 and 14 bytes, then 104 bytes that fit whole.
        for size in (2, 10, 100):
            writer.emit(bytes(size))
        writer.finish()
        sizes = []
        while True:
            kind, rest = read_frame(link)
            data_type, _, size = struct.unpack(">BBI", rest[16:22])
            if data_type == wire.END:
                break
            assert (kind, data_type) == (0, wire.DATA)
            sizes.append(size)
        assert sizes == [10, 10, 104]
        link.send_frames(wire.cancel(0))


@pytest.mark.parametrize("floating", [1, 8])
def test_channels_without_segments_of_their_own(environment, floating):
    options = {"buffers_per_channel": 0, "floating_buffers_per_gate": floating}
    producer, consumer = environment(), environment(**options)
    partitions = [producer.create_result_partition(1, schema=NUMBERS) for _ in range(6)]
    gate = consumer.create_input_gate([partition.address(0) for partition in partitions])
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


def test_streams_and_barriers_without_segments_of_their_own(environment):
    producer = environment()
    consumer = environment(buffers_per_channel=0, floating_buffers_per_gate=1)
    partitions = [producer.create_result_partition(1) for _ in range(3)]
    gate = consumer.create_input_gate([partition.address(0) for partition in partitions])
    resumed = []

    def go_on(event):
        resumed.append(event.channel)
        gate.resume_consumption(event.channel)

    reader = hg.RecordReader(gate, serializer="bytes", on_event=go_on)
    reading = Task(lambda: list(reader))

    def write(partition):
        with hg.RecordWriter(partition, serializer="bytes") as writer:
            for turn in range(20):
                writer.emit(bytes([turn]) * 30_000)
                writer.flush()  # a reader that was faster leaves an empty buffer
                if turn % 5 == 0:
                    writer.broadcast_event("barrier", is_barrier=True)

    for task in [Task(write, partition) for partition in partitions]:
        task.result()
    assert len(reading.result()) == 60
    assert sorted(resumed) == [0] * 4 + [1] * 4 + [2] * 4


def test_an_idle_channel_of_a_hybrid_partition_keeps_no_segment(link):
    producer, consumer = link(buffers_per_channel=0, floating_buffers_per_gate=2)
    partitions = [producer.create_result_partition(1, kind="hybrid") for _ in range(3)]
    gate = consumer.create_input_gate([partition.address(0) for partition in partitions])
    reader = hg.RecordReader(gate, serializer="bytes")
    writers = []
    for number, partition in enumerate(partitions):
        writers.append(hg.RecordWriter(partition, serializer="bytes"))
        writers[-1].emit(bytes([number]))
        writers[-1].flush()
        assert Task(next, reader).result() == bytes([number])
        # Ends a buffer that was read already: it is empty, and was promised by the backlog.
        writers[-1].broadcast_event("mark")
    for writer in writers:
        writer.finish()
    assert Task(list, reader).result() == []


def test_an_exchange_without_segments_of_their_own(environment):
    producer, consumer = environment(), environment(buffers_per_channel=0)
    tables = exchange(
        producer, consumer, lambda writer: writer.emit(numbers(50_000)), n=3, schema=NUMBERS,
        selector=hg.HashSelector(["n"]),
    )  # fmt: skip
    assert sum(table.num_rows for table in tables) == 50_000
