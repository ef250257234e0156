"""The source of numbers: the whole range once, its rate, and its splits."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.clock import Clock
from tests.kit.contexts import (
    Collected,
    FakeEnumeratorContext,
    FakeReaderContext,
    enumerated,
    polled,
    read_all,
)

from headgate.errors import OptionError, StateVersionError, UnknownColumnError
from headgate.source import (
    Boundedness,
    InputStatus,
    NumberSequenceSource,
    NumberSplit,
    SplitsAddition,
    read,
)
from headgate.source.batch_source import Unassigned
from headgate.source.sequential import Pace, SequentialSplitReader


def numbers_of(batches):
    return [number for batch in batches for number in batch.column(0).to_pylist()]


@given(
    st.integers(-(2**63), 2**63 - 200),
    st.integers(0, 150),
    st.integers(1, 40),
    st.none() | st.integers(1, 200),
)
@settings(deadline=None, max_examples=60)
def test_every_number_comes_once(start, count, batch_size, splits):
    source = NumberSequenceSource(start, start + count, batch_size=batch_size, splits=splits)
    cut = enumerated(source)
    assert sorted(numbers_of(read_all(source, cut))) == list(range(start, start + count))
    if splits is not None:
        assert len(cut) <= splits
    assert all(split.end - split.start > 0 for split in cut)


def test_batches_have_the_schema_and_the_size():
    source = NumberSequenceSource(0, 10, batch_size=4, splits=1, column="n")
    batches = read_all(source, enumerated(source))
    assert [batch.num_rows for batch in batches] == [4, 4, 2]
    assert {batch.schema for batch in batches} == {source.schema}
    assert str(source.schema) == "n: int64 not null"


def test_no_numbers_are_no_splits():
    assert enumerated(NumberSequenceSource(7, 7)) == []


def test_splits_of_a_lost_reader_are_handed_out_again():
    context = FakeEnumeratorContext(2)
    enumerator = NumberSequenceSource(0, 30, splits=3).create_enumerator(context)
    assert enumerator.total_splits == 3
    for _ in range(2):
        enumerator.handle_split_request(0, None)
    enumerator.add_splits_back(context.assigned[0], 0)
    context.assigned[0] = []
    for _ in range(4):
        enumerator.handle_split_request(1, None)
    assert sorted(split.start for split in context.all) == [0, 10, 20]
    assert context.told_no_more == [1]
    assert enumerator.total_splits == 3


@given(st.integers(0, 12), st.data())
@settings(deadline=None, max_examples=30)
def test_a_checkpoint_leaves_exactly_the_rest(stop, data):
    source = NumberSequenceSource(0, 100, splits=10, batch_size=4)
    context = FakeEnumeratorContext()
    enumerator = source.create_enumerator(context)
    for _ in range(stop):
        enumerator.handle_split_request(0, None)
    serializer = source.enumerator_checkpoint_serializer
    if context.all:
        back = data.draw(st.integers(0, len(context.all)))
        enumerator.add_splits_back(context.all[:back], 0)
        context.assigned[0] = context.all[back:]
    state = serializer.deserialize(1, serializer.serialize(enumerator.snapshot_state(1)))
    rest = enumerated(source, checkpoint=state)
    both = sorted((split.start, split.end) for split in [*context.all, *rest])
    assert both == [(n, n + 10) for n in range(0, 100, 10)]


def test_a_reader_goes_on_after_what_it_emitted():
    source = NumberSequenceSource(0, 20, splits=1, batch_size=3)
    reader, output = source.create_reader(FakeReaderContext()), Collected()
    reader.start()
    reader.add_splits(enumerated(source))
    for _ in range(3):
        polled(reader, output, lambda status: status is InputStatus.MORE_AVAILABLE)
    state = reader.snapshot_state(1)
    reader.close()
    assert numbers_of(output.records) == list(range(len(output.records) * 3))
    serializer = source.split_serializer
    restored = [serializer.deserialize(1, serializer.serialize(split)) for split in state]
    assert numbers_of([*output.records, *read_all(source, restored)]) == list(range(20))


def test_a_sequence_without_end_goes_on():
    source = NumberSequenceSource(5, batch_size=10)
    assert source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    context = FakeEnumeratorContext()
    enumerator = source.create_enumerator(context)
    for _ in range(50):
        enumerator.handle_split_request(0, None)
    assert len(context.all) == 50
    assert [split.start for split in context.all[1:]] == [split.end for split in context.all[:-1]]
    assert enumerator.total_splits is None
    with read(source) as records:
        assert numbers_of([next(records)]) == list(range(5, 15))


def test_a_sequence_without_end_ends_with_the_type():
    source = NumberSequenceSource(2**63 - 4, batch_size=2)
    assert numbers_of(read_all(source, enumerated(source))) == [2**63 - n for n in (4, 3, 2)]


def test_a_pace_is_an_upper_limit_that_catches_nothing_up():
    clock = Clock(100.0)
    pace = Pace(10, clock)
    assert pace.delay() <= 0
    pace.took(5)
    assert pace.delay() == pytest.approx(0.5)
    clock.now += 0.5
    assert pace.delay() <= 0
    clock.now += 100
    pace.took(10)
    pace.took(10)
    assert pace.delay() == pytest.approx(2.0)


@pytest.mark.parametrize("parallelism", [1, 4])
def test_the_rate_holds_over_all_readers(parallelism, monkeypatch):
    rates = []

    class Known(Pace):
        def __init__(self, rate):
            rates.append(rate)
            super().__init__(rate)

    monkeypatch.setattr("headgate.source.numbers.Pace", Known)
    source = NumberSequenceSource(0, 100, rows_per_second=1000)
    for _ in range(parallelism):
        source.create_reader(FakeReaderContext(parallelism)).close()
    assert sum(rates) == pytest.approx(1000)
    assert len(rates) == parallelism


def test_a_slow_rate_makes_small_batches_and_a_wake_up_ends_the_wait():
    source = NumberSequenceSource(0, 100, rows_per_second=0.01)
    with read(source) as records:
        assert next(records).num_rows == 1


def test_a_fetch_that_waits_for_its_time_is_woken_and_loses_nothing():
    clock = Clock(100.0)
    pace = Pace(1, clock)
    pace.took(10**9)
    reader = SequentialSplitReader(lambda split: iter([(split, 1)]), lambda _: pace)
    split = NumberSplit(0, 1)
    reader.handle_splits_changes(SplitsAddition((split,)))
    reader.wake_up()
    assert reader.fetch().next_split() is None
    clock.now += 10**10
    assert reader._wait_for_work() == split.split_id


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"start": "0"}, "start='0'"),
        ({"start": 5, "end": 4}, "end=4"),
        ({"end": 2**63}, "end="),
        ({"batch_size": 0}, "batch_size=0"),
        ({"splits": 0}, "splits=0"),
        ({"rows_per_second": 0}, "rows_per_second=0"),
        ({"rows_per_second": "9"}, "rows_per_second='9'"),
        ({"end": 4, "unbounded": True}, "unbounded=True"),
        ({"unbounded": False}, "unbounded=False"),
        ({"start": True}, "start=True"),
        ({"end": 9, "column": 3}, "column=3 is no name"),
    ],
)
def test_what_it_does_not_take(arguments, named):
    with pytest.raises(OptionError, match=named):
        NumberSequenceSource(**arguments)


def test_options_are_texts():
    options = {"START": "3", "end": "9", "batchsize": "2", "splits": "2", "column": "n"}
    source = NumberSequenceSource.from_options(options)
    assert numbers_of(read_all(source, enumerated(source))) == [3, 4, 5, 6, 7, 8]
    assert source.schema.names == ["n"]
    with pytest.raises(OptionError, match="'ende' is no option"):
        NumberSequenceSource.from_options({"ende": "3"})
    with pytest.raises(OptionError, match="end='x'"):
        NumberSequenceSource.from_options({"end": "x"})


def test_its_only_column():
    source = NumberSequenceSource(0, 5)
    assert source.with_columns(["id"]) is source
    assert source.with_columns([]) is None
    with pytest.raises(UnknownColumnError, match="'x'"):
        source.with_columns(["x"])


def test_it_travels():
    source = pickle.loads(pickle.dumps(NumberSequenceSource(0, 5, batch_size=2)))
    assert numbers_of(read_all(source, enumerated(source))) == [0, 1, 2, 3, 4]


def test_state_of_another_version_is_refused():
    source = NumberSequenceSource(0, 5)
    data = source.enumerator_checkpoint_serializer.serialize(Unassigned())
    with pytest.raises(StateVersionError):
        source.enumerator_checkpoint_serializer.deserialize(2, data)


def test_several_readers_read_everything_and_a_checkpoint_covers_what_was_handed_out():
    source = NumberSequenceSource(0, 500, splits=20, batch_size=7)
    with read(source, parallelism=3) as records:
        first = [next(records) for _ in range(30)]
        checkpoint = records.checkpoint()
    with read(source, parallelism=2, checkpoint=checkpoint) as records:
        rest = list(records)
    assert sorted(numbers_of([*first, *rest])) == list(range(500))
