"""Messages: one that fits its row of the table is accepted, any other is refused by name."""

import json

import pytest

from headgate._option_table import OPTIONS
from headgate.control.cause import Cause, cut
from headgate.errors import ProtocolError
from headgate.spark.wire.messages import (
    FIELDS,
    MAX_INDEXES,
    MAX_MESSAGE,
    MAX_TEXT,
    Message,
    decode,
    encode,
)

CAUSE = Cause("HG-6001", "map raised ValueError: x", text="Traceback ...").fields()
PLACE = {"host": "10.0.0.1", "port": 4711, "partition_id": "0a" * 16, "process_id": "ff" * 16}
TOTALS = {"rows": 1, "bytes": 2, "pages": 3, "peak": 4}
EXAMPLES = {
    "CONSUMER": {"stage": 3, "partition": 1, "attempt": 77, "index": 2},
    "PRODUCER": {"stage": 4, "partition": 1, "attempt": 78},
    "REGISTERED": PLACE,
    "PROGRESS": {
        "rows": 10,
        "bytes": 1000,
        "input_ms": 1,
        "function_ms": 2,
        "emit_ms": 3,
        "blocked_ms": 4,
        "memory_ms": 5,
        "link_ms": 6,
        "io_ms": 7,
        "hostname": "worker-1",
        "edges": [0, 5],
        "edges_each": 1,
    },
    "DONE": TOTALS,
    "STOPPED": TOTALS,
    "FAILED": CAUSE,
    "HEARTBEAT": {"control": "0a" * 16},
    "START": {},
    "PARTITION": {"producer": 1, "attempt": 78, **PLACE},
    "SEALED": {"producers": 2},
    "WAIT": {},
    "GO": {"wanted": []},
    "CONSUMER_GONE": {"index": 1},
    "FINISH": {},
    "ABORT": CAUSE,
    "EPOCH_ENDED": CAUSE,
    "READY": {},
    "YIELDED": {},
    "OK": {},
    "ASK_PLACES": {},
    "HOST_LOST": {"process": "0a" * 16},
    "PLACES": {
        "hosts": [["198.18.0.2", 4041, "0a" * 16]],
        "producers": [[0, 77, 0], [1, 78, 0]],
        "is_last": True,
    },
    "READER": {"host": "worker-1"},
    "SPLIT_REQUEST": {"host": "worker-1"},
    "SPLITS_FINISHED": {"ids": ["a.parquet 0", "a.parquet 1"]},
    "WATERMARK": {"ms": -(1 << 63)},
    "SOURCE_EVENT": {"name": "switch", "payload": "AAEC"},
    "ASSIGN": {"version": 1, "splits": [["a.parquet 0", "AAEC"], ["b", ""]]},
    "NO_MORE_SPLITS": {},
    "ALIGN": {"ms": (1 << 63) - 1},
}


def test_every_kind_has_an_example():
    assert set(EXAMPLES) == set(FIELDS)


@pytest.mark.parametrize("kind", sorted(EXAMPLES))
def test_round_trip(kind):
    message = Message(kind, 7, 1, EXAMPLES[kind])
    assert decode(encode(message)) == message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "PICKLE"}, "unknown message"),
        ({"kind": ["GO"]}, "unknown message"),
        ({"run": -1}, "without run"),
        ({"epoch": True}, "without run"),
        ({"run": None}, "without run"),
        ({"more": 1}, "does not have the fields"),
        ({"index": "1"}, "no valid index"),
        ({"index": 1.0}, "no valid index"),
        ({"index": 1 << 63}, "no valid index"),
        ({"index": 1 << 31}, "no valid index"),
        ({"run": 1 << 31}, "without run"),
        ({"epoch": 1 << 31}, "without run"),
    ],
)
def test_a_message_that_does_not_fit_its_row_is_refused(change, said):
    body = {"kind": "CONSUMER_GONE", "run": 1, "epoch": 0, "index": 1, **change}
    with pytest.raises(ProtocolError, match=said):
        decode(json.dumps(body).encode())


@pytest.mark.parametrize(
    ("name", "value"),
    [("port", 0), ("port", 65_536), ("partition_id", "0A" * 16), ("host", "x" * (MAX_TEXT + 1))],
)
def test_a_place_is_checked(name, value):
    with pytest.raises(ProtocolError, match=f"no valid {name}"):
        encode(Message("REGISTERED", 1, 0, {**PLACE, name: value}))


@pytest.mark.parametrize(
    ("kind", "name"), [("CONSUMER", "stage"), ("CONSUMER", "partition"), ("PRODUCER", "stage")]
)
def test_numbers_that_spark_has_as_ints_fit_one(kind, name):
    """A stage of 2^31 ended the driver's looks at Spark, whose method takes an int."""
    largest = Message(kind, 0, 0, {**EXAMPLES[kind], name: (1 << 31) - 1})
    assert decode(encode(largest)) == largest
    with pytest.raises(ProtocolError, match=f"no valid {name}"):
        encode(Message(kind, 0, 0, {**EXAMPLES[kind], name: 1 << 31}))
    attempt = Message(kind, 0, 0, {**EXAMPLES[kind], "attempt": (1 << 63) - 1})
    assert decode(encode(attempt)) == attempt


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[1]", b"9" * 5000, b"\xff\xfe", b"[" * 50_000, b"nul"]
)
def test_bytes_that_are_no_json_object_are_refused(data):
    with pytest.raises(ProtocolError):
        decode(data)


def test_a_message_that_is_too_large_is_refused_before_it_is_parsed():
    with pytest.raises(ProtocolError, match="above"):
        decode(b" " * (MAX_MESSAGE + 1))
    with pytest.raises(ProtocolError, match="no valid wanted"):
        encode(Message("GO", 1, 0, {"wanted": list(range(MAX_INDEXES + 1))}))


def test_an_exchange_has_no_more_partitions_than_a_message_can_name():
    assert OPTIONS["num_partitions"].maximum == MAX_INDEXES


@pytest.mark.parametrize("letter", ["x", "\u20ac", "\U0001f600", "\x01", "\udc80", '"'])
def test_the_longest_cause_fits_a_message(letter):
    cause = Cause("HG-6001", *[letter * 100_000] * 6)
    message = Message("ABORT", 1, 0, cause.fields())
    assert decode(encode(message)) == message


def test_a_long_text_loses_its_middle():
    text = "first line\n" + "x" * 20_000 + "\nlast line"
    short = cut(text, MAX_TEXT)
    assert len(short) <= MAX_TEXT
    assert short.startswith("first line")
    assert short.endswith("last line")
    assert "characters left out" in short
    assert cut("short", MAX_TEXT) == "short"


def test_a_cause_becomes_its_error_again():
    error = Cause.from_fields(CAUSE).error()
    assert error.code == "HG-6001"
    assert error.cause_text == "Traceback ..."
    assert Cause.of(error).summary == "map raised ValueError: x"
