"""Authenticated peers that break the protocol are refused without harm to others."""

import dataclasses
import math
import struct

import pyarrow as pa
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


def play(environment, part):
    """Read from a fake producer that runs `part`; return the rows or the error."""
    fake = wire.Producer(SECRET, part)
    consumer = environment(memory="2m")
    gate = consumer.create_input_gate([fake_address(fake)])
    outcome = Task(drain, gate).outcome(10)
    peak = consumer.stats()["peak_bytes"]
    consumer.close()
    fake.close()
    assert peak <= 2 << 20
    return outcome


def sender(*make):
    """Return a part that sends these frames, each made for the channel."""

    def part(sock, channel):
        for frame in make:
            sock.send_frames(frame(channel) if callable(frame) else frame)

    return part


def good(page, sequence=0):
    return lambda channel: wire.buffer(page, channel=channel, sequence=sequence)


def ending(rows, size, buffers, sequence):
    return lambda channel: wire.end(rows, size, buffers, channel=channel, sequence=sequence)


def test_an_honest_fake_is_read(environment, page):
    size = len(page)
    part = sender(good(page), good(page, 1), ending(10, 2 * size, 2, 2))
    assert_same(play(environment, part), [numbers(5), numbers(5)])


def test_a_gap_is_the_error_of_each_channel_of_its_connection_by_name(environment, page):
    def part(link, channel):
        request = wire.receive(link, 77)
        other = struct.unpack(">I", request[29:33])[0]
        link.send_frames(good(page)(other), good(page, 1)(channel))

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


TOTALS = {"rows": (6, 0, 0), "bytes": (0, 1, 0), "buffers": (0, 0, 1), "huge": (2**64 - 6, 0, 0)}


@pytest.mark.parametrize("wrong", TOTALS)
def test_wrong_totals(environment, page, wrong):
    rows, size, buffers = TOTALS[wrong]
    part = sender(good(page), ending(5 + rows, len(page) + size, 1 + buffers, 1))
    assert isinstance(play(environment, part), errors.IntegrityError)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"crc": 0}, errors.IntegrityError),
        ({"sequence": 1}, errors.IntegrityError),
        ({"sequence": 2**32 - 1}, errors.IntegrityError),
        ({"generation": 1}, errors.IntegrityError),
        ({"data_type": 0}, errors.ProtocolError),
        ({"data_type": 12}, errors.ProtocolError),
        ({"data_type": 255}, errors.ProtocolError),
        ({"compressed": 2}, errors.ProtocolError),
        ({"size": 2**32 - 1, "length": 35}, errors.ProtocolError),
        ({"size": 0, "length": 100}, errors.ProtocolError),
        ({"length": 0}, errors.ProtocolError),
        ({"length": 8}, errors.ProtocolError),
        ({"length": 34}, errors.ProtocolError),
        ({"length": 2**31}, errors.ProtocolError),
        ({"length": 2**32 - 1}, errors.ProtocolError),
    ],
    ids=str,
)
def test_a_wrong_field_of_a_buffer(environment, page, wrong, error):
    fields = {"sequence": 0, **wrong}
    part = sender(lambda channel: wire.buffer(page, channel=channel, **fields))
    outcome = play(environment, part)
    assert type(outcome) is error, repr(outcome)


def test_a_barrier_that_would_be_announced_and_is_no_event(environment):
    barrier = lambda channel: wire.buffer(b"no event", channel=channel, sequence=0, data_type=5)  # noqa: E731
    outcome = play(environment, sender(barrier))
    assert isinstance(outcome, errors.HeadgateError), repr(outcome)
    assert "event" in str(outcome)


@pytest.mark.parametrize("excess", [1, 65536, 2**24, 2**31 - 100])
def test_a_buffer_larger_than_a_segment_is_refused_by_its_header(environment, excess):
    size = 65536 + excess
    head = struct.pack(">IIBIIIIBBII", 35 + size, wire.MAGIC, 0, 0, 0, 0, 0, wire.PAGE, 0, size, 0)
    outcome = play(environment, sender(head))
    assert isinstance(outcome, errors.ProtocolError)
    assert str(size) in str(outcome) or str(35 + size) in str(outcome)


def test_data_without_credit(environment, page):
    # Far more buffers than the consumer has granted credits for.
    frames = [good(page, sequence) for sequence in range(400)]
    outcome = play(environment, sender(*frames))
    assert isinstance(outcome, (errors.IntegrityError, errors.ProtocolError))


def test_data_behind_the_end(environment, page):
    part = sender(ending(0, 0, 0, 0), good(page, 1), ending(5, len(page), 1, 2))
    outcome = play(environment, part)
    if isinstance(outcome, pa.Table):
        assert outcome.num_rows == 0
    else:
        assert isinstance(outcome, (errors.IntegrityError, errors.ProtocolError))


@pytest.mark.parametrize("kind", [2, 3, 4, 5, 6, 7, 200])
def test_a_frame_of_the_wrong_kind_or_direction(environment, kind):
    lengths = {2: 64, 4: 4, 5: 0, 6: 8}
    outcome = play(environment, sender(wire.frame(kind, b"\1" * lengths.get(kind, 4))))
    assert isinstance(outcome, errors.ProtocolError)


def test_a_wrong_magic(environment):
    outcome = play(environment, sender(wire.frame(1, bytes(8), magic=0xBADC0FFF)))
    assert isinstance(outcome, errors.ProtocolError)


@pytest.mark.parametrize("text", ["it broke", "", "ü" * 512])
def test_an_error_frame_carries_its_words(environment, text):
    raw = text.encode()
    body = lambda channel: struct.pack(">IHH", channel, 6002, len(raw)) + raw  # noqa: E731
    outcome = play(environment, sender(lambda channel: wire.frame(1, body(channel))))
    assert isinstance(outcome, errors.ProducerFailedError)
    assert text in str(outcome)


@pytest.mark.parametrize("at", range(21 + 8))
def test_an_error_frame_with_a_flipped_bit(environment, at):
    def part(sock, channel):
        frame = wire.frame(1, struct.pack(">IHH", channel, 6002, 8) + b"it broke")
        damaged = bytearray(wire.masked(frame, sock.mask))
        damaged[at] ^= 1
        sock.sendall(damaged)

    outcome = play(environment, part)
    assert type(outcome) in {errors.IntegrityError, errors.ProtocolError}, repr(outcome)


@pytest.mark.parametrize("raw", [b"\xff\xfe", b"x" * 1025], ids=["not utf-8", "too long"])
def test_a_malformed_error_frame(environment, raw):
    body = lambda channel: struct.pack(">IHH", channel, 6002, len(raw)) + raw  # noqa: E731
    outcome = play(environment, sender(lambda channel: wire.frame(1, body(channel))))
    assert isinstance(outcome, hg.HeadgateError)


def test_pages_with_wrong_bytes_and_a_right_checksum(environment, page):
    # Damages each header field and some of the body in turn. The seventh field, at byte 24, is the
    # schema's hash.
    for at in [*range(0, 64, 4), 64, len(page) - 1]:
        changed = bytearray(page)
        changed[at] ^= 0x41
        part = sender(good(bytes(changed)), ending(5, len(page), 1, 1))
        outcome = play(environment, part)
        if isinstance(outcome, pa.Table):
            outcome.validate(full=True)
            assert outcome.num_rows == 5
        elif at == 24:
            assert isinstance(outcome, errors.SchemaMismatchError), repr(outcome)
        else:
            assert isinstance(outcome, (errors.CorruptPageError, errors.IntegrityError))


@pytest.mark.parametrize("other", [("n", "float64"), ("n", "timestamp(s)"), ("m", "int64")])
def test_a_page_of_another_schema_with_the_same_layout(environment, page, other):
    assert page[24:28] == wire.fingerprint(("n", "int64"))
    renamed = page[:24] + wire.fingerprint(other) + page[28:]
    outcome = play(environment, sender(good(renamed), ending(5, len(page), 1, 1)))
    assert isinstance(outcome, errors.SchemaMismatchError), repr(outcome)


@pytest.mark.parametrize("size", [0, 1, 23, 24, 27, 28, 63])
def test_pages_that_are_cut(environment, page, size):
    part = sender(good(page[:size]), ending(5, size, 1, 1))
    outcome = play(environment, part)
    assert isinstance(outcome, (errors.CorruptPageError, errors.IntegrityError)), repr(outcome)


def test_a_record_that_claims_to_be_huge(environment):
    def record(channel):
        payload = struct.pack(">I", 2**32 - 1) + b"x" * 100
        return wire.buffer(payload, channel=channel, sequence=0, data_type=wire.DATA)

    outcome = play(environment, sender(record))
    assert isinstance(outcome, (errors.RecordTooLargeError, errors.IntegrityError))


@pytest.mark.parametrize("event", [b"", b"\0", b"\0\0\0\x7f", b"\0\0\0\3" + b"\xff" * 20])
def test_malformed_events(environment, event):
    def frame(channel):
        return wire.buffer(event, channel=channel, sequence=0, data_type=wire.EVENT)

    outcome = play(environment, sender(frame))
    assert isinstance(outcome, (errors.ProtocolError, errors.IntegrityError)), repr(outcome)


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
        wire.frame(2, bytes(10)),
        wire.frame(6, struct.pack(">II", 0, 0)),
        wire.frame(6, struct.pack(">II", 1, 0))[:-1] + b"\0",
        wire.buffer(b"", channel=0, sequence=0),
        wire.frame(1, bytes(8)),
        wire.frame(5, length=2**32 - 1),
        wire.frame(5, length=0),
        wire.frame(99),
    ],
    ids=["http", "short", "no credit", "checksum", "buffer", "error", "huge", "zero", "unknown"],
)
def test_a_consumer_that_sends_nonsense_is_cut_off(served, bytes_sent):
    sock, _ = wire.consumer(served.address(0), SECRET)
    with sock:
        sock.send_frames(bytes_sent)
        assert wire.is_closed(sock, 5)


def test_credits_that_overflow(served):
    sock, _ = wire.consumer(served.address(0), SECRET)
    with sock:
        sock.send_frames(wire.partition_request(served.address(0), channel=3, credit=1))
        sock.send_frames(*[wire.add_credit(2**32 - 1, 3)] * 3)
        assert wire.is_closed(sock, 5)


def test_credits_and_cancels_of_unknown_channels_are_ignored(served):
    sock, _ = wire.consumer(served.address(0), SECRET)
    with sock:
        sock.send_frames(wire.add_credit(5, 77), wire.cancel(78))
        sock.send_frames(wire.partition_request(served.address(0)))
        assert len(wire.receive(sock, 35)) == 35


def test_a_request_for_a_missing_partition(environment):
    served = environment(partition_request_timeout=0).create_result_partition(1)
    sock, _ = wire.consumer(served.address(0), SECRET)
    with sock:
        sock.send_frames(wire.partition_request(served.address(0), partition=bytes(16), channel=9))
        assert receive_error(sock)[:2] == (9, 3006)


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


@pytest.mark.parametrize("at", [9, 40, -1])
def test_a_consumer_with_altered_bytes_gets_an_error_frame(served, at):
    sock, _ = wire.consumer(served.address(0), SECRET)
    with sock:
        request = bytearray(wire.masked(wire.partition_request(served.address(0)), sock.mask))
        request[at] ^= 4
        sock.sendall(request)
        channel, code, text = receive_error(sock)
        assert (channel, code) == (ALL_CHANNELS, 3005)
        assert text.startswith("the producer refused bytes of this consumer: ")
        assert wire.is_closed(sock, 5)


def test_a_producer_that_complains_is_not_called_lost(environment):
    text = b"the producer refused bytes of this consumer: a checksum is wrong"
    body = struct.pack(">IHH", ALL_CHANNELS, 3005, len(text)) + text
    error = play(environment, sender(wire.frame(1, body)))
    assert type(error) is errors.IntegrityError
    assert "the producer refused bytes of this consumer: a checksum is wrong" in str(error)


def test_two_requests_for_one_channel(served):
    sock, _ = wire.consumer(served.address(0), SECRET)
    with sock:
        request = wire.partition_request(served.address(0), channel=4)
        sock.send_frames(request, request)
        sock.settimeout(5)
        seen = b""
        while b"already" not in seen:
            data = sock.recv(65536)
            assert data, seen[-200:]
            seen += data
