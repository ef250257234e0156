"""Windows that are put together from panes: aggregates of all kinds, two phases, and tasks whose watermarks differ."""

from collections import defaultdict
from datetime import UTC, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs
from tests.kit import stream_jobs
from tests.kit.panes import (
    AGGREGATES,
    FIXED,
    KEYS,
    aggregated,
    by_task,
    groups_of,
    restored,
)
from tests.kit.stream_jobs import wait_for_a_checkpoint
from tests.kit.windows import (
    SCHEMA,
    WINDOWS,
    Model,
    SessionModel,
    batch_of,
    ms,
    rows,
    rows_of,
)

from headgate.errors import OptionError, StateError, UnsupportedTypeError
from headgate.sink import FileSink, FunctionSink
from headgate.stream import (
    Aggregate,
    KeyedStateBackend,
    ReducingStateDescriptor,
    SessionWindow,
    SessionWindowOperator,
    SlidingWindow,
    SnapshotFolder,
    TumblingWindow,
    WindowOperator,
    stream,
)
from headgate.stream.state.timers import NO_WATERMARK
from headgate.stream.windows.partials import PANE, PanePartials


def modelled(name, lateness):
    model = (SessionModel if name == "session" else Model)(WINDOWS[name], lateness)
    model.result = lambda window: (*window, *aggregated(model.windows[window]))
    return model


def operator(name, lateness=0, backend=None, aggregates=AGGREGATES, **options):
    kind = SessionWindowOperator if name == "session" else WindowOperator
    settings = {"keys": ["user"], "time": "at", "window": WINDOWS[name]} | options
    schema = settings.pop("schema", SCHEMA)
    return kind(
        schema, aggregates=aggregates, allowed_lateness=ms(lateness), backend=backend, **settings
    )


def in_order(results):
    return sorted(results, key=repr)


@pytest.mark.parametrize("lateness", [0, 5])
@pytest.mark.parametrize("name", WINDOWS)
@settings(max_examples=25, deadline=None)
@given(st.lists(rows | st.integers(-6, 30), max_size=8), st.integers(0, 7))
def test_filters_and_distinct_counts_through_a_snapshot(name, lateness, steps, at):
    ours, model = operator(name, lateness), modelled(name, lateness)
    for number, step in enumerate([*steps, 100]):
        if number == at:
            (backend,) = restored([ours], [None])
            ours = operator(name, lateness, backend)
            again = ours.advance_watermark(model.watermark)
            assert again.results.num_rows == 0, "no window is emitted again"
        if isinstance(step, int):
            results = ours.advance_watermark(step).results
            assert in_order(rows_of(results)) == model.advance(step)
        else:
            output = ours.process(batch_of(step))
            results, late = model.process(step)
            assert in_order(rows_of(output.results)) == in_order(results)
            assert in_order(rows_of(output.late)) == in_order(late)
    assert sum(state.table().num_rows for state in ours.backend.states.values()) == 0


class Tasks:
    """The tasks of an operator, and a model of each key, whose watermark is that of its task."""

    def __init__(self, name, lateness):
        self.name, self.lateness = name, lateness
        self.models = {key: modelled(name, lateness) for key in (None, "a", "b")}
        backends = [
            KeyedStateBackend(KEYS, key_groups=groups, namespace=WindowOperator.namespace)
            for groups in groups_of(2)
        ]
        self.tasks = [operator(name, lateness, backend) for backend in backends]

    def restart(self, parallelism):
        """Go on from a checkpoint with another number of tasks."""
        backends = restored(self.tasks, groups_of(parallelism))
        self.tasks = [operator(self.name, self.lateness, backend) for backend in backends]

    def process(self, rows):
        parts = by_task(rows, len(self.tasks))
        outputs = [t.process(batch_of(part)) for t, part in zip(self.tasks, parts, strict=True)]
        results, late = [], []
        for key, model in self.models.items():
            of_key = model.process([row for row in rows if row[0] == key])
            results += of_key[0]
            late += of_key[1]
        assert in_order(r for o in outputs for r in rows_of(o.results)) == in_order(results)
        assert in_order(r for o in outputs for r in rows_of(o.late)) == in_order(late)

    def advance(self, *watermarks):
        results, expected = [], []
        for at, watermark in enumerate(watermarks):
            results += rows_of(self.tasks[at].advance_watermark(watermark).results)
            for key, model in self.models.items():
                if by_task([(key, 0, 0)], len(self.tasks))[at]:
                    expected += model.advance(watermark)
        assert in_order(results) == in_order(expected)


@pytest.mark.parametrize("lateness", [0, 5])
@pytest.mark.parametrize("name", FIXED)
@settings(max_examples=25, deadline=None)
@given(
    before=st.lists(rows, min_size=1, max_size=4),
    watermarks=st.tuples(st.integers(-3, 25), st.integers(-3, 25)),
    between=rows,
    after=st.lists(rows | st.integers(0, 40), max_size=5),
    parallelism=st.integers(1, 3),
)
def test_tasks_whose_watermarks_differ_become_others(
    name, lateness, before, watermarks, between, after, parallelism
):
    """After a checkpoint that is not aligned: no window is emitted twice, and no row is lost."""
    tasks = Tasks(name, lateness)
    for step in before:
        tasks.process(step)
    tasks.advance(*watermarks)
    tasks.process(between)
    # A snapshot of tasks that have no watermark since they were restored has those that they restored.
    for number in (parallelism, 2, parallelism):
        tasks.restart(number)
    for step in [*after, 100]:
        if isinstance(step, int):
            tasks.advance(*[step] * parallelism)
        else:
            tasks.process(step)


class TwoPhases:
    """Tasks that aggregate their rows and one that merges, with a model and the last result of each window."""

    def __init__(self, name, lateness):
        self.name, self.lateness = name, lateness
        self.tasks = [self.first_phase() for _ in range(3)]
        self.merge = self.second_phase(None)
        self.model = Model(WINDOWS[name], lateness)
        self.model.result = lambda window: (
            *window,
            *aggregated([(user, at, price) for _, at, (user, price) in self.model.windows[window]]),
        )
        self.last, self.expected = {}, {}

    def first_phase(self, watermark=NO_WATERMARK):
        options = {"window": WINDOWS[self.name], "time": "at", "aggregates": AGGREGATES}
        task = PanePartials(SCHEMA, allowed_lateness=ms(self.lateness), **options)
        task.watermark = watermark
        return task

    def second_phase(self, backend):
        options = {"schema": self.tasks[0].schema, "keys": [], "time": PANE, "partials_of": SCHEMA}
        return operator(self.name, self.lateness, backend, **options)

    @property
    def least(self):
        """The watermark of the merge."""
        return min(task.watermark for task in self.tasks)

    def keep(self, results):
        self.last |= {row[:2]: row[2:] for row in rows_of(results)}

    def send(self, task):
        panes = task.take()
        if panes.num_rows:
            output = self.merge.process(panes)
            assert output.late.num_rows == 0
            self.keep(output.results)

    def fail(self, parallelism):
        """Take a checkpoint, before which all panes are sent on, and go on from it with so many tasks."""
        for task in self.tasks:
            self.send(task)
        self.merge = self.second_phase(restored([self.merge], [None])[0])
        self.tasks = [self.first_phase(self.least) for _ in range(parallelism)]

    def advance(self, task, watermark):
        task.watermark = max(task.watermark, watermark)
        if task.is_due:
            self.send(task)
        self.keep(self.merge.advance_watermark(self.least).results)
        self.expected |= {row[1:3]: row[3:] for row in self.model.advance(self.least)}

    def process(self, task, rows):
        of_task = modelled(self.name, self.lateness)
        of_task.watermark = task.watermark
        _, late = of_task.process(rows)
        assert in_order(rows_of(task.process(batch_of(rows)))) == in_order(late)
        in_time = [
            (None, at, (user, price)) for user, at, price in rows if (user, at, price) not in late
        ]
        updates, _ = self.model.process(in_time)
        self.expected |= {row[1:3]: row[3:] for row in updates}
        if task.is_due:
            self.send(task)


@pytest.mark.parametrize("lateness", [0, 5])
@pytest.mark.parametrize("name", FIXED)
@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            rows
            | st.integers(-6, 30)
            | st.just("send")
            | st.tuples(st.just("fail"), st.integers(1, 4)),
        ),
        max_size=12,
    )
)
def test_two_phases_are_one(name, lateness, steps):
    """Each task puts late rows aside by its own watermark; the merge has the least of all."""
    phases = TwoPhases(name, lateness)
    for at, step in [*steps, *((task, 100) for task in range(4))]:
        task = phases.tasks[at % len(phases.tasks)]
        if step == "send":
            phases.send(task)
        elif isinstance(step, tuple):
            phases.fail(step[1])
        elif isinstance(step, int):
            phases.advance(task, step)
        else:
            phases.process(task, step)
    assert phases.last == phases.expected


def test_windows_of_a_snapshot_from_before_there_were_panes():
    backend = KeyedStateBackend(KEYS, namespace=WindowOperator.namespace)
    counts = backend.get_state(ReducingStateDescriptor("count", "count", pa.int64()))
    starts = pa.array([0, 5, 10], pa.int64())
    backend.set_keys([pa.array(["a", "a", "b"]), starts, pc.add(starts, 5)])
    counts.add(pa.array([1, 1, 1]))
    # The first window is emitted, and waits for late rows.
    backend.event_timers.register([8, 9, 14])
    backend.event_timers.register([8, 13, 18])
    folder = SnapshotFolder("task", fs._MockFileSystem())
    backend.snapshot(1).write(folder)
    options = {"aggregates": [Aggregate("count")], "lateness": 4}

    ours = operator("tumbling", backend=KeyedStateBackend.restore([(folder, 1)]), **options)
    assert rows_of(ours.advance_watermark(7).results) == []
    assert rows_of(ours.process(batch_of([("a", 1, 1)])).results) == [("a", 0, 5, 2)]
    assert rows_of(ours.advance_watermark(100).results) == [("a", 5, 10, 1), ("b", 10, 15, 1)]
    with pytest.raises(StateError, match="panes of 5 ms"):
        operator("sliding", backend=KeyedStateBackend.restore([(folder, 1)]), **options)


def test_a_row_is_added_once_however_many_windows_overlap():
    window = SlidingWindow(timedelta(minutes=1), timedelta(seconds=1))
    ours = operator("sliding", window=window, aggregates=[Aggregate("count")])
    ours.process(batch_of([("a", at, 1) for at in range(0, 60_000, 10)]))
    assert ours.backend.states["count"].table()["value"].to_pylist() == [100] * 60
    results = ours.advance_watermark(10**6).results
    assert len(results) == 119
    assert pc.max(results["count"]).as_py() == 6000


def test_times_far_apart_close_only_windows_that_have_rows():
    ours = operator("sliding", aggregates=[Aggregate("count")])
    ours.process(batch_of([("a", 0, 1), ("a", 10**15, 1)]))
    results = ours.advance_watermark(2**62).results
    assert results["count"].to_pylist() == [1] * 6


NUMBERS = 4000


def numbers(tmp_path, rate):
    """Return numbers with event times, of which a map fails once."""
    source = stream_jobs.RateSource(rate, rows=NUMBERS, start_time=stream_jobs.START, splits=3)
    fail = stream_jobs.FailOnce(tmp_path / "failed", 150)
    return (
        stream(source, watermarks=stream_jobs.watermarks(), name="numbers")
        .map(stream_jobs.with_key, name="keys")
        .map(fail, name="fail")
    )


def test_windows_of_all_rows_in_a_job_that_fails_and_changes_its_parallelism(tmp_path):
    def job(rate):
        results = numbers(tmp_path, rate).window(
            SlidingWindow("60s", "15s"),
            time="at",
            aggregates=[
                Aggregate("count"),
                Aggregate("sum", "id", where=pc.field("key") == 3, name="threes"),
                Aggregate("count_distinct", "key", name="keys"),
                Aggregate("approx_count_distinct", "id", name="ids"),
            ],
            name="all",
        )
        return results.sink(FileSink(str(tmp_path / "out"), mode="append"), name="files")

    options = {"checkpoint": str(tmp_path / "checkpoints"), "interval": 0.1}
    query = job(1000).start(parallelism=2, restart_delay=0.01, **options)
    wait_for_a_checkpoint(query, 4)
    savepoint = query.stop(savepoint=str(tmp_path / "savepoint"))
    assert query.status.restarts == 1
    job(20_000).run(parallelism=3, savepoint=savepoint, checkpoint=str(tmp_path / "others"))

    of_window = defaultdict(list)
    for number in range(NUMBERS):
        at = number // stream_jobs.KEYS + stream_jobs.START // 1000
        for start in range(at // 15 * 15 - 45, at + 1, 15):
            of_window[start].append(number)
    ours = stream_jobs.rows_of(tmp_path / "out").sort_by("window_start").to_pylist()
    assert [row["window_start"].timestamp() for row in utc(ours)] == sorted(of_window)
    for row, start in zip(ours, sorted(of_window), strict=True):
        mine = of_window[start]
        threes = [number for number in mine if number % stream_jobs.KEYS == 3]
        assert row["count"] == len(mine)
        assert row["threes"] == (sum(threes) or None)
        assert row["keys"] == len({number % stream_jobs.KEYS for number in mine})
        assert row["ids"] == pytest.approx(len(mine), rel=0.05)


def utc(rows):
    for row in rows:
        row["window_start"] = row["window_start"].replace(tzinfo=UTC)
    return rows


@pytest.mark.parametrize("kind", ["function", "session", "late"])
def test_other_windows_of_all_rows(kind):
    batches, late = [], []
    rows = stream_jobs.numbers(500)
    if kind == "function":
        results = rows.window(
            TumblingWindow("20s"),
            time="at",
            function=lambda windows: pa.record_batch([windows["rows"].value_lengths()], ["rows"]),
        )
        results.sink(FunctionSink(batches.append)).run(parallelism=2)
        assert sum(sum(batch["rows"].to_pylist()) for batch in batches) == 500
    elif kind == "session":
        # The 39 seconds of numbers are one session.
        results = rows.window(SessionWindow("2s"), time="at", aggregates=[Aggregate("count")])
        results.sink(FunctionSink(batches.append)).run(parallelism=2)
        assert [batch["count"].to_pylist() for batch in batches] == [[500]]
    else:
        source = stream_jobs.NumberSequenceSource(0, 500, splits=1, batch_size=100)
        ahead = stream_jobs.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
            lambda batch: pc.add(batch["id"], stream_jobs.START + 100_000)
        )
        results = (
            stream(source, watermarks=ahead)
            .map(stream_jobs.with_key)
            .window(TumblingWindow("5s"), time="at", aggregates=[Aggregate("count")], name="all")
        )
        results.side_output("late").sink(FunctionSink(late.append))
        query = results.sink(FunctionSink(batches.append)).start()
        query.await_termination(60)
        counted = sum(sum(batch["count"].to_pylist()) for batch in batches)
        assert counted + sum(batch.num_rows for batch in late) == 500
        assert all(batch.schema.names == ["id", "key", "at"] for batch in late)


def test_running_aggregates_have_filters_and_distinct_counts_too():
    rows = []
    numbers = stream_jobs.numbers(2000).map(
        lambda batch: batch.append_column("part", pc.bit_wise_and(batch["id"], 31))
    )
    totals = numbers.key_by("key").aggregate(
        Aggregate("count", where=pc.field("part") < 8, name="low"),
        Aggregate("count_distinct", "part"),
        Aggregate("approx_count_distinct", "part"),
        every="5ms",
    )
    sink = FunctionSink(lambda batch: rows.extend(batch.to_pylist()))
    totals.sink(sink).run(parallelism=2)
    last = {row["key"]: row for row in rows if row["_change_type"] != "update_before"}
    for key in range(stream_jobs.KEYS):
        parts = [number & 31 for number in range(key, 2000, stream_jobs.KEYS)]
        assert last[key]["low"] == sum(part < 8 for part in parts)
        assert last[key]["count_distinct_part"] == len(set(parts))
        assert last[key]["approx_count_distinct_part"] == pytest.approx(len(set(parts)), abs=1)


def test_arguments_of_windows_are_checked():
    rows = stream_jobs.numbers(10)
    with pytest.raises(OptionError, match="more than the one task"):
        rows.window(SessionWindow("1s"), time="at", aggregates=[Aggregate("count")], parallelism=2)
    for where in (pc.field("nothing") > 1, pc.field("key"), pc.field("key") > "a"):
        with pytest.raises(StateError, match="does not fit the rows"):
            rows.window(
                TumblingWindow("1s"), time="at", aggregates=[Aggregate("count", where=where)]
            )
    with pytest.raises(OptionError, match="where="):
        Aggregate("count", where="key > 3")
    lists = rows.map(
        lambda batch: batch.append_column(
            "list", pa.array([[1]] * len(batch), pa.list_(pa.int64()))
        )
    )
    with pytest.raises(UnsupportedTypeError, match="an approximate count"):
        lists.window(
            TumblingWindow("1s"), time="at", aggregates=[Aggregate("approx_count_distinct", "list")]
        )
