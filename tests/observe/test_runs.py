"""The record of the newest runs: bounded, plain values, and no run held after its end."""

import gc
import json
import logging
import threading
import weakref
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.clock import Clock

from headgate import __version__
from headgate.observe.record import Run, Stage
from headgate.observe.runs import MOST_RUNS, MOST_SLOTS, Runs
from headgate.observe.state import RUNNING, SCHEMA_VERSION
from headgate.stream.job.status import JobState

#: Key of a run of an exchange.
KEY = ("kept", "ab", 1)


def map_stage(idle=0, busy=0, blocked=0):
    return (Stage("map", 1, idle, busy, blocked, None, 0.0),)


@pytest.fixture
def now():
    return Clock(1000.0)


@pytest.fixture
def runs(now):
    return Runs(now)


class Job:
    """A run that a test changes."""

    def __init__(self, mode="kept", **about):
        self.looks = 0
        self.run = Run(mode, "ab", about.pop("number", 1), about.pop("state", "running"), **about)

    def update(self, **about):
        self.run = replace(self.run, **about)

    def __call__(self):
        self.looks += 1
        return self.run


def test_the_newest_run_is_first(runs):
    for number in (1, 2, 3):
        runs.began(("kept", "ab", number), Job(number=number))
    state = runs.state()
    assert [run["number"] for run in state["runs"]] == [3, 2, 1]
    assert (state["schema_version"], state["headgate"]) == (SCHEMA_VERSION, __version__)
    assert state["now"] == 1000.0
    assert json.loads(json.dumps(state)) == state


def test_only_the_newest_runs_are_kept(runs):
    for number in range(MOST_RUNS + 5):
        runs.began(("kept", "ab", number), Job(number=number))
    assert [run["number"] for run in runs.state()["runs"]] == list(range(MOST_RUNS + 4, 4, -1))
    assert runs.look(("kept", "ab", 4)) is None


def test_a_run_that_begins_again_is_the_newest(runs):
    runs.began(KEY, Job(rows=1))
    runs.began(("kept", "ab", 2), Job(rows=2))
    runs.began(KEY, Job(rows=3))
    assert [run["rows"] for run in runs.state()["runs"]] == [3, 2]


def test_a_run_that_has_ended_is_not_looked_at_again_and_not_held(runs):
    job = Job(rows=5)
    held = weakref.ref(job)
    runs.began(KEY, job)
    job.update(state="failed")
    assert runs.look(KEY)["state"] == "failed"
    job.update(rows=6)
    assert runs.look(KEY)["rows"] == 5
    assert job.looks == 1
    del job
    gc.collect()
    assert held() is None
    assert runs.state()["runs"][0]["rows"] == 5


def test_what_was_seen_last_stays_if_nobody_answers(runs, caplog):
    answers = [Job(rows=7).run]
    runs.began(KEY, answers.pop)
    assert runs.look(KEY)["rows"] == 7
    with caplog.at_level(logging.WARNING, "headgate.observe"):
        assert runs.look(KEY)["rows"] == 7
    assert "run 1 of exchange ab cannot be looked at: pop from empty list" in caplog.text


def test_a_run_that_never_answered_is_left_out(runs):
    runs.began(KEY, lambda: 1 / 0)
    assert runs.state()["runs"] == []


def test_a_kept_run_that_looks_done_between_its_stages_may_go_on(runs):
    job = Job(state="done", consumers=0, consumers_total=2)
    runs.began(KEY, job)
    assert runs.look(KEY)["consumers"] == 0
    job.update(state="running", consumers=1)
    assert runs.look(KEY)["state"] == "running"
    job.update(state="done", consumers=2)
    assert runs.look(KEY)["consumers"] == 2
    assert runs.look(KEY)["consumers"] == 2
    assert job.looks == 3


def test_a_slot_has_what_was_added(runs, now):
    job = Job()
    runs.began(KEY, job)
    now.now += 0.5
    runs.saw(KEY, replace(job.run, rows=1))
    now.now += 1.5
    job.update(rows=100, bytes=1000, stages=map_stage(10, 20, 30))
    runs.saw(KEY, job.run)
    now.now += 1
    job.update(rows=150, stages=map_stage(10, 25, 30))
    assert runs.look(KEY)["history"] == [
        {
            "at": 1002.0,
            "seconds": 2.0,
            "rows": 100,
            "bytes": 1000,
            "stages": {"map": {"idle": 10, "busy": 20, "back_pressured": 30}},
        },
        {
            "at": 1003.0,
            "seconds": 1.0,
            "rows": 50,
            "bytes": 0,
            "stages": {"map": {"idle": 0, "busy": 5, "back_pressured": 0}},
        },
    ]
    runs.saw(("kept", "ab", 9), job.run)
    now.now += 0.25
    job.update(state="done", rows=151)
    history = runs.look(KEY)["history"]
    assert (history[-1]["seconds"], history[-1]["rows"]) == (0.25, 1)
    now.now += 5
    runs.saw(KEY, job.run)
    assert runs.look(KEY)["history"] == history


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0.01, 3), st.integers(0, 1000)), max_size=200))
def test_the_slots_add_up(steps):
    now = Clock(1000.0)
    runs, job = Runs(now), Job()
    runs.began(KEY, job)
    for seconds, rows in steps:
        now.now += seconds
        job.update(rows=job.run.rows + rows)
        runs.saw(KEY, job.run)
    now.now += 1
    job.update(state="done")
    history = runs.look(KEY)["history"]
    assert len(history) <= MOST_SLOTS
    if len(history) < MOST_SLOTS:
        assert sum(slot["rows"] for slot in history) == job.run.rows
        assert abs(sum(slot["seconds"] for slot in history) - (now.now - 1000)) < 0.1
    assert all(slot["seconds"] >= 1 for slot in history[:-1])
    assert sorted(slot["at"] for slot in history) == [slot["at"] for slot in history]


def test_rows_of_tasks_that_run_again_are_no_negative_numbers(runs, now):
    job = Job(rows=100)
    runs.began(KEY, job)
    for rows in (100, 5, 9):
        now.now += 1
        job.update(rows=rows)
        runs.look(KEY)
    assert [slot["rows"] for slot in runs.look(KEY)["history"]] == [100, 0, 4]


def test_a_streaming_job_keeps_its_last_status(runs, caplog):
    job, broken = Job("stream", number=1, state="restarting"), ("stream", "b", 0)
    runs.began(("stream", "a", 0), job)
    runs.began(broken, lambda: 1 / 0)
    with caplog.at_level(logging.WARNING, "headgate.observe"):
        assert [run["state"] for run in runs.state()["runs"]] == ["restarting"]
    assert "stream run b cannot be looked at" in caplog.text
    assert caplog.records[0].job == "b"
    job.update(state="failed", number=3)
    assert runs.look(("stream", "a", 0))["number"] == 3
    job.update(state="running")
    assert [run["state"] for run in runs.state()["runs"]] == ["failed"]
    runs.began(("stream", "a", 0), Job("stream", state="starting"))
    states = [run["state"] for run in runs.state()["runs"]]
    assert states == ["starting"], "of the job that has the name now"


def test_the_oldest_streaming_jobs_that_have_ended_are_dropped_first(runs):
    runs.began(KEY, Job())
    runs.began(("stream", "runs", 0), Job("stream", number=99))
    for number in range(MOST_RUNS + 3):
        runs.began(("stream", str(number), 0), Job("stream", number=number, state="finished"))
        runs.look(("stream", str(number), 0))
    numbers = [run["number"] for run in runs.state()["runs"] if run["mode"] == "stream"]
    assert len(numbers) == MOST_RUNS
    assert numbers[-2:] == [4, 99]
    for number in range(MOST_RUNS):
        runs.began(("stream", f"{number} runs", 0), Job("stream"))
    assert 99 not in [run["number"] for run in runs.state()["runs"]]
    assert [run["mode"] for run in runs.state()["runs"]].count("kept") == 1


def test_a_streaming_job_is_over_as_the_job_says():
    assert {state.value for state in JobState if not state.is_over} == RUNNING


def test_a_look_that_blocks_keeps_nobody_from_telling(runs):
    entered, go = threading.Event(), threading.Event()

    def slow():
        entered.set()
        assert go.wait(60)
        return Job(number=1).run

    runs.began(KEY, slow)
    reader = threading.Thread(target=runs.state)
    reader.start()
    assert entered.wait(60)
    runs.began(("kept", "ab", 2), Job(number=2))
    runs.saw(("kept", "ab", 2), Job().run)
    go.set()
    reader.join(60)
    assert [run["number"] for run in runs.state()["runs"]] == [2, 1]
