"""Invalid streams of records from an authenticated peer end in errors, never in rows."""

import struct

import pytest
import wire
from plane import SECRET, Task, fake_address

import headgate as hg
from headgate.errors import IntegrityError, ProtocolError, RecordTooLargeError

#: The data type of an event with priority.
PRIORITY = 3


def play(environment, *buffers, **options):
    """Read bytes records from a peer that sends these buffers: pairs of data type and payload."""

    def part(link, channel):
        for sequence, (data_type, payload) in enumerate(buffers):
            if data_type == wire.END:
                frame = wire.end(*payload, channel=channel, sequence=sequence)
            else:
                where = {"channel": channel, "sequence": sequence}
                frame = wire.buffer(payload, data_type=data_type, **where)
            link.send_frames(frame)

    fake = wire.Producer(SECRET, part)
    consumer = environment(memory="2m", **options)
    address = fake_address(fake, schema=None)
    gate = consumer.create_input_gate([address])
    events = []
    reader = hg.RecordReader(gate, serializer="bytes", on_event=events.append)
    outcome = Task(list, reader).outcome(10)
    consumer.close()
    fake.close()
    return outcome, [(event.name, event.body) for event in events]


def record(payload, length=None):
    return struct.pack(">i", len(payload) if length is None else length) + payload


def custom(name, body):
    return struct.pack(">iH", 3, len(name)) + name + struct.pack(">I", len(body)) + body


def totals(rows, *payloads):
    return wire.END, (rows, sum(map(len, payloads)), len(payloads))


def data(payload):
    return wire.DATA, payload


def test_records_and_events_of_an_honest_peer_are_read(environment):
    first, second = record(b"abc")[:5], record(b"abc")[5:] + record(b"")
    event = custom(b"name", b"body")
    outcome, events = play(
        environment,
        data(first),
        # An event with priority may come within a record. Trailing bytes do not belong to it.
        (PRIORITY, event + bytes(4)),
        data(second),
        (wire.EVENT, event),
        totals(2, first, second),
    )
    assert outcome == [b"abc", b""]
    assert events == [("name", b"body")] * 2


@pytest.mark.parametrize("data_type", [wire.EVENT, wire.PAGE, wire.END])
def test_nothing_but_its_rest_follows_a_part_of_a_record(environment, data_type):
    part = record(b"abc")[:6]
    payload = {wire.EVENT: custom(b"n", b""), wire.PAGE: b"page", wire.END: (1, len(part), 1)}
    outcome, events = play(environment, data(part), (data_type, payload[data_type]))
    assert isinstance(outcome, IntegrityError)
    assert "a record is cut off by" in str(outcome)
    assert events == []


@pytest.mark.parametrize(
    ("length", "error", "said"),
    [
        (-1, IntegrityError, "negative length -1"),
        (-(2**31), IntegrityError, "negative length -2147483648"),
        (2**31 - 1, RecordTooLargeError, "2147483647 bytes exceeds the limit of 1048576"),
        ((1 << 20) + 1, RecordTooLargeError, "1048577 bytes exceeds the limit of 1048576"),
    ],
)
def test_lengths_are_refused_before_memory_or_disk_is_taken(
    environment, tmp_path, length, error, said
):
    options = {"max_record_size": "1m", "spill_threshold": "100k", "temp_directories": tmp_path}
    outcome, _ = play(environment, data(record(b"abc", length)), **options)
    assert isinstance(outcome, error)
    assert said in str(outcome)


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"\0\0\0", "an event of 3 bytes is incomplete"),
        (struct.pack(">i", 99), "unknown code 99"),
        (struct.pack(">iH", 3, 1) + b"\xff" + bytes(4), "not UTF-8"),
        (struct.pack(">iHI", 3, 0, 2**32 - 1), "incomplete"),
        (struct.pack(">iiiii", 6, 1, 6, 1, 0), "cannot announce an announcement"),
        (bytes(4), "of type EndOfPartition"),
        (struct.pack(">iB", 8, 0), "of type EndOfData"),
        (
            custom(b"EndOfData(Drain)", b""),
            '"EndOfData(Drain)", which is the name of an event of Headgate',
        ),
        (custom(b"EndOfSuperstep", b""), "is the name of an event of Headgate"),
        (
            struct.pack(">ii", 6, 1) + custom(b"EndOfSegment", b""),
            "is the name of an event of Headgate",
        ),
    ],
    ids=[
        "short",
        "code",
        "name",
        "body",
        "nested",
        "end",
        "end of data",
        "ours",
        "superstep",
        "announced",
    ],
)
def test_invalid_events_are_refused(environment, payload, said):
    outcome, events = play(environment, (wire.EVENT, payload))
    assert isinstance(outcome, ProtocolError)
    assert said in str(outcome)
    assert events == []
