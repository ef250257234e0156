"""Statistics: clocks in workers, and snapshots on the driver."""

import json
import re
from dataclasses import FrozenInstanceError, asdict, fields, replace

import pyarrow as pa
import pytest
from tests.driver.kept_stats import skewed, stats_of

from headgate.spark.progress.render import count, html, size
from headgate.spark.progress.run_stats import SCHEMA_VERSION
from headgate.spark.progress.stats import ExchangeStats
from headgate.spark.progress.task_stats import TaskStats
from headgate.spark.tasks.timing import BLOCKED, EMIT, FUNCTION, INPUT, Clock, yielded
from headgate.spark.tasks.user_function import Source, apply


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


# Snapshots.


@pytest.fixture
def stats():
    return skewed()


def test_the_numbers_of_a_run(stats):
    assert (stats.rows_per_second, stats.bytes_per_second) == (150.0, 1500.0)
    parts = [(task.idle_ms, task.busy_ms, task.back_pressured_ms) for task in stats.tasks]
    assert parts == [(500, 2000, 0), (300, 9700, 0), (9700, 300, 0)]
    assert {stage.name: stage.busy_ms for stage in stats.stages} == {
        "source": 500,
        "map": 2000,
        "exchange": 0,
        "reduce": 10_000,
        "sink": 0,
    }
    assert (stats.verdict.kind, stats.verdict.task) == ("skew", 0)
    with pytest.raises(FrozenInstanceError):
        stats.rows = 1
    assert not hasattr(stats, "__dict__")


def test_json_and_arrow_have_everything(stats):
    told = json.loads(stats.to_json())
    assert told["schema_version"] == SCHEMA_VERSION
    assert told["verdict"]["kind"] == "skew"
    assert told["tasks"] == [asdict(task) for task in stats.tasks]
    assert set(told) == {field.name for field in fields(ExchangeStats)}
    table = stats.to_arrow()
    assert table.sort_by([("role", "ascending"), ("task", "ascending")]).to_pylist() == [
        asdict(task) | {} for task in stats.tasks
    ]
    assert stats_of().to_arrow().num_rows == 0


def test_the_text_of_a_snapshot(stats):
    lines = str(replace(stats, splits_done=3, file_bytes=5_000)).split("\n")
    assert lines[0] == "headgate exchange 7878, run 1: running after 10.0 s"
    assert lines[1].startswith(
        "  1.5K rows  15.0 kB  150 rows/s  1.5 kB/s  1 producers  2 consumers"
    )
    assert lines[2:5] == [
        "  splits done: 3",
        "  kept: 5.0 kB in files",
        "  map 1  reduce 2/2",
    ]
    assert lines[8] == (
        "  reduce   idle  50 %  busy  50 %  (10.0 s)  blocked   0 %  (task 0: 97 % busy)"
    )
    assert lines[10] == (
        "  slowest: reduce 0 is busy 97 %, the others at most 3 %; it got 92 % of the rows"
    )
    assert lines[11].startswith("  may help: ")
    assert len(lines) == 12


def test_the_text_before_anybody_has_told_anything():
    stats = stats_of(consumers_total=2)
    assert str(stats).split("\n")[2:] == ["  kept: 0 B in files", "  reduce 0/2"]
    assert "<table>" not in stats._repr_html_()


def test_html_escapes_what_users_named(stats):
    words = "map raised ValueError: <script>alert('&')</script>"
    stats = replace(stats, state="failed", error="HG-6001", error_summary=words)
    page = stats._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;alert(&#x27;&amp;&#x27;)&lt;/script&gt;" in page
    assert "failed [HG-6001]" in page
    assert stats.error_summary in str(stats)


def test_html_shows_the_stages_and_the_busiest_tasks(stats):
    page = html(stats)
    for words in ("idle 50 %, busy 50 %", "3 tasks", "reduce 0", "97 % busy", "reduce 0 is busy"):
        assert words in page
    tasks = tuple(TaskStats("map", number, function_ms=number) for number in range(100))
    page = html(stats_of(*tasks, state="done"))
    assert "map 99<" in page
    assert "map 35<" not in page
    assert "36 more tasks are not shown" in page


def test_html_tells_for_how_long_a_task_runs_that_has_not_reported():
    done = [TaskStats("map", number, "done", function_ms=9) for number in range(100)]
    tasks = (*done, TaskStats("map", 100, attempt=7, started_ms=2500))
    page = html(stats_of(*tasks, seconds=14.8))
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
