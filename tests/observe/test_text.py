"""A run as a line, as text, as HTML and as data."""

import json
import re
from dataclasses import FrozenInstanceError, asdict, fields, replace

import pytest
from tests.kit.runs import HOSTILE, run_of, skewed, state

import headgate as hg
from headgate._group_size import GroupSize
from headgate.observe.numbers import count, size
from headgate.observe.process import record_of
from headgate.observe.record import Run, Stage, Task
from headgate.observe.state import SCHEMA_VERSION, state_of
from headgate.observe.text import html, text
from headgate.observe.view import view


@pytest.fixture
def stats():
    return skewed()


def test_the_numbers_of_a_run(stats):
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
    stats = replace(stats, largest_group=GroupSize({"user": "ann", "day": None}, 7, 100))
    told = json.loads(stats.to_json())
    assert told["largest_group"] == asdict(stats.largest_group)
    assert told["schema_version"] == SCHEMA_VERSION
    assert told["verdict"]["kind"] == "skew"
    assert told["tasks"] == [asdict(task) for task in stats.tasks]
    assert set(told) == {"schema_version"} | {field.name for field in fields(Run)}
    table = stats.to_arrow()
    assert table.sort_by([("role", "ascending"), ("task", "ascending")]).to_pylist() == [
        asdict(task) | {} for task in stats.tasks
    ]
    assert run_of().to_arrow().num_rows == 0


def test_html_before_anybody_has_told_anything():
    assert "<table>" not in run_of(consumers_total=2)._repr_html_()


def test_html_escapes_what_users_named(stats):
    words = "map raised ValueError: <script>alert('&')</script>"
    stats = replace(stats, state="failed", error="HG-6001", error_summary=words)
    page = stats._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;alert(&#x27;&amp;&#x27;)&lt;/script&gt;" in page
    assert "failed [HG-6001]" in page
    assert stats.error_summary in str(stats)


def test_html_shows_the_stages_and_the_busiest_tasks(stats):
    page = stats._repr_html_()
    for words in ("idle 50 %, busy 50 %", "3 tasks", "reduce 0", "97 % busy", "reduce 0 is busy"):
        assert words in page
    tasks = tuple(Task("map", number, function_ms=number) for number in range(100))
    page = run_of(*tasks, state="done")._repr_html_()
    assert "map 99<" in page
    assert "map 35<" not in page
    assert "36 more tasks are not shown" in page


def test_html_tells_for_how_long_a_task_runs_that_has_not_reported():
    done = [Task("map", number, "done", function_ms=9) for number in range(100)]
    tasks = (*done, Task("map", 100, attempt=7, started_ms=2500))
    page = run_of(*tasks, seconds=14.8)._repr_html_()
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


def test_the_text_of_a_streaming_job_has_the_same_parts():
    job = state()["runs"][2]
    figures = "; 315 calls/s, p50 202 ms, p99 410 ms; errors: TimeoutError 12"
    assert text(job).split("\n") == [
        "headgate streaming job clicks, attempt 2: running after 42.0 s",
        "  10 rows  0 rows/s  1 tasks  1 restarts",
        "  checkpoint 7 took 0.1 s, 4.1 kB",
        f"  embed waits for its service{figures}",
        f"  {HOSTILE} waits for its service{figures}",
        "  source   idle  45 %  busy  45 %   (0.0 s)  blocked   9 %",
    ]
    assert "streaming job clicks, attempt 2: running" in html(job)


def test_an_environment_fills_the_record_of_a_process():
    with hg.ShuffleEnvironment(memory="16m") as environment:
        partition = environment.create_result_partition(2)
        with hg.RecordWriter(partition, serializer="bytes") as writer:
            writer.broadcast_emit(b"to both")
        made = record_of(environment.stats(), "worker 7")
    (task,) = made.tasks
    assert (made.mode, made.rows, made.pages, task.rows) == ("process", 2, 2, 2)
    assert made.seconds == sum((task.idle_ms, task.busy_ms, task.back_pressured_ms)) / 1000
    assert made.peak_resident_bytes == task.peak_resident_bytes > 10 << 20
    run = replace(made, seconds=2.0, bytes=100, peak_bytes=0, peak_resident_bytes=147_000_000)
    run = replace(run, stages=(Stage("process", 1, 100, 300, 100, 0, 0.6),))
    assert run.line(80) == "headgate worker 7/1  2 rows  100 B"
    assert str(run).split("\n") == [
        "headgate process worker 7: running after 2.0 s",
        "  2 rows  100 B  1 rows/s  50 B/s  process peak 147 MB",
        "  process  idle  20 %  busy  60 %   (0.3 s)  blocked  20 %",
    ]
    assert view(state_of([run.plain()]))["run"]["title"] == "process worker 7"
