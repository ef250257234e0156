"""The runs of kept exchanges, made from the reports of tasks; the sweep by the driver."""

import logging
import threading
import time
from types import SimpleNamespace

import pytest
from tests.faults.patience import wait_until

from headgate.spark.driver.kept import runs as kept_runs
from headgate.spark.driver.kept.runs import DONE, KeptRuns, Outcome, failed
from headgate.spark.progress.stats import kept_snapshot
from headgate.spark.tasks.report import TaskReport, host

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


@pytest.fixture
def began():
    return []


@pytest.fixture
def runs(began):
    return KeptRuns(session(), lambda _, run: began.append(run))


def report(role="map", task=0, attempt=0, **more):
    about = {
        "exchange": "ab12",
        "partitions": 2,
        "execution": 7,
        "failures": 0,
        "rows": 10,
        "bytes": 1000,
        "pages": 3,
        "file_bytes": 0,
        "splits": 0,
        "peak_bytes": 64,
        "times": TIMES,
        "host": "elsewhere",
        "directories": (),
        "server": None,
    }
    return TaskReport(role=role, task=task, attempt=attempt, **{**about, **more})


def stats(runs, run):
    return kept_snapshot(runs, run, time.monotonic())


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


def test_another_execution_or_exchange_is_another_run(runs, began):
    for about in ({}, {"execution": 8}, {"exchange": "cd34"}, {"execution": None}, {}):
        runs.reports.add([report(**about)])
    assert [run.number for run in began] == [1, 2, 3, 4]


def test_a_producer_that_ran_again_counts_once_and_is_told_of(runs, began):
    runs.reports.add([report(task=0, attempt=1), report(task=1, attempt=2)])
    runs.reports.add([report(task=1, attempt=5, rows=11, failures=1)])
    found = stats(runs, began[0])
    assert (found.producers, found.rows) == (2, 21)
    assert (found.made_again, found.failed_attempts) == (1, 1)
    assert "1 producers ran again, as their output was lost; 1 attempts failed" in str(found)


def test_old_runs_are_forgotten(runs, began, monkeypatch):
    monkeypatch.setattr(kept_runs, "_MOST", 3)
    for number in range(10):
        runs.reports.add([report(execution=number)])
    assert len(began) == 10
    assert len(runs._runs) == 3


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


def test_the_driver_sweeps_the_files_of_executors_on_its_host(began, tmp_path, monkeypatch):
    swept = []

    def sweep(directories):
        swept.append(directories)
        return len(swept) < 3

    monkeypatch.setattr(kept_runs, "sweep", sweep)
    monkeypatch.setattr(kept_runs, "_LOOK", 0.01)
    alive = session()
    alive.sparkContext._jsc = object()
    runs = KeptRuns(alive, lambda *_: None)
    runs.reports.add([report(file_bytes=9, directories=("/elsewhere",))])
    runs.reports.add([report(directories=("/nothing",), host=host())])
    assert not swept
    runs.reports.add([report(file_bytes=9, directories=("/here",), host=host())])
    wait_until(lambda: len(swept) == 3, "three sweeps, until no file was left", 10)
    wait_until(lambda: "headgate-sweep" not in names(), "the thread ends", 10)
    assert set(swept) == {("/here",)}


def test_a_file_that_is_reported_during_the_sweep_is_swept_too(monkeypatch):
    swept = []

    def sweep(directories):
        swept.append(directories)
        if len(swept) == 1:
            runs.reports.add([report(file_bytes=9, directories=("/here",), host=host())])
        return False

    monkeypatch.setattr(kept_runs, "sweep", sweep)
    monkeypatch.setattr(kept_runs, "_LOOK", 0.01)
    alive = session()
    alive.sparkContext._jsc = object()
    runs = KeptRuns(alive, lambda *_: None)
    runs.reports.add([report(file_bytes=9, directories=("/here",), host=host())])
    wait_until(lambda: "headgate-sweep" not in names(), "the thread ends", 10)
    assert len(swept) == 2


def test_the_sweep_ends_with_the_application(monkeypatch):
    monkeypatch.setattr(kept_runs, "sweep", lambda _: True)
    monkeypatch.setattr(kept_runs, "_LOOK", 0.01)
    alive = session()
    alive.sparkContext._jsc = object()
    runs = KeptRuns(alive, lambda *_: None)
    runs.reports.add([report(file_bytes=9, directories=("/here",), host=host())])
    assert "headgate-sweep" in names()
    alive.sparkContext._jsc = None
    wait_until(lambda: "headgate-sweep" not in names(), "the thread ends", 10)


def names():
    return {thread.name for thread in threading.enumerate()}


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
