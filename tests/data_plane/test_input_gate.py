"""Contract of InputGate: channels, sealing, barriers that block a channel, failures and closing."""

import dataclasses
import socket

import pyarrow as pa
import pytest
from plane import NUMBERS, Task, assert_same, drain, numbers, open_gates, wait_until

import headgate as hg
from headgate import flink

errors = hg.errors


def filled(producer, count, start=0):
    """Return a finished partition with this many rows."""
    partition = producer.create_result_partition(1, schema=NUMBERS)
    with hg.RecordWriter(partition) as writer:
        writer.emit(numbers(count, start))
    return partition


def read_at(consumer, address):
    """Return the task that opens a gate for this address and reads it."""
    return Task(lambda: drain(consumer.create_input_gate([address])))


def test_a_sealed_gate_without_channels_ends_at_once(environment):
    gate = environment().create_input_gate(schema=NUMBERS)
    assert Task(drain, gate).result().num_rows == 0


def test_a_reader_waits_for_the_seal_and_not_longer(environment):
    producer, consumer = environment(), environment()
    gate = consumer.create_input_gate(sealed=False, schema=NUMBERS)
    gate.add_channel(filled(producer, 5).address(0))
    assert gate.num_channels == 1
    reading = Task(drain, gate)
    with pytest.raises(AssertionError, match="hangs"):
        reading.join(0.3)
    gate.seal()
    assert_same(reading.result(5), numbers(5))


def test_add_channel_returns_the_index_of_the_channel(environment):
    env = environment()
    gate = env.create_input_gate([filled(env, 1).address(0)], unknown=1, sealed=False)
    assert gate.add_channel(filled(env, 1).address(0)) == 2
    assert gate.end_of_data_status is hg.EndOfDataStatus.NOT_END_OF_DATA


def test_a_sealed_gate_takes_no_channel(environment):
    producer, consumer = environment(), environment()
    partition = filled(producer, 5)
    gate = consumer.create_input_gate(schema=NUMBERS)
    for _ in range(300):
        with pytest.raises(errors.ClosedError, match="sealed"):
            gate.add_channel(partition.address(0))
    assert Task(drain, gate).result().num_rows == 0
    # Refused channels were promised nothing, so the whole pool is free.
    consumer.create_result_partition(consumer.stats()["segments"]["total"] - 1).close()


def test_a_closed_gate_takes_no_channel(link):
    producer, consumer = link()
    gate = consumer.create_input_gate(sealed=False, schema=NUMBERS)
    gate.close()
    with pytest.raises(errors.ClosedError):
        gate.add_channel(filled(producer, 5).address(0))


def test_a_refused_channel_does_not_keep_the_gate_from_ending(environment):
    producer = environment()
    taken, good = filled(producer, 5), filled(producer, 7)
    other = producer.create_input_gate([taken.address(0)])
    gate = producer.create_input_gate(sealed=False, schema=NUMBERS)
    with pytest.raises(hg.HeadgateError):
        gate.add_channel(taken.address(0))
    gate.add_channel(good.address(0))
    gate.seal()
    assert_same(Task(drain, gate).result(5), numbers(7))
    assert_same(Task(drain, other).result(5), numbers(5))


def test_the_schema_comes_with_the_address_and_is_checked(environment):
    producer, consumer = environment(), environment()
    other = producer.create_result_partition(1, schema=pa.schema([("n", pa.float64())]))
    gate = consumer.create_input_gate([filled(producer, 3).address(0)], sealed=False)
    assert gate.schema == NUMBERS
    with pytest.raises(errors.SchemaMismatchError) as caught:
        gate.add_channel(other.address(0))
    assert "double" in str(caught.value)
    assert "int64" in str(caught.value)
    gate.seal()
    assert_same(Task(drain, gate).result(), numbers(3))


def test_a_second_reader_learns_that_it_is_taken(link):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    writer = hg.RecordWriter(partition)
    [gate] = open_gates(partition, consumer)
    reader = hg.RecordReader(gate)
    writer.emit(numbers(1))
    writer.flush()
    assert Task(next, reader).result().num_rows == 1
    error = read_at(consumer, partition.address(0)).error(5)
    assert isinstance(error, errors.PartitionNotFoundError), repr(error)
    assert "reader already" in str(error)
    writer.finish()
    assert Task(list, reader).result() == []


@pytest.mark.parametrize("field", ["partition_id", "subpartition"])
def test_partitions_that_do_not_exist(link, field):
    producer, consumer = link(partition_request_timeout="100ms")
    wrong = {"partition_id": bytes(16), "subpartition": 7}[field]
    address = dataclasses.replace(filled(producer, 5).address(0), **{field: wrong})
    error = read_at(consumer, address).error()
    assert isinstance(error, errors.PartitionNotFoundError)
    assert isinstance(error, (LookupError, ConnectionError))


def test_a_partition_that_is_closed_under_its_reader(link):
    producer, consumer = link()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    writer = hg.RecordWriter(partition)
    writer.emit(numbers(5))
    writer.flush()
    [gate] = open_gates(partition, consumer)
    reader = hg.RecordReader(gate)
    assert_same(Task(next, reader).result(), numbers(5))
    reading = Task(next, reader)
    partition.close()
    assert isinstance(reading.error(5), (errors.PeerLostError, errors.ProducerFailedError))


def test_an_address_without_a_listener(environment):
    producer, consumer = environment(), environment()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = dataclasses.replace(filled(producer, 5).address(0), port=port)
    error = read_at(consumer, address).error(5)
    assert isinstance(error, errors.ConnectError), repr(error)
    assert str(port) in str(error)


def test_a_host_that_does_not_exist(environment):
    producer, consumer = environment(), environment()
    address = dataclasses.replace(filled(producer, 5).address(0), host="no.such.host.invalid")
    error = read_at(consumer, address).error()
    assert isinstance(error, errors.ConnectError)
    assert "no.such.host.invalid" in str(error)
    assert "listen" not in str(error)


def test_one_failed_channel_ends_the_gate_and_says_why(link):
    producer, consumer = link()
    good, bad = filled(producer, 5), producer.create_result_partition(1, schema=NUMBERS)
    gate = consumer.create_input_gate([good.address(0), bad.address(0)])
    bad.fail("broken on purpose")
    error = Task(drain, gate).error(5)
    assert isinstance(error, errors.ProducerFailedError)
    assert "broken on purpose" in str(error)


def test_a_gate_that_is_failed_wakes_its_reader(environment):
    producer, consumer = environment(), environment()
    partition = producer.create_result_partition(1, schema=NUMBERS)
    [gate] = open_gates(partition, consumer)
    reading = Task(drain, gate)
    gate.fail("enough")
    gate.fail("too late")
    error = reading.error(5)
    assert "enough" in str(error)
    assert "too late" not in str(error)


def test_a_consumer_with_smaller_segments_ends_both_sides(environment):
    producer, consumer = environment(), environment(segment_size="16k")
    partition = filled(producer, 8000)
    waiting = Task(partition.wait_consumed)
    gate = consumer.create_input_gate([partition.address(0)])
    error = Task(drain, gate).error()
    assert isinstance(error, errors.ProducerFailedError)
    assert "the same segment_size" in str(error)
    gate.close()
    error = waiting.error(10)
    assert isinstance(error, errors.RecordTooLargeError), error
    assert "16384 bytes" in str(error)


@pytest.mark.parametrize("size", [0, -5])
def test_an_announced_buffer_size_is_a_byte_at_least(environment, size):
    env = environment()
    gates = [env.create_input_gate(), env.create_input_gate()]
    for gate in [gates[0], flink.UnionInputGate(gates)]:
        with pytest.raises(errors.OptionError, match=f"size={size} is less than 1 byte"):
            gate.announce_buffer_size(size)


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


def opened(link):
    producer, consumer = link()
    partition = producer.create_result_partition(1)
    writer = hg.RecordWriter(partition, serializer="bytes")
    return partition, writer, consumer.create_input_gate([partition.address(0)])


def test_a_barrier_blocks_its_channel_until_it_is_resumed(link):
    partition, writer, gate = opened(link)
    reading = Reading(gate)
    with pytest.raises(errors.ClosedError, match="no such channel"):
        gate.resume_consumption(1)
    writer.emit(b"before")
    writer.broadcast_event("barrier", is_barrier=True)
    writer.emit(b"behind")
    writer.broadcast_event("event")
    writer.finish()
    reading.expect(b"before", ("barrier", 0))
    with pytest.raises(AssertionError, match="hangs"):
        reading.task.join(0.2)
    gate.resume_consumption(0)
    with pytest.raises(errors.ClosedError, match="not blocked"):
        gate.resume_consumption(0)
    reading.task.result()
    reading.expect(b"before", ("barrier", 0), b"behind", ("event", 0))
    assert Task(partition.wait_consumed, 10).result()


def test_closing_a_gate_releases_records_behind_a_barrier(link):
    partition, writer, gate = opened(link)
    writer.broadcast_event("barrier", is_barrier=True)
    reading = Reading(gate)
    reading.expect(("barrier", 0))
    writer.emit(b"behind")
    writer.finish()
    gate.close()
    reading.task.error()
    assert Task(partition.wait_consumed, 10).result()


def test_a_priority_event_overtakes_records(link):
    _, writer, gate = opened(link)
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


BARRIER = hg.Event(0, "barrier", b"body")


@pytest.mark.parametrize("convert", [False, True])
def test_a_timeoutable_barrier_is_announced_and_overtakes_if_converted(environment, convert):
    producer, consumer = environment(same_host_link="off"), environment(same_host_link="off")
    partition, writer, gate = opened(lambda: (producer, consumer))
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

    # The announcement has arrived, and everything before it.
    wait_until(lambda: consumer.stats()["gates"][0][0]["queued"] >= 3)
    reader = hg.RecordReader(gate, serializer="bytes", on_event=handle)
    Task(lambda: [got.append(record) for record in reader]).result()
    announcement = got.pop(0)
    assert (announcement.announced, announcement.channel) == (BARRIER, 0)
    assert got == (
        [BARRIER, b"0", b"1", b"behind"] if convert else [b"0", b"1", BARRIER, b"behind"]
    )
    assert Task(partition.wait_consumed, 10).result()
