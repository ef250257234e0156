"""Messages of readers and enumerators: bytes survive, too large and invalid ones are refused."""

import json

import pytest

from headgate.errors import ProtocolError, SourceError
from headgate.source import SourceEvent
from headgate.spark.wire.messages import (
    MAX_BYTES,
    MAX_EVENT_NAME,
    MAX_SPLIT_ID,
    MAX_SPLITS,
    Message,
    decode,
    encode,
)
from headgate.spark.wire.source_messages import (
    assigned,
    assignments,
    event_fields,
    event_of,
    finished,
)

EVERY_BYTE = bytes(range(256))


def crossed(kind, all_fields):
    return [decode(encode(Message(kind, 1, 0, fields))) for fields in all_fields]


@pytest.mark.parametrize("letter", ["x", "\u20ac", "\U0001f600", "\x01", "\udc80", '"'])
def test_the_largest_splits_cross_each_in_a_message_of_its_own(letter):
    splits = [(letter * MAX_SPLIT_ID, (EVERY_BYTE * 128)[:MAX_BYTES]), (letter, b""), ("b", b"b")]
    messages = crossed("ASSIGN", assignments("s", 3, splits))
    assert [split for m in messages for split in assigned(m["splits"])] == splits
    assert {m["version"] for m in messages} == {3}


def test_many_splits_take_as_few_messages_as_hold_them():
    splits = [(f"split {number}", EVERY_BYTE) for number in range(1_000)]
    messages = crossed("ASSIGN", assignments("s", 1, splits))
    assert [split for m in messages for split in assigned(m["splits"])] == splits
    assert len(messages) <= 7
    ids = [name for name, _ in splits]
    messages = crossed("SPLITS_FINISHED", finished(ids))
    assert [name for m in messages for name in m["ids"]] == ids
    assert len(messages) == 2
    assert not list(finished([]))


def test_events_cross_with_their_bytes():
    for event in (
        SourceEvent("hello"),
        SourceEvent("\udc80" * MAX_EVENT_NAME, (EVERY_BYTE * 128)[:MAX_BYTES]),
    ):
        (message,) = crossed("SOURCE_EVENT", [event_fields("s", event)])
        assert event_of(message.fields) == event


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: list(assignments("s", 1, [("big", bytes(MAX_BYTES + 1))])), "split 'big' with"),
        (lambda: list(assignments("s", 1, [("x" * 2001, b"")])), "id has 2001 characters"),
        (lambda: event_fields("s", SourceEvent("e", bytes(MAX_BYTES + 1))), "event 'e' with"),
        (lambda: event_fields("s", SourceEvent("e" * 201)), "name of 201 characters"),
    ],
)
def test_what_no_message_can_hold_is_named(make, said):
    with pytest.raises(SourceError, match=said) as caught:
        make()
    assert "source 's'" in caught.value.summary


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("ASSIGN", {"version": 1, "splits": [["a"]]}),
        ("ASSIGN", {"version": 1, "splits": [["a", "no base 64!"]]}),
        ("ASSIGN", {"version": 1, "splits": [["a", "\u00e9\u00e9\u00e9\u00e9"]]}),
        ("ASSIGN", {"version": 1, "splits": [["a", None]]}),
        ("ASSIGN", {"version": 1, "splits": [[1, ""]]}),
        ("ASSIGN", {"version": 1, "splits": [["a", "QUFB" * 11_000]]}),
        ("ASSIGN", {"version": 1, "splits": [["a", ""]] * (MAX_SPLITS + 1)}),
        ("ASSIGN", {"version": -1, "splits": []}),
        ("SPLITS_FINISHED", {"ids": "ab"}),
        ("SPLITS_FINISHED", {"ids": ["x" * (MAX_SPLIT_ID + 1)]}),
        ("SOURCE_EVENT", {"name": "x" * (MAX_EVENT_NAME + 1), "payload": ""}),
        ("SOURCE_EVENT", {"name": "x", "payload": ["AAAA"]}),
        ("WATERMARK", {"ms": 1 << 63}),
        ("WATERMARK", {"ms": 1.5}),
        ("ALIGN", {"ms": True}),
    ],
)
def test_what_does_not_fit_is_refused(kind, fields):
    body = {"kind": kind, "run": 1, "epoch": 0, **fields}
    with pytest.raises(ProtocolError, match=f"a {kind} message has no valid"):
        decode(json.dumps(body).encode())
