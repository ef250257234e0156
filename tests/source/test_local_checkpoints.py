"""Checkpoints of sources in plain Python: a restore after any record gives exactly the rest."""

from __future__ import annotations

import itertools
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.coordinator import (
    DEADLINE,
    ListReader,
    ListSource,
    ListSplit,
    OnRequest,
)

from headgate.errors import (
    NotBuiltError,
    OptionError,
    StateVersionError,
)
from headgate.source import NumberSequenceSource, read
from headgate.source.local_checkpoint import LocalCheckpoint
from headgate.source.runtime import mailbox

SPLITS = [ListSplit("a", 0, 7), ListSplit("b", 0, 0), ListSplit("c", 0, 3), ListSplit("d", 5, 12)]
ALL = sorted((s.name, n) for s in SPLITS for n in range(s.first, s.last))


@pytest.fixture(autouse=True)
def _no_wake_up_is_missed(monkeypatch):
    """Remove the regular wake-ups of a waiting thread, so that a missed wake-up hangs."""
    monkeypatch.setattr(mailbox, "_NAP", 1000)


@pytest.mark.parametrize("taken", range(len(ALL) + 1))
def test_spec_13_05_a_checkpoint_anywhere_gives_exactly_the_rest(taken):
    with read(ListSource(SPLITS), 2) as reading:
        first = list(itertools.islice(reading, taken))
        checkpoint = reading.checkpoint()
        rest = list(reading)
    for parallelism in (1, 2, 3):
        with read(ListSource(), parallelism, checkpoint=checkpoint) as again:
            assert sorted(again) == sorted(rest)
    assert sorted(first + rest) == ALL


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 5), max_size=6),
    legs=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 8)), min_size=1, max_size=6),
)
def test_any_chain_of_restarts_gives_every_record_once(sizes, legs):
    splits = [ListSplit(f"s{n}", 0, size) for n, size in enumerate(sizes)]
    source, checkpoint, records = ListSource(splits), None, []
    for parallelism, taken in [*legs, (2, 1000)]:
        with read(source, parallelism, checkpoint=checkpoint) as reading:
            records += itertools.islice(reading, taken)
            checkpoint = reading.checkpoint()
    assert sorted(records) == sorted((s.name, n) for s in splits for n in range(s.last))


def test_a_split_given_away_during_a_checkpoint_is_in_it_once():
    """The enumerator assigns the split between its own snapshot and the reader's."""
    answered = threading.Event()

    class Slow(ListReader):
        def snapshot_state(self, checkpoint_id):
            self.context.send_split_request()
            assert answered.wait(DEADLINE)
            return super().snapshot_state(checkpoint_id)

    class Noted(OnRequest):
        def handle_split_request(self, subtask_id, requester_hostname):
            super().handle_split_request(subtask_id, requester_hostname)
            if ("snapshot", 1) in self.calls:
                answered.set()

    source = ListSource(SPLITS, reader=Slow, enumerator=Noted)
    with read(source) as reading:
        first = [next(reading) for _ in range(3)]
        checkpoint = reading.checkpoint()
        assert [s.name for s in source.enumerator.splits] == ["c", "d"]  # "b" is in flight.
        rest = list(reading)
    assert sorted(first + rest) == ALL
    with read(ListSource(), checkpoint=checkpoint) as again:
        assert sorted(again) == sorted(rest)


def test_a_checkpoint_counts_as_stored_when_reading_goes_on():
    source = ListSource(SPLITS)
    with read(source) as reading:
        next(reading)
        reading.checkpoint()
        reading.checkpoint()
        assert source.readers[0].completed == []
        next(reading)
        assert source.readers[0].completed == [2]
    assert [c for c in source.enumerator.calls if c[0] == "complete"] == [("complete", 2)]


def test_a_checkpoint_between_the_records_of_an_element_is_refused_and_reading_goes_on():
    splits = [ListSplit("a", 0, 3, 3), ListSplit("b", 0, 3, 3)]
    with read(ListSource(splits), 2) as reading:
        first = [next(reading)]
        with pytest.raises(NotBuiltError, match="between the records of one element"):
            reading.checkpoint()
        first += [next(reading), next(reading)]
        checkpoint = reading.checkpoint()  # No other reader is in the middle of an element.
        rest = list(reading)
    assert len(first + rest) == 18
    with read(ListSource(), checkpoint=checkpoint) as again:
        assert sorted(again) == sorted(rest)


def test_splits_written_by_an_older_version_are_read():
    enumerator = (7).to_bytes(4, "big") + b'{"splits":[["b",0,1,1]]}'
    old = LocalCheckpoint(enumerator, 2, [("a", b'{"name":"a","first":1,"last":3}')])
    with read(ListSource(), checkpoint=old.to_bytes()) as again:
        assert list(again) == [("a", 1), ("a", 2), ("b", 0)]


def test_what_is_no_checkpoint_is_a_clear_error():
    with read(ListSource(SPLITS)) as reading:
        next(reading)
        checkpoint = reading.checkpoint()
    for size in range(len(checkpoint)):
        with pytest.raises(StateVersionError):
            read(ListSource(), checkpoint=checkpoint[:size])
    for wrong in (checkpoint + b"x", b"something else"):
        with pytest.raises(StateVersionError):
            read(ListSource(), checkpoint=wrong)
    with (
        read(NumberSequenceSource(0, 10), checkpoint=checkpoint) as other,
        pytest.raises(StateVersionError),
    ):
        next(other)
    with pytest.raises(OptionError, match="parallelism=0"):
        read(ListSource(), 0)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"source": "numbers"}, "source='numbers' is a str"),
        ({"source": NumberSequenceSource}, "is the class NumberSequenceSource"),
        ({"parallelism": "2"}, "parallelism='2' is not a whole number"),
        ({"watermarks": "time"}, "watermarks='time' is a str"),
        ({"checkpoint": "text"}, "checkpoint='text' is a str"),
    ],
)
def test_what_read_does_not_take_is_named_at_once(arguments, named):
    with pytest.raises(OptionError, match=named):
        read(**{"source": NumberSequenceSource(0, 10), **arguments})
