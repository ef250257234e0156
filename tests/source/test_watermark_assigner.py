"""The latest timestamp of a batch, from a whole Arrow column."""

import datetime as dt
import math

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.clock import Clock
from tests.kit.operator import Rig, emit

from headgate.errors import UnknownColumnError, UnsupportedTypeError
from headgate.source import MAX_WATERMARK, MIN_WATERMARK, WatermarkStrategy
from headgate.source.watermark.assigner import TimestampAssigner
from headgate.source.watermark.generator import BoundedOutOfOrderness
from headgate.source.watermark.output import OperatorOutput

PER_MS = {"s": 0.001, "ms": 1, "us": 1000, "ns": 1_000_000}


def row_by_row(values, unit):
    """Return the timestamps of single rows in ms, rounded down: a naive model."""
    if unit == "s":
        return [value * 1000 for value in values if value is not None]
    return [value // int(PER_MS[unit]) for value in values if value is not None]


@settings(max_examples=200, deadline=None)
@given(
    values=st.lists(st.none() | st.integers(-(2**53), 2**53), max_size=30),
    unit=st.sampled_from(["s", "ms", "us", "ns"]),
    zone=st.sampled_from([None, "UTC", "Europe/Berlin"]),
    kind=st.sampled_from(["timestamp", "int64"]),
    offset=st.integers(0, 3),
)
def test_it_finds_what_a_row_by_row_model_finds(values, unit, zone, kind, offset):
    arrow = pa.int64() if kind == "int64" else pa.timestamp(unit, zone)
    column = pa.array(values, pa.int64()).cast(arrow)
    batch = pa.record_batch({"x": [0] * len(values), "t": column}).slice(offset)
    assigner = TimestampAssigner("t", unit if kind == "int64" else "ms")
    expected = max(row_by_row(values[offset:], unit), default=None)
    assert assigner(batch, 17) == expected
    assert assigner(pa.Table.from_batches([batch, batch]), None) == expected


def test_times_beyond_those_that_a_datetime_can_hold():
    late = pa.array([2**62], pa.timestamp("s"))
    assert TimestampAssigner("t")(pa.record_batch({"t": late}), None) == MAX_WATERMARK
    early = pa.array([-(2**62)], pa.timestamp("s"))
    assert TimestampAssigner("t")(pa.record_batch({"t": early}), None) == MIN_WATERMARK


def test_an_instant_is_the_same_in_every_unit():
    instant = dt.datetime(2013, 1, 1, 6, 0, 0, 999999, tzinfo=dt.UTC)
    want = math.floor(instant.timestamp() * 1000)
    for unit in ("ms", "us", "ns"):
        column = pa.array([instant], pa.timestamp("us", "UTC")).cast(
            pa.timestamp(unit, "America/New_York"), safe=False
        )
        assert TimestampAssigner("t")(pa.record_batch({"t": column}), None) == want


@pytest.mark.parametrize("values", [[], [None, None]])
def test_a_batch_without_times_moves_nothing(values):
    rig = Rig(WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("t"), ["a"])
    batch = pa.record_batch({"t": pa.array(values, pa.timestamp("us"))})
    assert rig.run(emit(batch, split="a", at=5)) == [batch]
    rig.pass_by(0.3)
    assert rig.watermark == MIN_WATERMARK


def test_the_watermark_follows_the_latest_row_of_each_batch():
    rig = Rig(WatermarkStrategy.for_bounded_out_of_orderness(100).with_timestamp_assigner("t"))
    rig.run(*(emit(pa.record_batch({"t": pa.array(t, pa.int64())})) for t in ([5, 900], [700])))
    rig.pass_by(0.2)
    assert rig.watermark == 799


def test_a_function_finds_times_that_are_no_column():
    add = TimestampAssigner(lambda batch: pa.array([1, 2, None], pa.timestamp("s")))
    assert add(pa.record_batch({"x": [1, 2, 3]}), None) == 2000
    chunked = TimestampAssigner(lambda table: table["t"])
    assert chunked(pa.table({"t": pa.chunked_array([[1], [9, 4]])}), None) == 9


def test_a_record_that_is_no_batch_keeps_the_time_of_its_source():
    assigner = TimestampAssigner("t")
    assert assigner({"t": 3}, 42) == 42
    assert assigner("text", None) is None


def test_a_missing_column_is_named_with_those_that_look_like_it():
    rig = Rig(WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("time_hour"))
    batch = pa.record_batch({"year": [2013], "Time_Hours": [1]})
    with pytest.raises(UnknownColumnError) as caught:
        rig.run(emit(batch))
    error = caught.value
    assert "no column 'time_hour'" in error.summary
    assert error.have == "year, Time_Hours"
    assert error.remedy == "with_timestamp_assigner('Time_Hours')"
    with pytest.raises(UnknownColumnError) as again:
        rig.operator.poll()
    assert again.value is error


def test_a_column_named_twice_is_refused():
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], ["t", "t"])
    with pytest.raises(UnknownColumnError, match="more than one column 't'"):
        TimestampAssigner("t")(batch, None)


@pytest.mark.parametrize(
    "column",
    [pa.array(["2013"]), pa.array([1.5]), pa.array([1], pa.int32()), pa.array([1], pa.time32("s"))],
)
def test_a_column_of_another_type_is_refused(column):
    with pytest.raises(UnsupportedTypeError) as caught:
        TimestampAssigner("t")(pa.record_batch({"t": column}), None)
    assert "column 't'" in caught.value.summary
    assert str(column.type) in caught.value.summary


def test_a_function_that_returns_no_arrow_array_is_refused():
    with pytest.raises(
        UnsupportedTypeError, match="the result of the timestamp function is of type list"
    ):
        TimestampAssigner(lambda batch: [1])(pa.record_batch({"t": [1]}), None)


@settings(max_examples=100, deadline=None)
@given(
    batches=st.lists(
        st.tuples(
            st.lists(st.none() | st.integers(0, 10_000), max_size=5),
            st.sampled_from([1, 1, 1, 300]),
            st.sampled_from(["s", "ms", "ms", "ms"]),
            st.booleans(),
        ),
        max_size=150,
    )
)
def test_small_batches_have_the_watermark_of_their_rows_whenever_it_is_looked_at(batches):
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(7).with_timestamp_assigner("t")
    output = OperatorOutput(strategy, Clock())
    split, latest = output.create_output_for_split("a"), None
    for values, times, unit, looks in batches:
        column = pa.array(values * times, pa.int64()).cast(pa.timestamp(unit))
        split.collect(pa.record_batch({"t": column}))
        latest = max(
            [*row_by_row(values, unit), *([] if latest is None else [latest])], default=None
        )
        if looks:
            output.on_periodic_emit()
            assert output.latest == (MIN_WATERMARK if latest is None else latest - 8)
    output.on_periodic_emit()
    assert output.latest == (MIN_WATERMARK if latest is None else latest - 8)


def test_a_column_that_a_later_batch_lacks_is_named():
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("t")
    output = OperatorOutput(strategy, Clock())
    for name in ("t", "t", "u"):
        output.collect(pa.record_batch({name: [1]}))
    with pytest.raises(UnknownColumnError, match="'t'"):
        output.on_periodic_emit()


def test_a_generator_of_ones_own_hears_of_each_batch():
    class Own(BoundedOutOfOrderness):
        def on_event(self, record, timestamp, output):
            events.append((record.num_rows, timestamp))

    events = []
    strategy = WatermarkStrategy.for_generator(lambda: Own(0)).with_timestamp_assigner("t")
    output = OperatorOutput(strategy, Clock())
    for value in (3, 1, 2):
        output.collect(pa.record_batch({"t": [value]}))
    assert events == [(1, 3), (1, 1), (1, 2)]
