"""Jobs on one machine: operators, exchanges, event time, ends and errors."""

import os
import socket
import time
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.kit import stream_jobs

from headgate import errors
from headgate.sink import FileSink, FunctionSink
from headgate.source import NumberSequenceSource
from headgate.stream import (
    Aggregate,
    CoProcessFunction,
    JobState,
    ProcessFunction,
    SessionWindow,
    TumblingWindow,
    ValueStateDescriptor,
    stream,
)


def run(stream_, **options):
    """Run a stream to its end and return its rows."""
    got = []
    stream_.sink(FunctionSink(got.append)).run(**options)
    return pa.Table.from_batches(got, stream_.schema) if got else stream_.schema.empty_table()


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_counts_by_key_over_one_exchange(parallelism):
    counted = (
        stream_jobs.numbers(2000)
        .key_by("key")
        .process(stream_jobs.Count, schema=stream_jobs.COUNTED)
    )
    stream_jobs.check_counts(run(counted, parallelism=parallelism), 2000)


def test_workers_are_processes_of_their_own(tmp_path):
    pids = (
        stream_jobs.numbers(1000)
        .key_by("key")
        .process(Pids, schema=pa.schema([("pid", pa.int64())]))
    )
    job = pids.sink(FileSink(str(tmp_path / "out")))
    job.run(parallelism=2, workers=3)
    found = set(stream_jobs.rows_of(tmp_path / "out")["pid"].to_pylist())
    assert len(found) == 2


class Pids(ProcessFunction):
    def process(self, batch, context):
        import os

        assert context.parallelism == 2
        return pa.record_batch({"pid": [os.getpid()]})


def test_operators_without_an_exchange_run_in_one_task():
    plan = (
        stream_jobs.numbers(10)
        .filter(pc.field("id") > 3)
        .key_by("key")
        .process(stream_jobs.Count, schema=stream_jobs.COUNTED, name="count")
        .map(lambda batch: batch, name="same")
        .sink(FunctionSink(print), name="out")
        .plan(2)
    )
    assert [stage.name for stage in plan.stages] == [
        "numbers -> keys -> filter-1",
        "count -> same -> out",
    ]


def test_filters_take_expressions_and_functions():
    some = stream_jobs.numbers(100).filter(pc.field("id") >= 90)
    some = some.filter(lambda batch: pc.less(batch["id"], 95))
    assert sorted(run(some)["id"].to_pylist()) == list(range(90, 95))


def test_a_map_may_return_any_number_of_batches():
    def twice_or_not(batch):
        yield batch
        yield pa.Table.from_batches([batch])

    assert run(stream_jobs.numbers(50).map(twice_or_not)).num_rows == 100
    assert run(stream_jobs.numbers(50).map(lambda b: [], schema=stream_jobs.COUNTED)).num_rows == 0


def test_tumbling_windows_close_with_the_watermark_and_the_end():
    windows = (
        stream_jobs.numbers(1300, parallelism=1, splits=1)
        .key_by("key")
        .window(TumblingWindow(timedelta(seconds=10)), time="at", aggregates=[Aggregate("count")])
    )
    table = run(windows, parallelism=2)
    assert table.num_rows == stream_jobs.KEYS * 10
    assert set(table["count"].to_pylist()) == {10}


def test_late_rows_go_to_the_side_output():
    source = NumberSequenceSource(0, 10, splits=1, batch_size=1)

    def times(batch):
        ids = batch["id"]
        # 9 comes with the time of the first: the watermark has passed it by then.
        at = pc.if_else(pc.equal(ids, 9), 0, pc.multiply(ids, 1000))
        return pa.record_batch({"id": ids, "key": pc.multiply(ids, 0), "at": at})

    strategy = stream_jobs.WatermarkStrategy.for_punctuated(
        lambda batch, _: int(batch["id"][0].as_py()) * 1000
    )
    rows = stream(source, watermarks=strategy, parallelism=1).map(times)
    windows = rows.key_by("key").window(
        TumblingWindow(timedelta(seconds=1)), time="at", aggregates=[Aggregate("count")]
    )
    late, results = [], []
    windows.side_output("late").sink(FunctionSink(late.append))
    windows.sink(FunctionSink(results.append)).run()
    assert [row["id"] for batch in late for row in batch.to_pylist()] == [9]
    assert sum(batch.num_rows for batch in results) == 9


def test_sessions_by_key():
    def gaps(batch):
        # A gap after each 10 rows of a key.
        at = pc.add(batch["at"].cast(pa.int64()), pc.multiply(pc.divide(batch["id"], 130), 60_000))
        return batch.set_column(2, "at", at)

    sessions = (
        stream_jobs.numbers(1300)
        .map(gaps)
        .key_by("key")
        .window(SessionWindow(timedelta(seconds=5)), time="at", aggregates=[Aggregate("count")])
    )
    table = run(sessions, parallelism=2)
    assert table.num_rows == stream_jobs.KEYS * 10
    assert set(table["count"].to_pylist()) == {10}


def test_a_union_has_the_rows_of_all():
    some = stream_jobs.numbers(100).union(
        stream(NumberSequenceSource(100, 200)).map(stream_jobs.with_key),
        stream(NumberSequenceSource(200, 300)).map(stream_jobs.with_key),
    )
    counted = some.key_by("key").process(stream_jobs.Count, schema=stream_jobs.COUNTED)
    stream_jobs.check_counts(run(counted, parallelism=2), 300)


def test_a_stream_of_a_union_can_go_on_by_itself():
    a, b, c = (stream(NumberSequenceSource(at, at + 1), name=f"s{at}") for at in range(3))
    c.union(a.union(b)).sink(FunctionSink(print), name="all")
    plan = b.sink(FunctionSink(print), name="b").plan()
    assert [stage.name for stage in plan.stages] == ["s2", "s0", "s1 -> b", "all"]


def test_a_broadcast_reaches_all_tasks_and_a_rebalance_one():
    index = pa.schema([("index", pa.int64()), ("rows", pa.int64())])
    everywhere = stream_jobs.numbers(100).broadcast().process(Indexes, schema=index, parallelism=3)
    table = run(everywhere).group_by("index").aggregate([("rows", "sum")])
    assert sorted(table["index"].to_pylist()) == [0, 1, 2]
    assert table["rows_sum"].to_pylist() == [100] * 3
    once = stream_jobs.numbers(100).rebalance().process(Indexes, schema=index, parallelism=3)
    assert pc.sum(run(once)["rows"]).as_py() == 100


class Indexes(ProcessFunction):
    def process(self, batch, context):
        return pa.record_batch({"index": [context.index], "rows": [batch.num_rows]})


class Join(CoProcessFunction):
    """Emits the name of a number once both sides have come."""

    def open(self, context):
        self.name = context.get_state(ValueStateDescriptor("name", pa.string()))
        self.number = context.get_state(ValueStateDescriptor("number", pa.int64()))

    def process_first(self, batch, context):
        self.number.put(batch["id"])
        return self.both(context)

    def process_second(self, batch, context):
        self.name.put(batch["name"])
        return self.both(context)

    def both(self, context):
        number, name = self.number.get(), self.name.get()
        found = pa.record_batch({"number": number, "name": name})
        return found.filter(pc.and_(number.is_valid(), name.is_valid()))


def test_two_connected_streams_share_state_by_key():
    numbers = stream(NumberSequenceSource(0, 100)).key_by("id")
    names = stream(NumberSequenceSource(50, 150)).map(
        lambda b: pa.record_batch({"of": b["id"], "name": b["id"].cast(pa.string())})
    )
    schema = pa.schema([("number", pa.int64()), ("name", pa.string())])
    joined = numbers.connect(names.key_by("of")).process(Join, schema=schema)
    table = run(joined, parallelism=2)
    assert sorted(table["number"].to_pylist()) == list(range(50, 100))
    assert table["number"].cast(pa.string()).equals(table["name"])


class Alarm(ProcessFunction):
    """Emits each key once, by a timer of processing time."""

    def open(self, context):
        self.seen = context.get_state(ValueStateDescriptor("seen", pa.bool_()))

    def process(self, batch, context):
        now = context.processing_time
        context.processing_timers.register(pa.array([now + 20] * batch.num_rows))
        context.event_timers.register(pa.array([stream_jobs.START] * batch.num_rows))
        return []

    def on_processing_timers(self, timers, context):
        keys = context.keys
        new = pc.is_null(self.seen.get())
        self.seen.put(pa.array([True] * keys.num_rows))
        found = keys.filter(new)
        return found.append_column("kind", pa.array(["processing"] * found.num_rows))

    def on_event_timers(self, timers, context):
        assert timers.schema.names == ["key", "timestamp"]
        return context.keys.append_column("kind", pa.array(["event"] * context.keys.num_rows))


def test_timers_of_both_kinds_fire():
    schema = pa.schema([("key", pa.int64()), ("kind", pa.string())])
    rows = stream_jobs.numbers(300, rate=1000).key_by("key").process(Alarm, schema=schema)
    found = run(rows).to_pylist()
    by_kind = {
        kind: [r["key"] for r in found if r["kind"] == kind] for kind in ("event", "processing")
    }
    assert sorted(by_kind["processing"]) == list(range(stream_jobs.KEYS))
    assert set(by_kind["event"]) == set(range(stream_jobs.KEYS))


class LateAlarm(ProcessFunction):
    """Registers timers that are due after the last row."""

    def process(self, batch, context):
        now = context.processing_time
        context.processing_timers.register(pa.array([now + 100] * batch.num_rows))
        return batch.select(["key"])

    def on_processing_timers(self, timers, context):
        return context.keys


def test_a_timer_that_is_due_after_the_end_does_not_fire():
    schema = pa.schema([("key", pa.int64())])
    rows = stream_jobs.numbers(97, splits=1).key_by("key").process(LateAlarm, schema=schema)

    def slow(batch):
        time.sleep(0.3)
        return batch

    # The task of the timers waits for the last checkpoint, and the slow one keeps it waiting. On a slow machine the
    # timers may be due before the end.
    assert run(rows.key_by("key").map(slow, schema=schema)).num_rows in {97, 97 + stream_jobs.KEYS}


def test_an_error_of_a_function_names_the_operator_and_has_its_traceback():
    def broken(batch):
        return 1 // 0 if batch.num_rows else batch

    with pytest.raises(
        errors.UserFunctionError, match="map of breaks failed: ZeroDivisionError"
    ) as failed:
        run(stream_jobs.numbers(10).map(broken, name="breaks"))
    assert "in broken" in failed.value.cause_text


def test_rows_of_another_schema_are_refused():
    wrong = pa.record_batch({"x": [1]})
    rows = stream_jobs.numbers(10).key_by("key").process(Returns(wrong), schema=stream_jobs.COUNTED)
    with pytest.raises(errors.SchemaMismatchError, match="process of process-1 returned no column"):
        run(rows)


class Returns(ProcessFunction):
    def __init__(self, found):
        self.found = found

    def process(self, batch, context):
        return self.found


def test_a_cancelled_job_ends_and_leaves_nothing():
    job = (
        stream_jobs.numbers(10_000_000, rate=1000)
        .key_by("key")
        .process(stream_jobs.Count, schema=stream_jobs.COUNTED)
    )
    query = job.sink(FunctionSink(lambda batch: None)).start(parallelism=2)
    assert not query.await_termination(0.3)
    query.cancel()
    assert query.state is JobState.CANCELLED
    assert query.await_termination(0)


def test_the_status_has_the_processes_of_the_workers_and_says_which_have_no_task():
    job = stream_jobs.numbers(10_000_000, rate=1000).sink(FunctionSink(len))
    with job.start(workers=2, parallelism=1) as query:
        deadline = time.monotonic() + 60
        while query.state is JobState.STARTING:
            assert time.monotonic() < deadline
            query.await_termination(0.01)
        workers = query.status.workers
        notices = query.status.notices
    assert any("1 of the 2 workers have nothing to do" in notice for notice in notices)
    assert [one.number for one in workers] == [0, 1]
    assert len({one.pid for one in workers} | {os.getpid()}) == 3
    assert {one.host for one in workers} == {socket.gethostname()}


def test_the_status_counts_rows():
    counted = (
        stream_jobs.numbers(500)
        .key_by("key")
        .process(stream_jobs.Count, schema=stream_jobs.COUNTED)
    )
    query = counted.sink(FunctionSink(lambda batch: None)).start(parallelism=2)
    assert query.await_termination(30)
    rows = {}
    for task in query.status.tasks:
        rows[task.role] = rows.get(task.role, 0) + task.rows
    assert set(rows.values()) == {500}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: stream_jobs.numbers(1).key_by(), "without columns"),
        (lambda: stream_jobs.numbers(1).key_by("kye"), "there is no column 'kye'"),
        (lambda: stream_jobs.numbers(1).side_output("x"), "no side output 'x'"),
        (
            lambda: stream_jobs.numbers(1).map(lambda b: b, name="numbers"),
            "two operators are named",
        ),
        (
            lambda: stream_jobs.numbers(1).sink(FunctionSink(print)).plan(0),
            "parallelism=0 is outside 1 to 128",
        ),
        (
            lambda: stream_jobs.numbers(1).union(stream(NumberSequenceSource(0, 1))),
            "different schemas",
        ),
        (
            lambda: stream_jobs.numbers(1).map(lambda b: b.no_such()),
            "and it failed: AttributeError",
        ),
        (
            lambda: (
                stream_jobs.numbers(1).sink(FunctionSink(print)).start(options={"memroy": "1m"})
            ),
            "memroy",
        ),
        (
            lambda: (
                stream_jobs.numbers(1).sink(FunctionSink(print)).start(interval=-1, checkpoint="x")
            ),
            "interval=-1",
        ),
    ],
)
def test_a_job_that_cannot_run_is_refused_at_once(make, message):
    with pytest.raises(errors.HeadgateError, match=message):
        make()
