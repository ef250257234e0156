"""Messages: one that fits its row of the table is accepted, any other is refused by name."""

import json

import pytest

from headgate.control.cause import Cause, cut
from headgate.errors import ProtocolError
from headgate.spark.wire.messages import FIELDS, MAX_MESSAGE, MAX_TEXT, Message, decode, encode

EXAMPLES = {
    "ASK_PLACES": {},
    "PLACES": {
        "hosts": [["198.18.0.2", 4041, "0a" * 16]],
        "producers": [[0, 77, 0], [1, 78, 0]],
        "is_last": True,
    },
    "HOST_LOST": {"process": "0a" * 16},
}


def test_every_kind_has_an_example():
    assert set(EXAMPLES) == set(FIELDS)


@pytest.mark.parametrize("kind", sorted(EXAMPLES))
def test_round_trip(kind):
    message = Message(kind, EXAMPLES[kind])
    assert decode(encode(message)) == message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "PICKLE"}, "unknown message"),
        ({"kind": ["PLACES"]}, "unknown message"),
        ({"more": 1}, "does not have the fields"),
        ({"is_last": 1}, "no valid is_last"),
        ({"hosts": [["h", 0, "0a" * 16]]}, "no valid hosts"),
        ({"hosts": [["h", 65_536, "0a" * 16]]}, "no valid hosts"),
        ({"hosts": [["h", 1, "0A" * 16]]}, "no valid hosts"),
        ({"hosts": [["x" * (MAX_TEXT + 1), 1, "0a" * 16]]}, "no valid hosts"),
        ({"producers": [[0, 1]]}, "no valid producers"),
        ({"producers": [[0, True, 0]]}, "no valid producers"),
        ({"producers": [[0, 1.0, 0]]}, "no valid producers"),
        ({"producers": [[0, 1 << 63, 0]]}, "no valid producers"),
    ],
)
def test_a_message_that_does_not_fit_its_row_is_refused(change, said):
    body = {"kind": "PLACES", **EXAMPLES["PLACES"], **change}
    with pytest.raises(ProtocolError, match=said):
        decode(json.dumps(body).encode())


def test_a_field_that_is_missing_is_refused():
    with pytest.raises(ProtocolError, match="does not have the fields process"):
        encode(Message("HOST_LOST"))


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[1]", b"9" * 5000, b"\xff\xfe", b"[" * 50_000, b"nul"]
)
def test_bytes_that_are_no_json_object_are_refused(data):
    with pytest.raises(ProtocolError):
        decode(data)


def test_a_message_that_is_too_large_is_refused_before_it_is_parsed():
    with pytest.raises(ProtocolError, match="above"):
        decode(b" " * (MAX_MESSAGE + 1))
    with pytest.raises(ProtocolError, match="above"):
        encode(Message("PLACES", {**EXAMPLES["PLACES"], "producers": [[0, 77, 0]] * 10_000}))


def test_a_long_text_loses_its_middle():
    text = "first line\n" + "x" * 20_000 + "\nlast line"
    short = cut(text, MAX_TEXT)
    assert len(short) <= MAX_TEXT
    assert short.startswith("first line")
    assert short.endswith("last line")
    assert "characters left out" in short
    assert cut("short", MAX_TEXT) == "short"


def test_a_cause_becomes_its_error_again():
    given = Cause("HG-6001", "map raised ValueError: x", text="Traceback ...").fields()
    error = Cause.from_fields(given).error()
    assert error.code == "HG-6001"
    assert error.cause_text == "Traceback ..."
    assert Cause.of(error).summary == "map raised ValueError: x"
