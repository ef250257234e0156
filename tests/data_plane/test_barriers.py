"""Barriers, priority events and the end of data (spec 4.3, 8.7, 9.4)."""

import re
import struct
from pathlib import Path

import pytest
import wire
from plane import SECRET, Task, wait_until

import headgate as hg
from headgate import _native


class Reading:
    """A reader in a thread of its own that notes records and events."""

    def __init__(self, gate):
        self.got = []
        note = lambda event: self.got.append((event.name, event.channel))  # noqa: E731
        self._reader = hg.RecordReader(gate, serializer="bytes", on_event=note)
        self.task = Task(self._run)

    def _run(self):
        for record in self._reader:
            self.got.append(record)

    def expect(self, *items):
        wait_until(lambda: len(self.got) >= len(items))
        assert self.got == list(items)


def opened(link, n=1):
    producer, consumer = link()
    partition = producer.create_result_partition(n)
    writer = hg.RecordWriter(partition, serializer="bytes")
    return partition, writer, [consumer.create_input_gate([partition.address(i)]) for i in range(n)]


def test_spec_4_08_a_barrier_blocks_the_records_behind_it(link):
    partition, writer, (gate,) = opened(link)
    reading = Reading(gate)
    writer.emit(b"before")
    writer.broadcast_event("barrier", is_barrier=True)
    writer.emit(b"behind")
    writer.broadcast_event("event")
    writer.finish()
    reading.expect(b"before", ("barrier", 0))
    with pytest.raises(AssertionError, match="hangs"):
        reading.task.join(0.2)
    reading.expect(b"before", ("barrier", 0))
    gate.resume_consumption(0)
    reading.task.result()
    reading.expect(b"before", ("barrier", 0), b"behind", ("event", 0))
    assert Task(partition.wait_consumed, 10).result()


def test_spec_4_08_a_reader_is_notified_after_the_resume(link):
    _, writer, (gate,) = opened(link)
    reading = Reading(gate)
    expected = []
    for turn in range(5):
        writer.broadcast_event("barrier", is_barrier=True)
        expected.append(("barrier", 0))
        reading.expect(*expected)
        gate.resume_consumption(0)
        writer.emit(b"%d" % turn)
        writer.flush()
        expected.append(b"%d" % turn)
        reading.expect(*expected)
    writer.finish()
    reading.task.result()


def test_spec_4_08_resuming_an_unblocked_channel_is_refused(link):
    _, writer, (gate,) = opened(link)
    with pytest.raises(hg.errors.ClosedError, match="not blocked"):
        gate.resume_consumption(0)
    with pytest.raises(hg.errors.ClosedError, match="no such channel"):
        gate.resume_consumption(1)
    writer.broadcast_event("barrier", is_barrier=True)
    Reading(gate).expect(("barrier", 0))
    gate.resume_consumption(0)
    with pytest.raises(hg.errors.ClosedError, match="not blocked"):
        gate.resume_consumption(0)


def test_one_blocked_channel_leaves_others_alone(link):
    _, writer, gates = opened(link, 2)
    readings = [Reading(gate) for gate in gates]
    writer.broadcast_event("barrier", is_barrier=True)
    for reading in readings:
        reading.expect(("barrier", 0))
    gates[1].resume_consumption(0)
    for _ in range(20):
        writer.emit(b"x")
    writer.finish()
    readings[1].task.result()
    readings[1].expect(("barrier", 0), *[b"x"] * 10)
    readings[0].expect(("barrier", 0))
    gates[0].resume_consumption(0)
    readings[0].task.result()


def test_closing_a_gate_releases_records_behind_a_barrier(link):
    partition, writer, (gate,) = opened(link)
    writer.broadcast_event("barrier", is_barrier=True)
    reading = Reading(gate)
    reading.expect(("barrier", 0))
    writer.emit(b"behind")
    writer.finish()
    gate.close()
    reading.task.error()
    assert Task(partition.wait_consumed, 10).result()


def test_a_priority_event_overtakes_records(link):
    _, writer, (gate,) = opened(link)
    for _ in range(3):
        writer.emit(b"x" * 60_000)
    writer.broadcast_event("ordinary")
    writer.broadcast_event("first", is_priority=True)
    writer.broadcast_event("second", is_priority=True)
    writer.finish()
    reading = Reading(gate)
    reading.task.result()
    events = [item[0] for item in reading.got if isinstance(item, tuple)]
    assert events == ["first", "second", "ordinary"]
    if link.kind == "local":  # no record had been polled before
        assert reading.got[0] == ("first", 0)


def announced(link, convert):
    """Read two records, a timeoutable barrier and a record behind it, all queued beforehand."""
    producer, consumer = link()
    partition = producer.create_result_partition(1)
    gate = consumer.create_input_gate([partition.address(0)])
    writer = hg.RecordWriter(partition, serializer="bytes")
    for record in (b"0", b"1"):
        writer.emit(record)
        writer.flush()
    writer.broadcast_event("barrier", b"body", is_barrier=True, is_timeoutable=True)
    writer.emit(b"behind")
    writer.finish()
    got = []

    def handle(event):
        got.append(event)
        if isinstance(event, hg.Event):
            gate.resume_consumption(event.channel)
        elif convert:
            assert gate.convert_to_priority(event.channel, event.sequence_number)
            assert not gate.convert_to_priority(event.channel, event.sequence_number)

    if link.kind != "local":  # the announcement has arrived, and everything before it
        wait_until(lambda: consumer.stats()["gates"][0][0]["queued"] >= 3)
    reader = hg.RecordReader(gate, serializer="bytes", on_event=handle)
    Task(lambda: [got.append(record) for record in reader]).result()
    return got


BARRIER = hg.Event(0, "barrier", b"body")


@pytest.mark.parametrize("convert", [False, True])
def test_spec_8_13_a_timeoutable_barrier_is_announced_and_overtakes_if_converted(link, convert):
    got = announced(link, convert)
    if link.kind != "local":
        announcement = got.pop(0)
        assert announcement.announced == BARRIER
        assert announcement.channel == 0
    overtakes = convert and link.kind != "local"
    assert got == (
        [BARRIER, b"0", b"1", b"behind"] if overtakes else [b"0", b"1", BARRIER, b"behind"]
    )


def test_spec_8_13_the_announcement_has_the_number_of_its_barrier(environment):
    partition = environment().create_result_partition(1)
    gate = environment().create_input_gate([partition.address(0)])
    with hg.RecordWriter(partition, serializer="bytes") as writer:
        writer.broadcast_event("ordinary")
        writer.broadcast_event("barrier", is_barrier=True, is_timeoutable=True)
    reader = hg.BufferReader(gate)
    buffers = [Task(next, reader).result() for _ in range(3)]
    kinds = hg.DataType
    by_number = sorted((one.sequence_number, one.data_type) for one in buffers)
    assert by_number == [
        (0, kinds.EVENT_BUFFER),
        (1, kinds.PRIORITIZED_EVENT_BUFFER),
        (1, kinds.TIMEOUTABLE_ALIGNED_CHECKPOINT_BARRIER),
    ]
    announcement = next(one for one in buffers if one.data_type.has_priority)
    barrier = next(one for one in buffers if one.data_type.requires_announcement)
    assert announcement.data == struct.pack(">ii", 6, 1) + barrier.data
    assert barrier.data_type.is_blocking_upstream
    assert not gate.convert_to_priority(0, 1)  # it was read
    gate.resume_consumption(0)
    assert Task(next, reader).result().data_type == kinds.END_OF_PARTITION


def test_priority_and_barrier_at_once_are_refused(link):
    _, writer, _ = opened(link)
    with pytest.raises(hg.errors.OptionError, match="is_barrier"):
        writer.broadcast_event("x", is_priority=True, is_barrier=True)
    with pytest.raises(hg.errors.OptionError, match="no barrier"):
        writer.broadcast_event("x", is_timeoutable=True)


def test_the_names_of_all_events_of_headgate_are_reserved():
    source = Path(__file__).parents[2] / "rust_core/record/src/event/message.rs"
    [body] = re.findall(
        r"pub enum Event \{(.*?)\n\}", source.read_text(encoding="utf-8"), re.DOTALL
    )
    events = set(re.findall(r"^    ([A-Z]\w+)", body, re.MULTILINE))
    assert "EndOfData" in events
    assert {name for name in events if _native.is_reserved_event(name)} == events - {"Custom"}


@pytest.mark.parametrize(
    "name",
    [
        "EndOfData(Drain)",
        "EndOfData",
        "EndOfSuperstep",
        "RecoveryMetadata { final_buffer_index: 1 }",
    ],
)
def test_an_event_of_the_user_cannot_have_the_name_of_one_of_headgate(environment, name):
    partition = environment().create_result_partition(1)
    writer = hg.RecordWriter(partition, serializer="bytes")
    with pytest.raises(
        hg.errors.OptionError, match="is the name of an event of Headgate"
    ) as caught:
        writer.broadcast_event(name)
    assert name in str(caught.value)
    for other in ("EndOfDataOfMine", "my EndOfData", ""):
        writer.broadcast_event(other)
    writer.finish()


def test_the_end_of_data_is_acknowledged(link):
    partition, writer, gates = opened(link, 2)
    readings = [Reading(gate) for gate in gates]
    writer.end_of_data()
    for reading in readings:
        reading.expect(("EndOfData(Drain)", 0))
    assert not partition.wait_all_data_processed(0.1)
    gates[0].acknowledge_all_records_processed(0)
    assert not partition.wait_all_data_processed(0.1)
    gates[1].acknowledge_all_records_processed(0)
    assert Task(partition.wait_all_data_processed).result()
    writer.broadcast_event("last")
    with pytest.raises(hg.errors.ClosedError, match="end of data"):
        writer.emit(b"late")
    with pytest.raises(hg.errors.ClosedError, match="before"):
        writer.end_of_data()
    writer.finish()
    for reading in readings:
        reading.task.result()
        reading.expect(("EndOfData(Drain)", 0), ("last", 0))


def test_a_consumer_that_is_gone_need_not_acknowledge(link):
    partition, writer, gates = opened(link, 2)
    writer.end_of_data("no_drain")
    reading = Reading(gates[0])
    reading.expect(("EndOfData(NoDrain)", 0))
    gates[0].acknowledge_all_records_processed(0)
    gates[1].close()
    assert Task(partition.wait_all_data_processed, 10).result()
    with pytest.raises(hg.errors.OptionError, match="half"):
        writer.end_of_data("half")


def test_a_resume_without_a_barrier_is_a_protocol_error(environment):
    partition = environment().create_result_partition(1)
    address = partition.address(0)
    link, _ = wire.consumer(address, SECRET)
    with link:
        link.send_frames(wire.partition_request(address))
        link.send_frames(wire.frame(7, struct.pack(">I", 5)))  # an unknown channel: ignored
        link.send_frames(wire.frame(12))  # a heartbeat
        link.send_frames(wire.frame(7, struct.pack(">I", 0)))
        answer = wire.receive(link, 17)
        assert struct.unpack(">IH", answer[9:15]) == (0xFFFFFFFF, 3004)
