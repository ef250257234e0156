"""Authenticated peers that break the protocol are refused without harm to others."""

import dataclasses
import math
import struct

import pytest
import wire
from plane import NUMBERS, SECRET, Task, assert_same, drain, fake_address, numbers

import headgate as hg

errors = hg.errors


@pytest.fixture(scope="module")
def page():
    """Return the bytes of a page with the numbers 0 to 4."""
    with hg.ShuffleEnvironment(memory="1m", segment_size="64k") as producer:
        partition = producer.create_result_partition(1, schema=NUMBERS)
        with hg.RecordWriter(partition) as writer:
            writer.emit(numbers(5))
        gate = producer.create_input_gate([partition.address(0)])
        first, last = hg.BufferReader(gate)
    assert (first.data_type, last.data_type) == (wire.PAGE, wire.END)
    return first.data


def play(environment, *frames, schema=NUMBERS, events=None, **options):
    """Read from a fake producer that sends these frames; return the rows or the error.

    Each frame is made for the channel. Without a schema the records are bytes. Events are added to a list.
    """

    def part(link, channel):
        for frame in frames:
            link.send_frames(frame(channel))

    fake = wire.Producer(SECRET, part)
    consumer = environment(memory="2m", **options)
    gate = consumer.create_input_gate([fake_address(fake, schema=schema)])
    reading = {"serializer": "arrow" if schema else "bytes"}
    hear = None if events is None else events.append
    outcome = Task(drain, gate, on_event=hear, **reading).outcome(10)
    peak = consumer.stats()["peak_bytes"]
    consumer.close()
    fake.close()
    assert peak <= 2 << 20
    return outcome


def buffer(payload, sequence=0, **fields):
    return lambda channel: wire.buffer(payload, channel=channel, sequence=sequence, **fields)


def ending(rows, size, buffers, sequence):
    return lambda channel: wire.end(rows, size, buffers, channel=channel, sequence=sequence)


def test_an_honest_fake_is_read(environment, page):
    size = len(page)
    got = play(environment, buffer(page), buffer(page, 1), ending(10, 2 * size, 2, 2))
    assert_same(got, [numbers(5), numbers(5)])


def test_a_gap_is_the_error_of_each_channel_of_its_connection_by_name(environment, page):
    def part(link, channel):
        request = wire.receive(link, 77)
        other = struct.unpack(">I", request[29:33])[0]
        link.send_frames(buffer(page)(other), buffer(page, 1)(channel))

    fake = wire.Producer(SECRET, part)
    consumer = environment(memory="2m")
    first = fake_address(fake)
    addresses = [first, dataclasses.replace(first, subpartition=1)]
    gates = [consumer.create_input_gate([address]) for address in addresses]
    readers = [hg.RecordReader(gate) for gate in gates]
    metrics = consumer.stats()["metrics"]["gates"]
    names = [gate["channels"][0]["name"] for gate in metrics]
    assert len(set(names)) == 2
    assert_same(Task(next, readers[1]).result(), numbers(5))
    for name, reader in zip(names, readers, strict=True):
        error = Task(next, reader).error()
        assert type(error) is errors.IntegrityError
        assert f"integrity check failed on {name}: " in str(error)
        assert f"{names[0]}: channel 0 expects buffer 0, buffer 1 arrived" in str(error)
    consumer.close()
    fake.close()


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"crc": 0}, errors.IntegrityError),
        ({"generation": 1}, errors.IntegrityError),
        ({"data_type": 0}, errors.ProtocolError),
        ({"size": 2**32 - 1, "length": 35}, errors.ProtocolError),
    ],
    ids=str,
)
def test_a_wrong_field_of_a_buffer(environment, page, wrong, error):
    outcome = play(environment, buffer(page, **wrong))
    assert type(outcome) is error, repr(outcome)


def test_an_error_frame_carries_its_words(environment):
    text = "ü" * 512
    outcome = play(environment, lambda channel: wire.error(6002, text.encode(), channel))
    assert isinstance(outcome, errors.ProducerFailedError)
    assert text in str(outcome)


def test_a_page_of_another_schema_with_the_same_layout(environment, page):
    assert page[24:28] == wire.fingerprint(("n", "int64"))
    renamed = page[:24] + wire.fingerprint(("n", "float64")) + page[28:]
    outcome = play(environment, buffer(renamed), ending(5, len(page), 1, 1))
    assert isinstance(outcome, errors.SchemaMismatchError), repr(outcome)


def test_a_page_that_is_cut_is_a_corrupt_page(environment, page):
    outcome = play(environment, buffer(page[:63]), ending(5, 63, 1, 1))
    assert type(outcome) is errors.CorruptPageError, repr(outcome)


def record(payload, length=None):
    return struct.pack(">i", len(payload) if length is None else length) + payload


def custom(name, body):
    return struct.pack(">iH", 3, len(name)) + name + struct.pack(">I", len(body)) + body


@pytest.mark.parametrize("kind", ["event", "page", "end"])
def test_nothing_but_its_rest_follows_a_part_of_a_record(environment, kind):
    part, events = record(b"abc")[:6], []
    behind = {
        "event": buffer(custom(b"n", b""), 1, data_type=wire.EVENT),
        "page": buffer(b"page", 1),
        "end": ending(1, len(part), 1, 1),
    }[kind]
    outcome = play(
        environment, buffer(part, data_type=wire.DATA), behind, schema=None, events=events
    )
    assert isinstance(outcome, errors.IntegrityError)
    assert "a record is cut off by" in str(outcome)
    assert events == []


@pytest.mark.parametrize(
    ("length", "error", "said"),
    [
        (-1, errors.IntegrityError, "negative length -1"),
        ((1 << 20) + 1, errors.RecordTooLargeError, "1048577 bytes exceeds the limit of 1048576"),
    ],
)
def test_lengths_are_refused_before_memory_or_disk_is_taken(
    environment, tmp_path, length, error, said
):
    options = {"max_record_size": "1m", "spill_threshold": "100k", "temp_directories": tmp_path}
    frame = buffer(record(b"abc", length), data_type=wire.DATA)
    outcome = play(environment, frame, schema=None, **options)
    assert isinstance(outcome, error)
    assert said in str(outcome)


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"\0\0\0", "an event of 3 bytes is incomplete"),
        (bytes(4), "of type EndOfPartition"),
        (custom(b"EndOfSuperstep", b""), "is the name of an event of Headgate"),
    ],
    ids=["short", "end", "ours"],
)
def test_invalid_events_are_refused(environment, payload, said):
    events = []
    outcome = play(environment, buffer(payload, data_type=wire.EVENT), schema=None, events=events)
    assert isinstance(outcome, errors.ProtocolError)
    assert said in str(outcome)
    assert events == []


# Consumers that break the protocol.


@pytest.fixture
def served(environment):
    producer = environment()
    # A hostile consumer is disconnected and counts as lost, which must not fail the partition here.
    partition = producer.create_result_partition(2, schema=NUMBERS, lost_consumer_timeout=math.inf)
    with hg.RecordWriter(partition, selector=hg.BroadcastSelector()) as writer:
        writer.emit(numbers(100))
    yield partition
    # The other subpartition is not affected.
    gate = environment().create_input_gate([partition.address(1)])
    assert_same(Task(drain, gate).result(), numbers(100))


@pytest.mark.parametrize(
    "bytes_sent",
    [
        b"GET / HTTP/1.1\r\n\r\n" + bytes(64),
        wire.frame(6, struct.pack(">II", 1, 0))[:-1] + b"\0",
        wire.buffer(b"", channel=0, sequence=0),
    ],
    ids=["http", "checksum", "buffer"],
)
def test_a_consumer_that_sends_nonsense_is_cut_off(served, bytes_sent):
    sock, _ = wire.consumer(served.address(0), SECRET)
    with sock:
        sock.send_frames(bytes_sent)
        assert wire.is_closed(sock, 5)


def receive_error(sock):
    """Receive an error frame; return its channel, code and text."""
    head = wire.receive(sock, 17)
    assert head[8] == 1
    length, text = struct.unpack(">I", head[:4])[0], struct.unpack(">H", head[15:])[0]
    assert length == 21 + text
    rest = wire.receive(sock, length - 17)
    assert sock.is_sealed(head + rest)
    return *struct.unpack(">IH", head[9:15]), rest[:-4].decode()


ALL_CHANNELS = 2**32 - 1


def test_a_consumer_with_altered_bytes_gets_an_error_frame(served):
    sock, _ = wire.consumer(served.address(0), SECRET)
    with sock:
        request = bytearray(wire.masked(wire.partition_request(served.address(0)), sock.mask))
        request[40] ^= 4
        sock.sendall(request)
        channel, code, text = receive_error(sock)
        assert (channel, code) == (ALL_CHANNELS, 3005)
        assert text.startswith("the producer refused bytes of this consumer: ")
        assert wire.is_closed(sock, 5)


def test_a_producer_that_complains_is_not_called_lost(environment):
    text = "the producer refused bytes of this consumer: a checksum is wrong"
    error = play(environment, lambda _: wire.error(3005, text.encode(), ALL_CHANNELS))
    assert type(error) is errors.IntegrityError
    assert text in str(error)


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
