"""Window operators against a model that adds one row at a time."""

import math
import tracemalloc
from datetime import timedelta
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.windows import (
    AGGREGATES,
    SCHEMA,
    WINDOWS,
    batch_of,
    model_of,
    ms,
    operator,
    rows_of,
    steps,
)

from headgate import _native
from headgate.errors import (
    OptionError,
    SchemaMismatchError,
    StateError,
    UnknownColumnError,
    UnsupportedTypeError,
)
from headgate.stream import (
    Aggregate,
    KeyedStateBackend,
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
    WindowOperator,
)
from headgate.stream.windows.kinds import coded


def check_order(batch, kind):
    ends = batch["window_end"].to_pylist()
    assert ends == sorted(ends)
    assert batch.schema.names[:3] == ["user", "window_start", "window_end"]
    return sorted(rows_of(batch), key=repr)


@pytest.mark.parametrize("lateness", [0, 4])
@pytest.mark.parametrize("name", WINDOWS)
@settings(max_examples=40, deadline=None)
@given(steps)
def test_windows_are_those_of_a_model_of_single_rows(name, lateness, steps):
    check_model(name, lateness, steps)


@pytest.mark.parametrize("name", WINDOWS)
@settings(max_examples=40, deadline=None)
@given(steps, st.integers(1, 8))
def test_windows_that_are_added_and_closed_in_parts(name, steps, pairs):
    with (
        patch("headgate.stream.windows.fixed._PAIRS", pairs),
        patch("headgate.stream.windows.pane_windows.MOST_WINDOWS", pairs),
        patch("headgate.stream.windows.sessions.MOST_WINDOWS", pairs),
    ):
        check_model(name, 4, steps)


def check_model(name, lateness, steps):
    window = WINDOWS[name]
    ours = operator(window, aggregates=AGGREGATES, allowed_lateness=ms(lateness))
    model = model_of(window, lateness)
    for step in [*steps, 100]:
        if isinstance(step, int):
            output = ours.advance_watermark(step)
            assert check_order(output.results, name) == model.advance(step)
            assert output.late.num_rows == 0
        else:
            output = ours.process(batch_of(step))
            results, late = model.process(step)
            assert sorted(rows_of(output.results), key=repr) == results
            assert sorted(rows_of(output.late), key=repr) == sorted(late, key=repr)
    assert not model.windows
    assert sum(state.table().num_rows for state in ours.backend.states.values()) == 0


@pytest.mark.parametrize("name", WINDOWS)
@settings(max_examples=25, deadline=None)
@given(steps)
def test_a_function_gets_closed_windows_with_their_rows(name, steps):
    def median(windows):
        lists = windows["rows"].to_pylist()
        found = [sorted((row["at"], row["price"] or 0) for row in rows) for rows in lists]
        table = windows.select(["user", "window_start", "window_end"])
        return table.append_column("rows", pa.array(map(str, found), pa.string()))

    window = WINDOWS[name]
    ours = operator(window, function=median, allowed_lateness=ms(3))
    model = model_of(window, 3)
    model.result = lambda window: (
        *window,
        str(sorted((time, price or 0) for _, time, price in model.windows[window])),
    )
    for step in [*steps, 100]:
        if isinstance(step, int):
            output = ours.advance_watermark(step)
            assert check_order(output.results, name) == model.advance(step)
        else:
            results, late = model.process(step)
            output = ours.process(batch_of(step))
            assert sorted(rows_of(output.results), key=repr) == results
            assert sorted(rows_of(output.late), key=repr) == sorted(late, key=repr)


def test_times_are_timestamps_and_results_too():
    schema = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us", "UTC")), ("x", pa.float64())])
    times = pa.array([-1, 999, 1000, 1_000_000], pa.int64()).view(pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1, 1, 1, 1]), times, pa.array([0.5, 1.5, math.nan, None])], schema=schema
    )
    ours = WindowOperator(
        schema,
        keys=["k"],
        time="t",
        window=TumblingWindow(ms(1)),
        aggregates=[Aggregate("sum", "x")],
    )
    ours.process(batch)
    results = ours.advance_watermark(5000).results
    assert results.schema.field("window_start").type == pa.timestamp("ms", "UTC")
    assert results["window_start"].view(pa.int64()).to_pylist() == [-1, 0, 1, 1000]
    assert results["sum_x"].to_pylist()[:2] == [0.5, 1.5]
    assert math.isnan(results["sum_x"].to_pylist()[2])
    assert results["sum_x"].to_pylist()[3] is None


@pytest.mark.parametrize("kind", [TumblingWindow, SessionWindow])
@pytest.mark.parametrize(
    "values",
    [
        pa.array([3, 1, 2], pa.timestamp("us", "UTC")),
        pa.array([3, 1, 2], pa.timestamp("ns")),
        pa.array([False, True, False]),
        pa.array(np.array([1.5, 0.5, 1.0], np.float16)),
        pa.array(["c", "a", "b"]),
    ],
    ids=lambda values: str(values.type),
)
def test_the_least_and_the_greatest_of_any_type(kind, values):
    schema = pa.schema([("user", pa.string()), ("at", pa.int64()), ("value", values.type)])
    windows = operator(
        kind(ms(10)),
        schema=schema,
        aggregates=[Aggregate("min", "value"), Aggregate("max", "value")],
    )
    windows.process(pa.record_batch([["a"] * 3, [1, 2, 3], values], schema=schema))
    found = windows.advance_watermark(100).results
    ordered = sorted(values.to_pylist())
    assert found["min_value"].to_pylist() == ordered[:1]
    assert found["max_value"].to_pylist() == ordered[-1:]


def test_a_function_is_called_once_per_batch_of_windows():
    called = []

    def count(windows):
        called.append(windows.num_rows)
        return windows.select(["user"])

    ours = operator(TumblingWindow(ms(1)), function=count)
    ours.process(batch_of([(str(n % 50), n, n) for n in range(500)]))
    ours.advance_watermark(1000)
    assert called == [0, 500]


def test_arguments_are_checked():
    window = TumblingWindow(ms(5))
    with pytest.raises(UnknownColumnError, match="'prize'"):
        operator(window, aggregates=[Aggregate("sum", "prize")])
    with pytest.raises(UnknownColumnError, match="'when'"):
        WindowOperator(SCHEMA, keys=["user"], time="when", window=window, aggregates=AGGREGATES)
    with pytest.raises(StateError, match="aggregates or a function"):
        operator(window)
    with pytest.raises(StateError, match="aggregates or a function"):
        operator(window, aggregates=AGGREGATES, function=lambda windows: windows)
    with pytest.raises(UnsupportedTypeError, match="a sum of column 'user'"):
        operator(window, aggregates=[Aggregate("sum", "user")])
    with pytest.raises(OptionError, match="below the limit of 0"):
        operator(window, aggregates=AGGREGATES, allowed_lateness=ms(-1))
    with pytest.raises(StateError, match="other keys"):
        operator(window, aggregates=AGGREGATES, backend=KeyedStateBackend(SCHEMA))
    for wrong in (
        lambda: TumblingWindow(ms(0)),
        lambda: SlidingWindow(ms(5), ms(0)),
        lambda: SessionWindow(ms(-1)),
    ):
        with pytest.raises(OptionError, match="below the limit"):
            wrong()
    with pytest.raises(StateError, match="not known"):
        Aggregate("median", "price")
    with pytest.raises(StateError, match="of no column"):
        Aggregate("sum")
    ours = operator(window, aggregates=AGGREGATES)
    with pytest.raises(SchemaMismatchError, match="another schema"):
        ours.process(pa.record_batch({"user": ["a"]}))
    with pytest.raises(StateError, match="has no time"):
        ours.process(batch_of([("a", None, 1)]))


def test_many_windows_per_row_take_no_memory_for_all_of_a_batch_at_once():
    window = SlidingWindow(timedelta(hours=1), timedelta(seconds=1))
    windows = operator(window, aggregates=[Aggregate("count")])
    rows = 1024
    columns = [pa.repeat(pa.scalar("a"), rows), pa.repeat(pa.scalar(10**9), rows)]
    columns.append(pa.repeat(pa.scalar(1), rows))
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    tracemalloc.start()
    try:
        windows.process(batch)
        # 3.7 million pairs of a row and a window, of which one number each has 28 MiB.
        assert tracemalloc.get_traced_memory()[1] < 25 << 20
    finally:
        tracemalloc.stop()
    results = windows.advance_watermark(10**10).results
    assert results["count"].to_pylist() == [rows] * 3600


def test_a_function_gets_windows_in_parts_without_too_many_rows():
    found = []

    def lengths(windows):
        found.append(windows["rows"].value_lengths().to_pylist())
        return windows.select(["user", "window_start"])

    windows = operator(TumblingWindow(ms(5)), function=lengths)
    sizes = [3, 9, 25, 1, 1, 1, 30, 4, 4]
    rows = [("a", 5 * n, 1) for n, size in enumerate(sizes) for _ in range(size)]
    windows.process(batch_of(rows))
    found.clear()
    with patch("headgate.stream.windows.pane_windows._ROWS", 10):
        results = windows.advance_watermark(100).results
    assert found == [[3], [9], [25], [1, 1, 1], [30], [4, 4]]
    assert results["window_start"].to_pylist() == [5 * n for n in range(len(sizes))]
    assert windows.advance_watermark(200).results.num_rows == 0


@pytest.mark.parametrize("most", [20, 1 << 40, 1 << 60])
def test_intervals_of_a_key_that_overlap_or_touch_are_one(most):
    random = np.random.default_rng(most)
    for _ in range(300):
        number = random.integers(0, 12)
        keys = random.integers(0, 4, number)
        starts = random.integers(-most, most, number)
        ends = starts + random.integers(1, 9, number) * max(1, most // 9)
        numbers, first, joint_ends = (
            of.to_pylist() for of in _native.join_intervals(keys, starts, ends)
        )
        expected = []
        for at in sorted(range(number), key=lambda at: (keys[at], starts[at], at)):
            if not expected or keys[expected[-1][0]] != keys[at] or starts[at] > expected[-1][1]:
                expected.append((at, ends[at]))
            expected[-1] = expected[-1][0], max(expected[-1][1], ends[at])
            assert numbers[at] == len(expected) - 1
        assert list(zip(first, joint_ends, strict=True)) == expected


@pytest.mark.parametrize("most", [20, 1 << 40, 1 << 60])
def test_codes_are_in_the_order_of_keys_and_times(most):
    random = np.random.default_rng(most)
    for _ in range(100):
        number = random.integers(0, 12)
        keys, times = random.integers(0, 4, number), random.integers(-most, most, number)
        pairs = list(zip(keys.tolist(), times.tolist(), strict=True))
        ranks = {code: rank for rank, code in enumerate(sorted(set(coded(keys, times).tolist())))}
        places = {pair: rank for rank, pair in enumerate(sorted(set(pairs)))}
        assert [ranks[c] for c in coded(keys, times).tolist()] == [places[pair] for pair in pairs]
