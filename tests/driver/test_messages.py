"""Control messages: one that fits its row of the service's table is accepted, any other is refused by name."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.control.cause import Cause, cut
from headgate.control.messages import Message
from headgate.errors import ProtocolError
from headgate.spark import wire
from headgate.spark.doctor import wire as doctor
from headgate.stream.job import messages as job

PROCESS = "0a" * 16
EXAMPLES = {
    "ASK_HOSTS": {},
    "HOSTS": {
        "hosts": [["198.18.0.2", 4041, PROCESS]],
        "producers": [[0, 77, 0], [1, 78, 0]],
        "is_last": True,
    },
    "HOST_LOST": {"process": PROCESS},
}
OF_THE_DOCTOR = {
    "HERE": {"number": 0, "executor": "", "host": "h", "port": 1, "process": PROCESS},
    "DIAL": {"peers": [[1, "h", 1]], "seconds": 3},
    "DIALED": {"errors": [[1, "h:1: Connection refused"]], "at": 1.5, "took": 0},
    "EXCHANGE": {"size": 1, "seconds": 1.5, "serve": None, "read": ["h", 1, PROCESS, PROCESS]},
    "EXCHANGED": {"rate": 1e9, "link": "tcp", "error": "", "code": "", "trace": ["opened"]},
}
OF_A_JOB = {"ENDED": {"attempt": 1, "task": [0, 0]}, "HEARTBEAT": {"control": "0a"}, "STOP": {}}
CODECS = [
    (wire.CODEC, EXAMPLES),
    (doctor.CODEC, OF_THE_DOCTOR),
    (job.CODEC, OF_A_JOB),
]
ALL = [(codec, kind, fields) for codec, rows in CODECS for kind, fields in rows.items()]


@pytest.mark.parametrize(("codec", "examples"), CODECS[:2])
def test_every_kind_has_an_example(codec, examples):
    assert set(examples) == set(codec.table)


@pytest.mark.parametrize(("codec", "kind", "fields"), ALL)
def test_round_trip(codec, kind, fields):
    message = Message(kind, fields)
    assert codec.decode(codec.encode(message)) == message


@pytest.mark.parametrize(
    ("codec", "kind", "change", "words"),
    [
        (wire.CODEC, "HOSTS", {"kind": "PICKLE"}, "unknown control message 'PICKLE'"),
        (wire.CODEC, "HOSTS", {"kind": ["HOSTS"]}, "unknown control message"),
        (wire.CODEC, "HOSTS", {"more": 1}, "does not have the fields"),
        (wire.CODEC, "HOSTS", {"is_last": 1}, "no valid is_last"),
        (wire.CODEC, "HOSTS", {"hosts": [["h", 0, PROCESS]]}, "no valid hosts"),
        (wire.CODEC, "HOSTS", {"hosts": [["h", 65_536, PROCESS]]}, "no valid hosts"),
        (wire.CODEC, "HOSTS", {"hosts": [["h", 1, "0A" * 16]]}, "no valid hosts"),
        (wire.CODEC, "HOSTS", {"hosts": [["h", 1, "0 " * 16]]}, "no valid hosts"),
        (wire.CODEC, "HOSTS", {"hosts": [["", 1, PROCESS]]}, "no valid hosts"),
        (wire.CODEC, "HOSTS", {"producers": [[0, 1]]}, "no valid producers"),
        (wire.CODEC, "HOSTS", {"producers": [[0, True, 0]]}, "no valid producers"),
        (wire.CODEC, "HOSTS", {"producers": [[0, 1.0, 0]]}, "no valid producers"),
        (wire.CODEC, "HOSTS", {"producers": [[0, 1 << 63, 0]]}, "no valid producers"),
        (doctor.CODEC, "DIALED", {"at": True}, "no valid at"),
        (doctor.CODEC, "DIALED", {"at": float("nan")}, "no valid at"),
        (doctor.CODEC, "DIALED", {"at": float("inf")}, "no valid at"),
        (doctor.CODEC, "EXCHANGED", {"rate": -1}, "no valid rate"),
        (job.CODEC, "ENDED", {"attempt": True}, "no valid attempt"),
        (job.CODEC, "ENDED", {"task": ["0", 0]}, "no valid task"),
        (job.CODEC, "ENDED", {"task": [0]}, "no valid task"),
    ],
)
def test_a_message_that_does_not_fit_its_row_is_refused(codec, kind, change, words):
    (fields,) = [fields for _, rows in CODECS for name, fields in rows.items() if name == kind]
    body = {"kind": kind, **fields, **change}
    with pytest.raises(ProtocolError, match=words):
        codec.decode(json.dumps(body).encode())
    kind = body.pop("kind")
    with pytest.raises(ProtocolError, match=words):
        codec.encode(Message(kind, body))


def test_a_field_that_is_missing_is_refused():
    with pytest.raises(ProtocolError, match="does not have the fields process"):
        wire.CODEC.encode(Message("HOST_LOST"))


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[1]", b"9" * 5000, b"\xff\xfe", b"[" * 100_000, b"nul", b'{"kind": 1}']
)
def test_bytes_that_are_no_message_are_refused(data):
    with pytest.raises(ProtocolError):
        wire.CODEC.decode(data)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_message_or_an_error(data):
    for codec, _ in CODECS:
        with pytest.raises(ProtocolError):
            codec.decode(data)


def test_a_message_that_is_too_large_is_not_sent():
    fields = {**EXAMPLES["HOSTS"], "producers": [[0, 77, 0]] * 10_000}
    with pytest.raises(ProtocolError, match="above 65536"):
        wire.CODEC.encode(Message("HOSTS", fields))


def test_a_long_text_loses_its_middle():
    text = "first line\n" + "x" * 20_000 + "\nlast line"
    short = cut(text, 9_000)
    assert len(short) <= 9_000
    assert short.startswith("first line")
    assert short.endswith("last line")
    assert "characters left out" in short
    assert cut("short", 9_000) == "short"


def test_a_cause_becomes_its_error_again():
    fields = Cause("HG-6001", "map raised ValueError: x", text="Traceback ...").fields()
    error = Cause.from_fields(fields).error()
    assert error.code == "HG-6001"
    assert error.cause_text == "Traceback ..."
    assert Cause.of(error).summary == "map raised ValueError: x"
