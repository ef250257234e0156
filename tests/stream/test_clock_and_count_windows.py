"""Windows of numbers of rows against a model that takes a row at a time, and jobs with windows of processing time."""

from collections import Counter, defaultdict
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit import stream_jobs
from tests.kit.panes import AGGREGATES, KEYS, aggregated, by_task, groups_of, restored
from tests.kit.stream_jobs import wait_for_a_checkpoint
from tests.kit.windows import SCHEMA, batch_of, rows, rows_of

from headgate.errors import OptionError, StateError
from headgate.sink import FileSink, FunctionSink
from headgate.source import NumberSequenceSource, RateSource
from headgate.stream import (
    Aggregate,
    CountWindow,
    KeyedStateBackend,
    SlidingWindow,
    Top,
    TumblingWindow,
    stream,
)
from headgate.stream.windows.counted import CountWindowOperator

COUNTS = {
    "tumbling": CountWindow(3),
    "sliding": CountWindow(6, 2),
    "sliding unevenly": CountWindow(5, 3),
    "single": CountWindow(1),
}


class CountModel:
    """Windows of rows of a key."""

    def __init__(self, window):
        self.window, self.rows = window, defaultdict(list)

    def process(self, rows):
        results = []
        for row in rows:
            of_key = self.rows[row[0]]
            of_key.append(row)
            end = len(of_key)
            if end % self.window.step == 0:
                start = max(0, end - self.window.n)
                results.append((row[0], start, end, *self.result(of_key[start:end])))
        return Counter(results)

    def result(self, rows):
        return aggregated(rows)


def counted(name, backend, **options):
    options = options or {"aggregates": AGGREGATES}
    return CountWindowOperator(
        SCHEMA, keys=["user"], window=COUNTS[name], backend=backend, **options
    )


def tasks_of(name, parallelism, **options):
    return [
        counted(
            name,
            KeyedStateBackend(KEYS, key_groups=groups, namespace=CountWindowOperator.namespace),
            **options,
        )
        for groups in groups_of(parallelism)
    ]


@pytest.mark.parametrize("name", COUNTS)
@settings(max_examples=20, deadline=None)
@given(st.lists(rows | st.integers(1, 3), max_size=10), st.integers(1, 5))
def test_numbers_of_rows_through_restarts_with_other_parallelisms(name, steps, pairs):
    tasks, model = tasks_of(name, 2), CountModel(COUNTS[name])
    with patch("headgate.stream.windows.counted._PAIRS", pairs):
        for step in steps:
            if isinstance(step, int):
                tasks = [counted(name, backend) for backend in restored(tasks, groups_of(step))]
                continue
            results = [
                row
                for task, part in zip(tasks, by_task(step, len(tasks)), strict=True)
                for row in rows_of(task.process(batch_of(part)).results)
            ]
            assert Counter(results) == model.process(step)
    step = COUNTS[name].step
    left = sum(len(of_key) % step for of_key in model.rows.values())
    assert sum(task.left for task in tasks) == left
    # Windows that are not full need these panes, and no others are there.
    panes = sum(task.backend.states["count"].table().num_rows for task in tasks)
    assert panes <= sum(-(-COUNTS[name].n // task._length) for task in tasks for _ in range(3))


@settings(max_examples=20, deadline=None)
@given(st.lists(rows, max_size=8))
def test_a_function_gets_a_number_of_rows(steps):
    def lists(windows):
        texts = [str([tuple(row.values()) for row in of]) for of in windows["rows"].to_pylist()]
        columns = windows.select(["user", "window_start", "window_end"])
        return columns.append_column("rows", pa.array(texts, pa.string()))

    (ours,) = tasks_of("sliding unevenly", 1, function=lists)
    model = CountModel(COUNTS["sliding unevenly"])
    model.result = lambda rows: (str(rows),)
    for step in steps:
        assert Counter(rows_of(ours.process(batch_of(step)).results)) == model.process(step)


@pytest.mark.parametrize("has_keys", [False, True])
def test_each_row_counts_once_in_windows_of_processing_time_of_a_job(tmp_path, has_keys):
    def job(rate):
        source = RateSource(rate, rows=4000, start_time=stream_jobs.START, splits=3)
        fail = stream_jobs.FailOnce(tmp_path / "failed", 150)
        rows = stream(source, name="numbers").map(stream_jobs.with_key, name="keys")
        rows = rows.map(fail, name="fail")
        rows = rows.key_by("key") if has_keys else rows
        counts = [Aggregate("count"), Aggregate("sum", "id")]
        results = rows.window(TumblingWindow("50ms"), aggregates=counts, name="windows")
        return results.sink(FileSink(str(tmp_path / "out"), mode="append"), name="out")

    options = {"checkpoint": str(tmp_path / "checkpoints"), "interval": 0.1, "restart_delay": 0.01}
    query = job(1000).start(parallelism=2, **options)
    wait_for_a_checkpoint(query, 4)
    savepoint = query.stop(savepoint=str(tmp_path / "savepoint"))
    job(20_000).run(parallelism=3, savepoint=savepoint, checkpoint=str(tmp_path / "others"))
    table = stream_jobs.rows_of(tmp_path / "out")
    assert sum(table["count"].to_pylist()) == 4000
    assert sum(table["sum_id"].to_pylist()) == sum(range(4000))


def test_numbers_of_rows_in_a_job():
    batches = []
    rows = stream(NumberSequenceSource(0, 1000, splits=1)).map(stream_jobs.with_key)
    results = rows.key_by("key").window(
        CountWindow(20, 10), aggregates=[Aggregate("count"), Aggregate("max", "id", "last")]
    )
    query = results.sink(FunctionSink(batches.append)).start(parallelism=2)
    query.await_termination(60)
    table = pa.Table.from_batches(batches)
    of_keys = [range(key, 1000, stream_jobs.KEYS) for key in range(stream_jobs.KEYS)]
    ends = [(key, end) for key, ids in enumerate(of_keys) for end in range(10, len(ids) + 1, 10)]
    expected = [(key, min(20, end), of_keys[key][end - 1]) for key, end in ends]
    assert sorted(rows_of(table.select(["key", "count", "last"]))) == sorted(expected)
    left = sum(len(ids) % 10 for ids in of_keys)
    assert sum(query.status.dropped["window-1"].values()) == left


def test_arguments_are_checked():
    rows = stream_jobs.numbers(10)
    counts = [Aggregate("count")]
    for wrong in (lambda: CountWindow(0), lambda: CountWindow(3, 4), lambda: CountWindow(3, 0)):
        with pytest.raises(OptionError):
            wrong()
    for options in ({"time": "at"}, {"allowed_lateness": "1s"}):
        with pytest.raises(StateError, match="has no times"):
            rows.window(CountWindow(3), aggregates=counts, **options)
    with pytest.raises(StateError, match="no row is late"):
        rows.window(TumblingWindow("1s"), aggregates=counts, allowed_lateness="1s")
    with pytest.raises(OptionError, match="more than the one task"):
        rows.window(CountWindow(3), aggregates=counts, parallelism=2)
    for window in (CountWindow(3), TumblingWindow("1s"), SlidingWindow("2s", "1s")):
        with pytest.raises(StateError, match="nothing to choose from"):
            rows.key_by("key").window(window, aggregates=counts, top=Top(1, by="count"))
