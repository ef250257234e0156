"""Times of all types become the same milliseconds, wherever Headgate makes numbers of them."""

import datetime as dt
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate._times import milli_of, millis_of, scale_of
from headgate.errors import StateError, UnsupportedTypeError
from headgate.sink.kafka.producing import records_of
from headgate.source import WatermarkStrategy
from headgate.source.kafka.offsets import KafkaOffsets
from headgate.stream import (
    Aggregate,
    KeyedStateBackend,
    SessionWindow,
    SessionWindowOperator,
    SlidingWindow,
    TumblingWindow,
    WindowOperator,
)

PER_SECOND = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}
TIMES = {
    f"{unit} {zone}": (pa.timestamp(unit, zone), Fraction(1000, per))
    for unit, per in PER_SECOND.items()
    for zone in (None, "UTC", "Asia/Kathmandu")
}
TIMES |= {"date32": (pa.date32(), Fraction(86_400_000)), "date64": (pa.date64(), Fraction(1))}
TIMES |= {"int64": (pa.int64(), Fraction(1))}


def array_of(numbers, of):
    stored = pa.int32() if of.bit_width == 32 else pa.int64()
    return pa.array(numbers, stored).view(of)


@pytest.mark.parametrize("name", TIMES)
@settings(deadline=None)
@given(st.lists(st.none() | st.integers(-(2**31), 2**31 - 1)), st.integers(0, 3))
def test_numbers_of_each_type_are_multiplied_and_rounded_down(name, numbers, offset):
    of, factor = TIMES[name]
    array = array_of(numbers, of)
    expected = [None if n is None else int(n * factor // 1) for n in numbers]
    assert millis_of(array).to_pylist() == expected
    assert millis_of(array[offset:]).to_pylist() == expected[offset:]
    assert millis_of(pa.chunked_array([array, array])).to_pylist() == expected * 2


@settings(deadline=None)
@given(st.datetimes() | st.datetimes(timezones=st.timezones()) | st.dates())
def test_datetimes_are_those_of_python(time):
    if isinstance(time, dt.datetime):
        aware = time if time.tzinfo else time.replace(tzinfo=dt.UTC)
        exact = aware - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    else:
        exact = time - dt.date(1970, 1, 1)
    assert milli_of(time) == exact // dt.timedelta(milliseconds=1)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns", "D"])
def test_times_of_numpy_and_pandas(unit):
    texts = ["1970-01-02T00:00:00", "1969-12-31T00:00:00"]
    expected = [86_400_000, -86_400_000]
    assert millis_of(np.array(texts, f"datetime64[{unit}]")).to_pylist() == expected
    assert millis_of(pd.Series(pd.to_datetime(texts))).to_pylist() == expected
    assert milli_of(pd.Timestamp(texts[0])) == 86_400_000


@pytest.mark.parametrize(
    "wrong",
    [
        [1.5],
        [True],
        ["2026-01-01"],
        [dt.timedelta(1)],
        [dt.time(1)],
        [Ellipsis],
        [1, "a"],
        [2**70],
        pa.array([2**62], pa.timestamp("s")),
        np.array([1], "datetime64[h]"),
        pa.array([1], pa.uint64()),
        pa.array([1], pa.int32()),
    ],
    ids=str,
)
def test_values_that_are_no_times_are_refused(wrong):
    with pytest.raises(UnsupportedTypeError, match=r"HG-4002"):
        millis_of(wrong)


# --- every place that takes times ---


def fires_at(times):
    """Return when a timer for each time fires."""
    backend = KeyedStateBackend(pa.schema([("k", pa.int64())]))
    backend.set_keys([pa.array(range(len(times)))])
    backend.event_timers.register(times)
    fired = backend.event_timers.advance(2**62)
    return fired.sort_by("k")["timestamp"].to_pylist()


def starts_in(window, times):
    """Return the start of each row's window of 1 ms."""
    schema = pa.schema([("k", pa.int64()), ("t", times.type)])
    kind = SessionWindowOperator if isinstance(window, SessionWindow) else WindowOperator
    windows = kind(schema, keys=["k"], time="t", window=window, aggregates=[Aggregate("count")])
    windows.process(pa.RecordBatch.from_arrays([pa.array(range(len(times))), times], schema=schema))
    results = windows.advance_watermark(2**60).results.sort_by("k")
    return millis_of(results["window_start"]).to_pylist()


def watermark_of(times):
    """Return the timestamp that a strategy finds in each row alone."""
    assigner = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("t").assigner
    return [assigner(pa.record_batch({"t": times[at : at + 1]}), None) for at in range(len(times))]


def kafka_times(times):
    batch = pa.record_batch({"value": pa.array(["x"] * len(times)), "timestamp": times})
    return [record["timestamp"] for record in records_of(batch, "t")]


MS = dt.timedelta(milliseconds=1)
PLACES = {
    "timers": fires_at,
    "tumbling windows": lambda times: starts_in(TumblingWindow(MS), times),
    "sliding windows": lambda times: starts_in(SlidingWindow(MS, MS), times),
    "session windows": lambda times: starts_in(SessionWindow(MS), times),
    "watermarks": watermark_of,
    "Kafka": kafka_times,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", TIMES)
def test_each_place_takes_times_of_each_type(place, name):
    of, factor = TIMES[name]
    exact = [1, 86_400 * 365, -86_400, 0] if of.bit_width == 64 else [86_400, -86_400, 0]
    numbers = [int(seconds * 1000 / factor) for seconds in exact]
    numbers += [1, -1] if factor < 1 else []
    expected = [int(number * factor // 1) for number in numbers]
    assert PLACES[place](array_of(numbers, of)) == expected


@pytest.mark.parametrize(
    "of", [pa.float64(), pa.string(), pa.time64("us"), pa.duration("ms")], ids=str
)
@pytest.mark.parametrize("place", PLACES)
def test_each_place_refuses_what_has_no_times(place, of):
    assert scale_of(of) is None
    if place == "Kafka":
        return
    with pytest.raises(UnsupportedTypeError):
        PLACES[place](pa.nulls(1, of) if of == pa.string() else pa.array([1], of))


def test_a_window_refuses_a_time_whose_end_is_no_int64():
    for place in ("tumbling windows", "sliding windows", "session windows"):
        with pytest.raises(StateError, match="no window contains"):
            PLACES[place](pa.array([2**63 - 1]))


def test_offsets_of_kafka_begin_at_the_datetime():
    noon = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
    expected = 1_767_268_800_000
    for time in (
        noon,
        noon.replace(tzinfo=None),
        noon.astimezone(dt.timezone(dt.timedelta(hours=5))),
        noon + dt.timedelta(microseconds=999),
        expected,
    ):
        assert KafkaOffsets.at_time(time).time == expected
