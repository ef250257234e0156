"""The source of rows at a rate: each number once, with its event time, from the position of a checkpoint."""

from __future__ import annotations

from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.contexts import (
    Collected,
    FakeEnumeratorContext,
    FakeReaderContext,
    is_end,
    polled,
)

from headgate.errors import OptionError
from headgate.source import Boundedness, RateSource, SplitsAddition, WatermarkStrategy, read
from headgate.source.rate import RateSplit
from headgate.source.registry import source_from_options
from headgate.source.sequential import SequentialSplitReader
from headgate.source.testing import SourceTestBase

START = 1_700_000_000_000


def expected(rows, rate):
    times = pa.array([START + n * 1000 // rate for n in range(rows)], pa.timestamp("ms", "UTC"))
    return pa.table({"id": range(rows), "time": times})


class TestRate(SourceTestBase):
    num_splits = 3

    def create_source(self):
        return RateSource(3000, rows=50, start_time=START, splits=3, batch_size=4)

    def expected_records(self):
        return expected(50, 3000)


class OneSplit(RateSource):
    """Without a rate: the rows of an element are due at once."""

    def pace_of(self, readers):
        return None


@given(
    st.integers(0, 200),
    st.integers(1, 9),
    st.integers(1, 30),
    st.integers(1, 5000) | st.floats(0.5, 5000),
)
@settings(deadline=None, max_examples=60)
def test_every_number_comes_once_with_the_time_that_the_rate_gives_it(rows, splits, size, rate):
    source = RateSource(rate, rows=rows, start_time=START, splits=splits, batch_size=size)
    found = []
    for number in range(splits):
        split, position = RateSplit(number, splits, START), 0
        while (timed := source.next_rows(split, position)) is not None:
            batch, position, latest = timed
            assert 0 < batch.num_rows <= size
            assert batch.schema == source.schema
            found += batch.to_pylist()
            assert found[-1]["time"].timestamp() * 1000 == pytest.approx(latest, abs=0.5)
    assert sorted(row["id"] for row in found) == list(range(rows))
    exact = Fraction(rate).limit_denominator(1000)
    for row in found:
        assert round(row["time"].timestamp() * 1000) == START + int(row["id"] * 1000 / exact)


def test_a_restart_keeps_the_event_times():
    source = OneSplit(100, splits=1)
    with read(source) as rows:
        first = next(rows)
        stored = rows.checkpoint()
    with read(source, checkpoint=stored) as rows:
        second = next(rows)
    ids = [n for batch in (first, second) for n in batch["id"].to_pylist()]
    assert ids == list(range(len(ids)))
    times = [n for batch in (first, second) for n in batch["time"].cast("int64").to_pylist()]
    assert [t - times[0] for t in times] == [n * 10 for n in ids]


def test_the_rows_have_watermarks_without_an_assigner():
    source = RateSource(1000, rows=20, start_time=START, splits=1)
    watermarks = WatermarkStrategy.for_monotonous_timestamps()
    with read(source, watermarks=watermarks) as rows:
        batch = next(rows)
        assert batch.num_rows == 20
        assert rows.current_watermark <= START + 19
        assert list(rows) == []


def test_readers_without_a_split_are_told_that_none_follows():
    context = FakeEnumeratorContext(3)
    enumerator = RateSource(10, splits=2).create_enumerator(context)
    for reader in range(3):
        enumerator.add_reader(reader)
    assert [len(context.assigned[n]) for n in range(3)] == [1, 1, 0]
    assert context.told_no_more == [0, 1, 2]
    enumerator.add_splits_back(context.assigned[1], 1)
    assert len(enumerator.snapshot_state(1).splits) == 1
    enumerator.add_reader(1)
    assert enumerator.snapshot_state(1).splits == ()


def test_each_split_has_its_share_of_the_rate():
    source = RateSource(100, splits=4)
    pace = source.pace_of(2)(RateSplit(0, 4, START))
    pace.took(25)
    assert 0.9 < pace.delay() <= 1


def test_a_reader_takes_the_split_that_is_due_first():
    source = RateSource(1e6, rows=100, splits=2, batch_size=5)
    reader = SequentialSplitReader(lambda split: source.open_split(split, 1), source.pace_of(1))
    reader.handle_splits_changes(SplitsAddition((RateSplit(0, 2, 0), RateSplit(1, 2, 0))))
    seen = {reader.fetch().next_split() for _ in range(10)}
    assert seen == {"rate[0/2]", "rate[1/2]"}
    reader.pause_or_resume_splits([RateSplit(0, 2, 0)], [])
    assert {reader.fetch().next_split() for _ in range(3)} == {"rate[1/2]"}


def test_options_are_the_arguments():
    source = source_from_options(
        {"source": "rate", "rowspersecond": "50", "rows": "7", "startTime": "5", "splits": "1"}
    )
    assert source.boundedness is Boundedness.BOUNDED
    assert not source.has_endless_splits
    reader, output = source.create_reader(FakeReaderContext()), Collected()
    reader.start()
    reader.add_splits([RateSplit(0, 1, 5)])
    reader.notify_no_more_splits()
    polled(reader, output, is_end)
    reader.close()
    assert [n for batch in output.records for n in batch["id"].to_pylist()] == list(range(7))
    assert RateSource(1).boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    assert RateSource(1).has_endless_splits


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        ((0,), {}, "rows_per_second=0 is no rate"),
        ((1,), {"rows": -1}, "rows=-1"),
        ((1,), {"splits": 0}, "splits=0"),
        ((1,), {"time_column": "id"}, "time_column='id'"),
        ((1,), {"column": 3}, "column=3"),
    ],
)
def test_mistakes_are_named(arguments, options, said):
    with pytest.raises(OptionError, match=said):
        RateSource(*arguments, **options)
