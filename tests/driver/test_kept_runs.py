"""The runs of kept exchanges, made from the reports of tasks."""

import json
import logging
import time
from array import array
from dataclasses import asdict
from types import SimpleNamespace

import pytest

from headgate._group_size import GroupSize
from headgate.observe.record import Failure, Task
from headgate.spark.driver.kept import runs as kept_runs
from headgate.spark.driver.kept import spark_tasks
from headgate.spark.driver.kept.outcome import DONE, RUNNING, Outcome, failed, failure_of
from headgate.spark.driver.kept.run_record import record_of
from headgate.spark.driver.kept.runs import KeptRuns
from headgate.spark.driver.kept.spark_tasks import RunningTask, SparkTasks
from headgate.spark.driver.kept.stages import StageCounts
from headgate.spark.progress.settings import ExchangeSettings
from headgate.spark.tasks.notice import Notice
from headgate.spark.tasks.report import TaskReport

TIMES = {"input_ms": 100, "function_ms": 200, "emit_ms": 300, "blocked_ms": 0}


def session():
    """A session whose application has ended, so that nothing asks the JVM."""
    numbers = iter(range(10_000, 20_000))
    context = SimpleNamespace(
        applicationId="app-1",
        _jsc=None,
        accumulator=lambda *_: SimpleNamespace(aid=next(numbers)),
    )
    return SimpleNamespace(sparkContext=context)


def nothing(_stages):
    """Tell that Spark knows none of these stages."""
    return {}


def nobody():
    """Tell that no task runs or has failed."""
    return SparkTasks(lambda _stage, _attempt: [], lambda _stage, _attempt: [])


@pytest.fixture
def began():
    return []


@pytest.fixture
def runs(began):
    return KeptRuns(session(), lambda _, run: began.append(run), nothing, nobody())


def report(role="map", task=0, attempt=0, **more):
    figures = {"rows": 10, "bytes": 1000, "peak_bytes": 64, **TIMES}
    more_figures = {*figures, "disk_ms", "peak_resident_bytes"}
    figures |= {name: more.pop(name) for name in list(more) if name in more_figures}
    figures["host"] = more.pop("hostname", "")
    about = {
        "exchange": "ab12",
        "partitions": 2,
        "execution": 7,
        "stage": 1 if role == "map" else 2,
        "failures": 0,
        "host": "elsewhere",
        "directories": (),
        "pages": 3 if role == "map" else 0,
    }
    record = Task(role, task, "done", attempt=attempt, **figures)
    return TaskReport(record=record, attempt=attempt, **{**about, **more})


def stats(runs, run):
    return record_of(runs, run, time.monotonic())


def test_reports_of_one_execution_are_one_run(runs, began):
    runs.reports.add([report(task=0), report(task=1, file_bytes=500)])
    runs.reports.add([report("reduce", rows=20)])
    (run,) = began
    found = stats(runs, run)
    assert (found.producers, found.consumers) == (2, 1)
    assert (found.rows, found.rows_received, found.bytes, found.pages) == (20, 20, 2000, 6)
    assert (found.file_bytes, found.peak_bytes, found.mode) == (500, 64, "kept")
    assert found.seconds >= sum(TIMES.values()) / 1000
    assert [task.role for task in found.tasks] == ["map", "map", "reduce"]
    assert "kept: 500 B in files" in str(found)
    assert "ran again" not in str(found)


def test_tasks_that_wait_for_their_files_name_the_disk(runs, began):
    times = {**TIMES, "emit_ms": 4700}
    runs.reports.add([report(task=task, **times, disk_ms=4000) for task in range(2)])
    found = stats(runs, began[0])
    assert [task.disk_ms for task in found.tasks] == [4000, 4000]
    text = "waiting for files to be written takes 80 % of the time of producer 0"
    assert (found.verdict.kind, found.verdict.text) == ("disk", text)


def test_a_run_has_the_hosts_times_and_edges_of_its_tasks(runs, began, monkeypatch):
    monkeypatch.setattr(kept_runs.time, "monotonic", lambda: 1000.0)
    runs.reports.add([report(task=0, attempt=5, hostname="a", edges=array("q", [7, 0]))])
    monkeypatch.setattr(kept_runs.time, "monotonic", lambda: 1002.0)
    runs.reports.add([report(task=1, attempt=6, hostname="b", edges=array("q", [1, 2]))])
    runs.reports.add([report("reduce", attempt=7, hostname="a")])
    found = stats(runs, began[0])
    assert [(t.host, t.attempt, t.started_ms, t.ended_ms) for t in found.tasks] == [
        ("a", 5, 0, 600),
        ("b", 6, 2000, 2600),
        ("a", 7, 2000, 2600),
    ]
    assert found.edges["bytes"] == [[7, 0], [1, 2]]
    assert (found.edges["producers"], found.edges["consumers"]) == ([0, 1], [0, 1])


def test_a_run_names_the_largest_group_of_its_consumers(runs, began):
    sizes = [None, GroupSize({"user": "ann"}, 9, 70), GroupSize({"user": "<b>", "n": None}, 7, 90)]
    reports = [
        report("reduce", task, task, largest_group=group) for task, group in enumerate(sizes)
    ]
    runs.reports.add(reports[:1])
    assert stats(runs, began[0]).largest_group is None
    assert stats(runs, began[0]).notices == ()
    runs.reports.add(reports[1:])
    record = stats(runs, began[0])
    assert record.largest_group == sizes[2]
    assert "the largest group has 7 rows and 90 B in memory: user=<b>, n=null" in str(record)
    assert "user=&lt;b&gt;" in record._repr_html_()


def test_a_producer_that_ran_again_has_its_newest_edges(runs, began):
    runs.reports.add([report(task=0, attempt=1, edges=[1, 1])])
    runs.reports.add([report(task=0, attempt=2, edges=[5, 0])])
    assert stats(runs, began[0]).edges["bytes"] == [[5, 0]]


def test_a_run_has_what_is_known_of_its_exchange(runs, began, monkeypatch):
    facts = ExchangeSettings({"memory": {"value": "64m", "source": "default"}}, {"headgate": "1"})
    runs.reports.add([report(exchange="cd00")])
    assert stats(runs, began[0]).options == {}
    runs.add_settings("ab", facts)
    runs.reports.add([report(exchange="ab00")])
    found = stats(runs, began[1])
    assert (found.options, found.versions) == (facts.options, facts.versions)
    monkeypatch.setattr(kept_runs, "_MOST_SETTINGS", 3)
    for number in range(9):
        runs.add_settings(str(number), facts)
    assert list(runs.settings) == ["6", "7", "8"]


def test_another_execution_or_exchange_is_another_run(runs, began):
    for about in ({}, {"execution": 8}, {"exchange": "cd34"}, {"execution": None}, {}):
        runs.reports.add([report(**about)])
    assert [run.number for run in began] == [1, 2, 3, 4]


def test_a_producer_that_ran_again_counts_once_and_is_told_of(runs, began):
    runs.reports.add([report(task=0, attempt=1), report(task=1, attempt=2)])
    runs.reports.add([report(task=1, attempt=5, rows=11, failures=1)])
    found = stats(runs, began[0])
    assert (found.producers, found.rows) == (2, 21)
    # Spark's number of failures has the attempt too that succeeded, and whose output was lost.
    assert (found.made_again, found.failed_attempts) == (1, 0)
    runs.reports.add([report(task=1, attempt=7, rows=11, failures=3)])
    found = stats(runs, began[0])
    assert (found.made_again, found.failed_attempts) == (2, 1)
    assert "2 producers ran again, as their output was lost; 1 attempts failed" in str(found)


class LivingSession(SimpleNamespace):
    """A session whose SQL executions go on until their errors, or None, are in ``ended``."""

    def __init__(self):
        alive = session()
        alive.sparkContext._jsc = object()
        super().__init__(sparkContext=alive.sparkContext, ended={})
        self._jsparkSession = SimpleNamespace(sharedState=lambda: self)

    def statusStore(self):  # noqa: N802 - Spark's name
        return self

    def execution(self, number):
        ended = option(0 if number in self.ended else None)
        found = SimpleNamespace(
            completionTime=lambda: ended, errorMessage=lambda: option(self.ended.get(number))
        )
        return option(found)


def option(value):
    return SimpleNamespace(isDefined=lambda: value is not None, get=lambda: value)


@pytest.fixture
def counts():
    return {}


@pytest.fixture
def alive():
    return LivingSession()


class Tasks(dict):
    """Stage and attempt -> the tasks that run, as Spark tells them; None raises. ``asked`` has all questions."""

    def __init__(self):
        super().__init__()
        self.asked = []
        #: Stage and attempt -> those that have failed, and the questions for them.
        self.failed = {}
        self.asked_failed = []

    def ask_failed(self, stage, attempt):
        self.asked_failed.append((stage, attempt))
        return self.failed[stage, attempt]

    def ask(self, stage, attempt):
        self.asked.append((stage, attempt))
        found = self.get((stage, attempt), [])
        if found is None:
            raise RuntimeError("no such method")
        return found


@pytest.fixture
def tasks():
    return Tasks()


@pytest.fixture
def living(began, counts, alive, tasks):
    def look(stages):
        return {stage: counts[stage] for stage in stages if stage in counts}

    return KeptRuns(
        alive, lambda _, run: began.append(run), look, SparkTasks(tasks.ask, tasks.ask_failed)
    )


def line(runs, run):
    return stats(runs, run).line(400)


def test_a_run_is_known_when_its_first_task_starts(living, began, counts, alive):
    assert living.live() == []
    living.start(Notice("ab", 2, "map", 7, stage=1))
    living.start(Notice("ab", 2, "map", 7, stage=1))
    (run,) = began
    assert line(living, run) == "headgate ab/1  reduce 0/2"
    counts[1] = StageCounts(attempt=0, running=4, tasks=6, failed=0)
    found = stats(living, run)
    assert (found.state, found.producers, found.rows) == ("running", 0, 0)
    assert (found.producers_running, found.producers_total) == (4, 6)
    assert (found.consumers_running, found.consumers_total) == (0, 2)
    assert line(living, run) == "headgate ab/1  map 0/6, 4 running  reduce 0/2"
    assert "map 0/6, 4 running  reduce 0/2" in str(found)
    assert living.live() == [run]
    alive.ended[7] = None
    assert living.live() == []
    assert stats(living, run).state == "done"
    assert "map 0/6" not in str(stats(living, run))


def test_a_line_tells_of_both_stages_and_of_what_ran_again(living, began, counts):
    living.start(Notice("ab", 2, "map", 7, stage=1))
    living.reports.add([report(task=0, file_bytes=500), report(task=1, file_bytes=500)])
    counts[1] = StageCounts(attempt=0, running=0, tasks=2, failed=1)
    living.start(Notice("ab", 2, "reduce", 7, stage=2))
    counts[2] = StageCounts(attempt=0, running=1, tasks=2, failed=0)
    living.reports.add([report("reduce", task=0, rows=8)])
    begin = "headgate ab/1  map 2/2  reduce 1/2, 1 running  20 rows  2.0 kB  1.0 kB in files  8 rows read"
    assert line(living, began[0]) == begin + "  1 attempts failed"
    # An executor is lost: a consumer fails, and Spark runs one producer again.
    counts[2] = StageCounts(attempt=0, running=0, tasks=2, failed=1)
    stats(living, began[0])
    counts[1] = StageCounts(attempt=1, running=1, tasks=1, failed=0)
    assert "map 2/2, 1 running  reduce 1/2  " in line(living, began[0])
    living.reports.add([report(task=1, attempt=9)])
    counts[1] = StageCounts(attempt=1, running=0, tasks=1, failed=0)
    counts[2] = StageCounts(attempt=1, running=1, tasks=1, failed=0)
    words = "1 producers ran again, as their output was lost  2 attempts failed"
    assert line(living, began[0]).endswith(words)
    assert stats(living, began[0]).producers_total == 2


def test_a_run_whose_producers_ran_before_has_consumers_only(living, began, counts):
    living.start(Notice("ab", 4, "reduce", 8, stage=5))
    counts[5] = StageCounts(attempt=0, running=3, tasks=4, failed=0)
    assert line(living, began[0]) == "headgate ab/1  reduce 0/4, 3 running"


def test_a_union_with_itself_has_more_consumers_than_partitions(living, began, counts):
    living.start(Notice("ab", 2, "reduce", 7, stage=2))
    counts[2] = StageCounts(attempt=0, running=2, tasks=4, failed=0)
    living.reports.add([report("reduce", task) for task in range(2)])
    assert stats(living, began[0]).state == "running"
    living.reports.add([report("reduce", task) for task in (2, 3)])
    assert living.outcome(began[0]) == DONE


def test_a_run_of_an_rdd_lasts_as_long_as_its_tasks_run(living, began, counts):
    living.start(Notice("ab", 2, "map", None, stage=1))
    counts[1] = StageCounts(attempt=0, running=1, tasks=2, failed=0)
    assert living.outcome(began[0]) == RUNNING
    counts[1] = StageCounts(attempt=0, running=0, tasks=2, failed=0)
    assert living.live() == []
    living.start(Notice("ab", 2, "reduce", None, stage=2))
    counts[2] = StageCounts(attempt=0, running=1, tasks=2, failed=0)
    assert living.live() == began


def test_tasks_that_run_are_listed_until_they_report(living, began, counts, tasks):
    living.start(Notice("ab", 2, "map", 7, stage=1))
    counts[1] = StageCounts(attempt=3, running=2, tasks=6, failed=0)
    now = time.time()
    tasks[1, 3] = [RunningTask(0, 11, "a", now + 2), RunningTask(4, 12, "b", now - 60)]
    found = stats(living, began[0])
    assert [(t.role, t.task, t.state, t.host, t.attempt) for t in found.tasks] == [
        ("map", 0, "running", "a", 11),
        ("map", 4, "running", "b", 12),
    ]
    assert found.tasks[0].started_ms == pytest.approx(2000, abs=500)
    assert [t.started_ms for t in found.tasks[1:]] == [0], "not before the run"
    assert {(t.ended_ms, t.wall_ms, t.rows) for t in found.tasks} == {(None, 0, 0)}
    assert (found.stages, found.verdict, found.producers) == ((), None, 0), "of reports only"
    living.reports.add([report(task=0, attempt=11)])
    assert [(t.attempt, t.state) for t in stats(living, began[0]).tasks] == [
        (11, "done"),
        (12, "running"),
    ]
    assert stats(living, began[0]).to_arrow()["started_ms"].null_count == 0


def test_spark_is_asked_for_tasks_once_a_second_and_only_of_those_who_look(
    living, began, counts, alive, tasks, monkeypatch
):
    living.start(Notice("ab", 2, "map", 7, stage=1))
    living.start(Notice("ab", 2, "reduce", 7, stage=2))
    counts[1] = StageCounts(attempt=0, running=1, tasks=6, failed=0)
    counts[2] = StageCounts(attempt=0, running=0, tasks=6, failed=0)
    clock = [100.0]
    monkeypatch.setattr(spark_tasks.time, "monotonic", lambda: clock[0])
    record_of(living, began[0], time.monotonic(), lists_tasks=False)
    assert tasks.asked == []
    for _ in range(3):
        stats(living, began[0])
    assert tasks.asked == [(1, 0)], "not of a stage of which no task runs"
    clock[0] += 1.0
    stats(living, began[0])
    assert tasks.asked == [(1, 0)] * 2
    clock[0] += 1.0
    alive.ended[7] = None
    assert stats(living, began[0]).state == "done"
    assert tasks.asked == [(1, 0)] * 2


def test_a_spark_that_lists_no_tasks_costs_one_warning_and_nothing_else(
    living, began, counts, tasks, caplog
):
    living.start(Notice("ab", 2, "map", 7, stage=1))
    counts[1] = StageCounts(attempt=0, running=1, tasks=6, failed=0)
    tasks[1, 0] = None
    found = [stats(living, began[0]) for _ in range(3)]
    assert {(one.state, one.producers_running, one.tasks) for one in found} == {("running", 1, ())}
    assert tasks.asked == [(1, 0)]
    assert ["no such method" in line for line in caplog.messages] == [True]


def test_attempts_that_failed_are_listed_with_their_causes(living, began, counts, alive, tasks):
    living.start(Notice("ab", 2, "map", 7, stage=1))
    counts[1] = StageCounts(attempt=0, running=0, tasks=6, failed=0)
    assert (stats(living, began[0]).failures, tasks.asked_failed) == ((), [])
    counts[1] = StageCounts(attempt=0, running=0, tasks=6, failed=1)
    tasks.failed[1, 0] = [failure_of(3, 11, "a", PYTHON.replace("no", "[HG-4003] map"))]
    record_of(living, began[0], time.monotonic(), lists_tasks=False)
    assert tasks.asked_failed == []
    found = [stats(living, began[0]).failures for _ in range(3)]
    known = Failure(11, "HG-4003", "ValueError: [HG-4003] map", "map", 3, "a")
    assert found == [(known,)] * 3
    assert tasks.asked_failed == [(1, 0)], "asked again only if more have failed"
    counts[1] = StageCounts(attempt=1, running=0, tasks=1, failed=1)
    tasks.failed[1, 1] = [failure_of(3, 12, "b", "ExecutorLostFailure (executor 1)\nlost")]
    alive.ended[7] = "boom"
    second = Failure(12, "", "ExecutorLostFailure (executor 1) lost", "map", 3, "b")
    found = stats(living, began[0])
    assert (found.state, found.failures) == ("failed", (known, second))
    assert "map 3 on b failed: ExecutorLostFailure (executor 1) lost" in str(found)
    assert "map 3 on a failed: ValueError: [HG-4003] map" in found._repr_html_()
    assert json.loads(found.to_json())["failures"] == [asdict(known), asdict(second)]


def test_old_runs_are_forgotten(runs, began, monkeypatch):
    monkeypatch.setattr(kept_runs, "_MOST", 3)
    for number in range(10):
        runs.reports.add([report(execution=number)])
    assert len(began) == 10
    assert len(runs._runs) == len(runs._live) == 3


def test_an_error_in_a_report_does_not_reach_pyspark(runs, began, caplog):
    with caplog.at_level(logging.ERROR, "headgate.spark"):
        runs.reports.add([object()])
    assert "reports of tasks were lost" in caplog.text
    runs.reports.add([report()])
    assert len(began) == 1


def test_workers_get_an_ordinary_accumulator(runs):
    function, (number, value, _) = runs.reports.__reduce__()
    assert function.__module__ == "pyspark.accumulators"
    assert (number, value) == (runs.reports.aid, [])


def test_a_run_is_done_once_all_consumers_have_reported_or_nobody_knows(runs, began):
    runs.reports.add([report(execution=None), report("reduce", 0, execution=None)])
    assert runs.outcome(began[0]) == DONE


PYTHON = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "job.py", line 3, in f
    raise ValueError("no")
ValueError: no
 SQLSTATE: 38000"""


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("Job 3 cancelled\n\tat a.b.C", Outcome("cancelled", "", "Job 3 cancelled")),
        ("boom\n\tat a.b.C", Outcome("failed", "", "boom")),
        (PYTHON, Outcome("failed", "", "ValueError: no")),
        (
            PYTHON.replace("no", "[HG-4003] map"),
            Outcome("failed", "HG-4003", "ValueError: [HG-4003] map"),
        ),
    ],
)
def test_what_sparks_text_says(text, outcome):
    assert failed(text) == outcome


def test_the_parts_of_an_iteration_are_one_run_that_goes_on_until_the_call_ends(
    living, began, alive
):
    alive.ended.update({7: None, 8: None})
    for part in ("ab", "cd"):
        living.add_settings(part, ExchangeSettings({}, {"headgate": part}), "whole")
    with living.iterating("whole"):
        living.reports.add([report(exchange="ab00", rows=3), report("reduce", 0, exchange="ab00")])
        living.reports.add([report("reduce", 1, exchange="ab00")])
        (run,) = began
        assert stats(living, run).state == "running", "more parts may come"
        living.reports.add([report(exchange="cd00", execution=8, rows=4)])
        found = stats(living, run)
        assert (found.name, found.rows, found.consumers_total) == ("whole", 7, 4)
        assert found.versions == {"headgate": "cd"}
        alive.ended[8] = "boom"
        assert stats(living, run).state == "failed"
        alive.ended[8] = None
    assert began == [run]
    assert stats(living, run).state == "done"
