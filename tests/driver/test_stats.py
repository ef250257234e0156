"""Statistics: clocks in workers, messages on the way, snapshots on the driver."""

import contextlib
import json
import re
import socket
import time
from dataclasses import FrozenInstanceError, asdict, fields

import pyarrow as pa
import pytest
from tests.driver.actors import Theatre

from headgate.control.cause import Cause
from headgate.control.connection import WorkerConnection
from headgate.environment import Waits
from headgate.observe.edges import matrix
from headgate.spark.progress.facts import Facts
from headgate.spark.progress.plain import plain
from headgate.spark.progress.render import count, html, size
from headgate.spark.progress.run_stats import SCHEMA_VERSION
from headgate.spark.progress.stats import ExchangeStats, snapshot
from headgate.spark.progress.task_stats import TaskStats
from headgate.spark.tasks.control import Control, Counts
from headgate.spark.tasks.timing import BLOCKED, EMIT, FUNCTION, INPUT, Clock, yielded
from headgate.spark.tasks.user_function import Source, apply
from headgate.spark.wire.messages import MAX_MESSAGE, decode

TIMES = ("input_ms", "function_ms", "emit_ms", "blocked_ms")


class Time:
    """A clock that only a test advances."""

    def __init__(self):
        self.ns = 5

    def __call__(self):
        return self.ns

    def wait(self, ms):
        self.ns += ms * 1_000_000


@pytest.fixture
def timed():
    now = Time()
    return now, Clock(now)


def spent(clock):
    return tuple(clock.fields().values())


# Clocks.


def test_a_clock_counts_for_the_state_it_is_in(timed):
    now, clock = timed
    now.wait(3)
    assert spent(clock) == (3, 0, 0, 0)
    for state, ms in ((FUNCTION, 5), (EMIT, 7), (BLOCKED, 11), (INPUT, 13)):
        clock.enter(state)
        now.wait(ms)
    assert spent(clock) == (16, 5, 7, 11)
    assert sum(spent(clock)) == 39


def test_what_emit_waited_for_segments_is_back_pressure(timed):
    now, clock = timed
    clock.enter(EMIT)
    clock.blocked_ns = lambda: 30_000_000
    now.wait(40)
    assert spent(clock) == (0, 0, 10, 30)
    clock.blocked_ns = lambda: 50_000_000  # more than the clock: it was read a little later
    assert spent(clock) == (0, 0, 0, 40)


def test_the_times_of_a_producers_loop(timed):
    now, clock = timed

    def origin():
        for _ in range(3):
            now.wait(100)
            yield pa.record_batch({"n": [1]})

    def function(batches):
        for batch in batches:
            now.wait(10)
            yield batch
        now.wait(1)

    for _ in apply("map", function, Source(origin(), pa.schema([]), lambda _: None, clock)):
        clock.enter(EMIT)
        now.wait(2)
        clock.enter(FUNCTION)
    assert spent(clock) == (300, 31, 6, 0)


def test_the_times_of_a_consumer(timed):
    now, clock = timed

    def origin():
        now.wait(100)
        yield pa.record_batch({"n": [1]})

    def function(batches):
        for batch in batches:
            now.wait(10)
            yield batch
            yield batch

    for _ in yielded(
        apply("reduce", function, Source(origin(), pa.schema([]), lambda _: None, clock)), clock
    ):
        now.wait(1000)
    now.wait(7)
    assert spent(clock) == (107, 10, 0, 2000), "after its end the consumer is idle"


def test_an_origin_that_raises_is_not_waited_for_any_more(timed):
    now, clock = timed

    def origin():
        now.wait(5)
        raise ValueError("no more")
        yield

    with pytest.raises(ValueError, match="no more"):
        next(Source(origin(), pa.schema([]), lambda _: None, clock))
    now.wait(9)
    assert spent(clock) == (5, 9, 0, 0)


def test_of_several_threads_the_busiest_stands_for_the_task(timed):
    now, idle = timed
    busy = Clock(now)
    busy.enter(FUNCTION)
    now.wait(50)
    counts = Counts(rows=3, bytes=4, clocks=[idle, busy])
    assert counts.fields() == {
        "rows": 3,
        "bytes": 4,
        **dict(zip(TIMES, (0, 50, 0, 0), strict=True)),
    }
    assert Counts(rows=3).fields() == {"rows": 3, "bytes": 0}


# Messages.


def progress_of(**fields):
    body = {"kind": "PROGRESS", "run": 1, "epoch": 0, **fields}
    return decode(json.dumps(body).encode())


@pytest.mark.parametrize("bad", [-1, 1.5, "7", None, True, [], {}, 1 << 63, float("nan")])
def test_what_is_no_number_of_a_progress_message_is_dropped(bad):
    message = progress_of(rows=5, bytes=bad, input_ms=bad, more=bad)
    assert message.fields == {"rows": 5}


def test_what_a_producer_waits_for_reaches_its_statistics(timed):
    waits = Waits(disk_ns=9, memory_ns=1_000_000, link_ns=2_000_000, io_ns=3_999_999)
    fields = Counts(clocks=[timed[1]], waits=lambda: waits).fields()
    theatre = Theatre()
    theatre.stage(1, 1)
    theatre.consumer(0)
    (run,) = theatre.submitted
    producer = theatre.producer(run, 0)
    theatre.say(producer, "PROGRESS", progress_of(**fields).fields, run.number)
    (task,) = [task for task in snapshot(run, run.started + 5.0).tasks if task.role == "map"]
    assert (task.memory_ms, task.link_ms, task.io_ms) == (1, 2, 3)


def test_malformed_progress_reaches_the_coordinator_as_nothing():
    theatre = Theatre()
    theatre.stage(1, 1)
    consumer = theatre.consumer(0)
    (run,) = theatre.submitted
    producer = theatre.producer(run, 0)
    for connection in (producer, consumer):
        message = progress_of(rows="many", input_ms=-5, cause="x", state="DONE", attempt=9)
        theatre.say(connection, "PROGRESS", message.fields, run.number)
    stats = snapshot(run, run.started + 5.0)
    assert (stats.state, stats.rows, stats.rows_received, stats.verdict) == ("running", 0, 0, None)
    assert {task.state for task in stats.tasks} == {"running"}


def test_progress_is_dropped_when_the_driver_does_not_read(monkeypatch):
    near, far = socket.socketpair()
    near.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while near.send(b"x" * MAX_MESSAGE):
            pass
    sent = []
    monkeypatch.setattr(Control, "send", lambda _self, kind, fields: sent.append((kind, fields)))
    control = object.__new__(Control)
    control._connection = object.__new__(WorkerConnection)
    control._connection.sock = near
    control.progress(Counts(rows=1))
    assert sent == []
    far.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while far.recv(1 << 20):
            pass
    control.progress(Counts(rows=1))
    assert sent == [("PROGRESS", {"rows": 1, "bytes": 0})]
    near.close()
    far.close()


# Snapshots.


@pytest.fixture
def run():
    theatre = Theatre()
    theatre.stage(1, 2)
    consumers = [theatre.consumer(0), theatre.consumer(1)]
    (run,) = theatre.submitted
    producers = [theatre.producer(run, 0), theatre.producer(run, 1)]
    blocked = dict(zip(TIMES, (500, 2000, 500, 7000), strict=True))
    for producer, rows in zip(producers, (1000, 500), strict=True):
        theatre.say(producer, "PROGRESS", {"rows": rows, "bytes": 10 * rows, **blocked}, run.number)
    for consumer, (rows, busy) in zip(consumers, ((1200, 9700), (100, 300)), strict=True):
        times = dict(zip(TIMES, (10_000 - busy, busy, 0, 0), strict=True))
        theatre.say(consumer, "PROGRESS", {"rows": rows, "bytes": rows, **times}, run.number)
    run.theatre = theatre
    return run


def test_the_snapshot_of_a_run(run):
    stats = snapshot(run, run.started + 10.0)
    assert (stats.rows, stats.rows_received, stats.bytes) == (1500, 1300, 15_000)
    assert (stats.state, stats.seconds, stats.error) == ("running", 10.0, "")
    assert (stats.rows_per_second, stats.bytes_per_second) == (150.0, 1500.0)
    assert (stats.splits_done, stats.splits_total, stats.share_done) == (0, None, None)
    assert [(task.role, task.task) for task in stats.tasks] == [
        ("map", 0),
        ("map", 1),
        ("reduce", 0),
        ("reduce", 1),
    ]
    parts = [(task.idle_ms, task.busy_ms, task.back_pressured_ms) for task in stats.tasks]
    assert parts == [(500, 2500, 7000)] * 2 + [(300, 9700, 0), (9700, 300, 0)]
    assert {stage.name: stage.busy_ms for stage in stats.stages} == {
        "source": 1000,
        "map": 4000,
        "exchange": 1000,
        "reduce": 10_000,
        "sink": 0,
    }
    assert (stats.verdict.kind, stats.verdict.task) == ("skew", 0)
    with pytest.raises(FrozenInstanceError):
        stats.rows = 1
    assert not hasattr(stats, "__dict__")


def test_tasks_have_hosts_and_times_in_the_run():
    theatre = Theatre()
    theatre.stage(1, 2)
    consumers = [theatre.consumer(0)]
    theatre.wait(5)
    consumers.append(theatre.consumer(1))
    (run,) = theatre.submitted
    theatre.wait(2)
    producer = theatre.producer(run, 0)
    edges = {"edges": [30, 20], "edges_each": 1}
    theatre.say(producer, "PROGRESS", {"rows": 1, "hostname": "node-a", **edges}, run.number)
    theatre.wait(1)
    theatre.say(consumers[0], "PROGRESS", {"hostname": "node-b"}, run.number)
    theatre.done(producer, run.number)
    theatre.wait(9)
    stats = snapshot(run, theatre.now, Facts({"a": {"value": "1", "source": "conf"}}, {"b": "2"}))
    assert [(t.host, t.attempt, t.started_ms, t.ended_ms) for t in stats.tasks] == [
        ("node-a", 3, 2000, 3000),
        ("node-b", 1, 0, None),
        ("", 2, 0, None),
    ]
    assert stats.edges == matrix([(0, 1, [30, 20])])
    assert (stats.options, stats.versions) == ({"a": {"value": "1", "source": "conf"}}, {"b": "2"})
    assert abs(stats.started_at + 12 - time.time()) < 60


def test_the_edges_of_an_epoch_that_ended_do_not_count(run):
    theatre = run.theatre
    (first, second) = (p.connection for p in run.roster.producers.values())
    theatre.say(first, "PROGRESS", {"edges": [30, 20], "edges_each": 1}, run.number)
    assert snapshot(run, 0).edges["bytes"] == [[30, 20]]
    theatre.hang_up(second)
    assert run.epoch == 1
    assert snapshot(run, 0).edges is None


def test_why_an_epoch_ended_is_told(run):
    assert snapshot(run, 0).ended_epochs == ()
    run.theatre.hang_up(run.roster.producers[0].connection)
    (ended,) = snapshot(run, 0).ended_epochs
    cause = run.epochs.causes.last
    assert ended == {"epoch": 0, "error": cause.code, "summary": cause.summary}
    assert plain(snapshot(run, 0))["ended_epochs"] == [ended]


@pytest.mark.parametrize(
    "bad",
    [
        {"hostname": "x" * 256},
        {"hostname": 7},
        {"edges": [1] * 65},
        {"edges": [-1]},
        {"edges": ["1"]},
        {"edges": 5},
        {"edges": [1 << 63]},
        {"edges_each": -1},
        {"edges_each": None},
    ],
)
def test_hosts_and_edges_that_are_none_are_dropped(bad):
    assert progress_of(rows=5, **bad).fields == {"rows": 5}


def test_a_percentage_only_where_the_total_is_known(run):
    run.splits_done = 3
    assert snapshot(run, run.started + 3.0).share_done is None
    assert "splits done: 3\n" in str(snapshot(run, run.started + 3.0))
    run.splits_total = 12
    assert snapshot(run, run.started + 3.0).share_done == 0.25
    assert "splits done: 3 of 12\n" in str(snapshot(run, run.started + 3.0))
    run.splits_done = 13
    assert snapshot(run, run.started + 3.0).share_done == 1.0


def test_it_says_so_when_consumers_hold_all_slots():
    theatre = Theatre(slots=2)
    theatre.stage(1, 2)
    theatre.consumer(0)
    theatre.consumer(1)
    theatre.settle()
    (run,) = theatre.submitted
    assert snapshot(run, run.started + 3.0).verdict.kind == "waiting-for-slots"
    theatre.coordinator.slots = 3
    theatre.settle()
    assert snapshot(run, run.started + 3.0).verdict is None


def test_json_and_arrow_have_everything(run):
    stats = snapshot(run, run.started + 10.0)
    told = json.loads(stats.to_json())
    assert told["schema_version"] == SCHEMA_VERSION
    assert told["verdict"]["kind"] == "skew"
    assert told["tasks"] == [asdict(task) for task in stats.tasks]
    assert set(told) == {field.name for field in fields(ExchangeStats)}
    table = stats.to_arrow()
    assert table.sort_by([("role", "ascending"), ("task", "ascending")]).to_pylist() == [
        asdict(task) | {} for task in stats.tasks
    ]
    assert ExchangeStats("", 1, 0, "done", "", 0, 0, 0, 0, 0, 0, 0, 0).to_arrow().num_rows == 0


def test_the_text_of_a_snapshot(run):
    lines = str(snapshot(run, run.started + 10.0)).split("\n")
    assert lines[0] == "headgate exchange 7878, run 1: running after 10.0 s"
    assert lines[1].startswith(
        "  1.5K rows  15.0 kB  150 rows/s  1.5 kB/s  0 producers  2 consumers"
    )
    assert lines[5] == (
        "  reduce   idle  50 %  busy  50 %  (10.0 s)  blocked   0 %  (task 0: 97 % busy)"
    )
    assert lines[7] == (
        "  slowest: reduce 0 is busy 97 %, the others at most 3 %; it got 92 % of the rows"
    )
    assert lines[8].startswith("  may help: ")
    assert len(lines) == 9


def test_the_text_before_anybody_has_told_anything():
    stats = ExchangeStats("ab" * 16, 1, 0, "running", "", 0.0, 0, 0, 0, 0, 0, 0, 0)
    assert str(stats).count("\n") == 1
    assert "<table>" not in stats._repr_html_()


def test_html_escapes_what_users_named(run):
    run.fail(Cause("HG-6001", "map raised ValueError: <script>alert('&')</script>"))
    stats = snapshot(run, run.started + 10.0)
    page = stats._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;alert(&#x27;&amp;&#x27;)&lt;/script&gt;" in page
    assert "failed [HG-6001]" in page
    assert stats.error_summary in str(stats)


def test_html_shows_the_stages_and_the_busiest_tasks(run):
    page = html(snapshot(run, run.started + 10.0))
    for words in ("idle 50 %, busy 50 %", "4 tasks", "reduce 0", "97 % busy", "reduce 0 is busy"):
        assert words in page
    tasks = tuple(TaskStats("map", number, function_ms=number) for number in range(100))
    stats = ExchangeStats("", 1, 0, "done", "", 1, 0, 0, 0, 0, 0, 0, 0, tasks=tasks)
    page = html(stats)
    assert "map 99<" in page
    assert "map 35<" not in page
    assert "36 more tasks are not shown" in page


def test_html_tells_for_how_long_a_task_runs_that_has_not_reported():
    done = [TaskStats("map", number, "done", function_ms=9) for number in range(100)]
    tasks = (*done, TaskStats("map", 100, attempt=7, started_ms=2500))
    page = html(ExchangeStats("", 1, 0, "running", "", 14.8, 0, 0, 0, 0, 0, 0, 0, tasks=tasks))
    cells = page[page.index("map 100<") :].split("</tr>")[0]
    assert re.findall(">([^<]+)</td>", cells) == ["running for 12.3 s", *["-"] * 6]


@pytest.mark.parametrize(
    ("number", "rows", "data"),
    [
        (0, "0", "0 B"),
        (999, "999", "999 B"),
        (1000, "1.0K", "1.0 kB"),
        (99_949, "99.9K", "99.9 kB"),
        (99_950, "100K", "100 kB"),
        (999_500, "1.0M", "1.0 MB"),
        (17_392_641, "17.4M", "17.4 MB"),
        (5.1e9, "5.1G", "5.1 GB"),
        (1e18, "1000000T", "1000000 TB"),
    ],
)
def test_numbers_are_humanised(number, rows, data):
    assert (count(number), size(number)) == (rows, data)
