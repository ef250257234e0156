"""The progress of a kept exchange while it runs: the log lines, and the statistics."""

import logging
import os
import sys
import threading
import time

import pytest
from pyspark import InheritableThread, cloudpickle
from tests.kit.leftovers import our_threads
from tests.kit.masters import in_executors
from tests.kit.outcomes import once
from tests.kit.waiting import wait_until

from headgate.observe.runs import RUNS
from headgate.observe.top import lines as lines_of_top
from headgate.observe.view import view
from headgate.spark import exchange, last_stats
from headgate.spark.driver import kept_watch

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS = 6_000
PRODUCERS, PARTITIONS, SLOTS = 6, 6, 4


@pytest.fixture
def wide(spark):
    return spark.range(0, ROWS, 1, PRODUCERS).selectExpr(
        "id", "id % 100 as k", "repeat('x', 500) as s"
    )


@pytest.fixture
def lines(monkeypatch, caplog):
    """Return a function that returns the lines about runs so far, one for each look."""
    monkeypatch.setattr("headgate.spark.progress.surfaces.LOG_PERIOD", 0.4)
    caplog.set_level(logging.INFO, "headgate.spark")
    return lambda: [line for line in caplog.messages if line.startswith("headgate ")]


def waiting(folder, name):
    """Return a function that returns its rows once a file has this name."""

    def wait(batches):
        end = time.monotonic() + 60
        while not (folder / name).exists() and time.monotonic() < end:
            time.sleep(0.05)
        yield from batches

    return wait


def job(wide, map_, reduce, **options):
    schemas = {"map_schema": wide.schema, "schema": wide.schema}
    return exchange(
        wide,
        by="k",
        map=map_,
        reduce=reduce,
        num_partitions=PARTITIONS,
        mode="kept",
        **schemas,
        **options,
    )


def acting(action):
    """Start an action in another thread; return the thread, and a list that gets its result."""
    results = []
    thread = InheritableThread(target=lambda: results.append(action()))
    thread.start()
    return thread, results


def assert_listed(*roles):
    """Assert that tasks of these roles are listed: of the last one a task in each slot, the others are done."""

    def running():
        return [task for task in last_stats().tasks if task.state == "running"]

    wait_until(lambda: len(running()) == SLOTS, "each slot has a task", 60)
    stats = last_stats()
    *done, role = roles
    assert [task.role for task in stats.tasks] == [*done, *[role] * SLOTS]
    assert [task.state for task in stats.tasks] == ["done"] * len(done) + ["running"] * SLOTS
    assert len({task.attempt for task in stats.tasks}) == len(stats.tasks)
    assert {task.task for task in running()} == set(range(SLOTS))
    assert all(task.host and not task.wall_ms for task in running())
    assert all(0 <= task.started_ms <= 1000 * stats.seconds for task in running())
    first = lines_of_top.tasks(view(RUNS.state()))[0]
    assert (first[0], first[3], first[-1].endswith(" s so far")) == (role, "running", True)


def test_log_lines_and_statistics_tell_of_the_tasks_that_run(wide, lines, tmp_path):
    out = job(wide, waiting(tmp_path, "map"), waiting(tmp_path, "reduce"), progress="log")
    before = last_stats()
    thread, results = acting(out.count)
    waits = f"map 0/{PRODUCERS}, {SLOTS} running  reduce 0/{PARTITIONS}"
    wait_until(lambda: any(line.endswith(waits) for line in lines()), f"a line with {waits}", 60)
    stats = last_stats()
    assert before is None or stats.name != before.name
    assert (stats.state, stats.mode, stats.rows) == ("running", "kept", 0)
    assert (stats.producers, stats.producers_running, stats.producers_total) == (0, 4, PRODUCERS)
    assert (stats.consumers, stats.consumers_running, stats.consumers_total) == (0, 0, PARTITIONS)
    assert_listed("map")
    (tmp_path / "map").touch()
    waits = f"map {PRODUCERS}/{PRODUCERS}  reduce 0/{PARTITIONS}, {SLOTS} running  6.0K rows  "
    wait_until(lambda: any(waits in line for line in lines()), f"a line with {waits}", 60)
    assert "MB in files" in lines()[-1]
    stats = last_stats()
    assert (stats.producers, stats.producers_running) == (PRODUCERS, 0)
    assert (stats.consumers, stats.consumers_running) == (0, SLOTS)
    assert stats.rows == ROWS
    assert_listed(*["map"] * PRODUCERS, "reduce")
    (tmp_path / "reduce").touch()
    thread.join(60)
    assert results == [ROWS]
    stats = last_stats()
    assert (stats.state, stats.producers, stats.consumers) == ("done", PRODUCERS, PARTITIONS)
    assert (stats.producers_running, stats.consumers_running) == (0, 0)
    assert (stats.made_again, stats.failed_attempts) == (0, 0)
    wait_until(lambda: "headgate-progress" not in our_threads(), "the progress thread", 10)
    written = len(lines())
    time.sleep(1.5)
    assert len(lines()) == written, "nothing is drawn after the end"


def test_off_draws_nothing_and_tells_of_tasks_from_the_first_that_ended(
    wide, lines, tmp_path, monkeypatch
):
    monkeypatch.setattr(kept_watch.KeptWatch, "add", lambda *_: pytest.fail("off listens"))

    def last_waits(batches):
        from pyspark import TaskContext

        if TaskContext.get().partitionId() == PRODUCERS - 1:
            yield from waiting(tmp_path, "go")(batches)
        else:
            yield from batches

    out = job(wide, last_waits, waiting(tmp_path, "go"), progress="off")
    before = last_stats()
    thread, results = acting(out.count)

    def waits_for_one():
        stats = last_stats()
        if stats is None or (before is not None and stats.name == before.name):
            return False
        return (stats.producers, stats.producers_running) == (PRODUCERS - 1, 1)

    wait_until(waits_for_one, "one producer runs, the others are done", 60)
    assert last_stats().producers_total == PRODUCERS
    time.sleep(1.5)
    (tmp_path / "go").touch()
    thread.join(60)
    assert results == [ROWS]
    assert lines() == []


@pytest.mark.soak
@in_executors
@pytest.mark.parametrize("role", ["map", "reduce"])
def test_a_killed_worker_shows_while_the_run_goes_on(wide, lines, tmp_path, role):
    def killed_once(batches):
        if once(tmp_path, "killed"):
            os.kill(os.getpid(), 9)
        yield from waiting(tmp_path, "go")(batches)

    def same(batches):
        yield from batches

    functions = (killed_once, same) if role == "map" else (same, killed_once)
    thread, results = acting(job(wide, *functions, progress="log").count)
    wait_until(
        lambda: any("  1 attempts failed" in line for line in lines()), "a line tells of it", 60
    )
    assert (last_stats().state, last_stats().failed_attempts) == ("running", 1)
    (tmp_path / "go").touch()
    thread.join(60)
    assert results == [ROWS]
    assert (last_stats().state, last_stats().failed_attempts) == ("done", 1)
    (cause,) = last_stats().failures
    assert (cause.role, cause.error, bool(cause.host)) == (role, "", True)
    assert "Python worker exited unexpectedly" in cause.summary


@pytest.mark.soak
def test_an_exchange_of_an_exchange_has_a_line_for_each(wide, lines, tmp_path):
    def same(batches):
        yield from batches

    inner = job(wide, same, waiting(tmp_path, "go"), progress="log")
    outer = exchange(
        inner, by="id", map=same, num_partitions=3, mode="kept", progress="log", schema=wide.schema
    )
    thread, results = acting(outer.count)
    # One stage has the consumers of the first and the producers of the second.
    ours = f"map {PRODUCERS}/{PRODUCERS}  reduce 0/{PARTITIONS}, {SLOTS} running"
    theirs = f"map 0/{PARTITIONS}, {SLOTS} running  reduce 0/3"
    for words in (ours, theirs):
        wait_until(lambda words=words: any(words in x for x in lines()), f"a line: {words}", 60)
    assert len({line.split()[1] for line in lines()}) == 2
    (tmp_path / "go").touch()
    thread.join(60)
    assert results == [ROWS]


def test_the_thread_that_hears_of_tasks_stays_one(wide):
    def same(batches):
        yield from batches

    for _ in range(3):
        assert job(wide, same, same, progress="log").count() == ROWS
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("headgate-notices") == 1
