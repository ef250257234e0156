"""The record of the newest runs: bounded, plain values, and no run held after its end."""

import gc
import json
import logging
import threading
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate import __version__
from headgate.observe.runs import MOST_RUNS, MOST_SLOTS, SCHEMA_VERSION, STREAM_OVER, Runs
from headgate.stream.job.status import JobState

STAGE = {"name": "map", "idle_ms": 0, "busy_ms": 0, "back_pressured_ms": 0}


class Time:
    """A clock that only a test advances."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def now():
    return Time()


@pytest.fixture
def runs(now):
    return Runs(now)


class Job:
    """A run that a test changes; returns itself as statistics."""

    def __init__(self, **about):
        self.looks = 0
        self.about = {"state": "running", "rows": 0, "bytes": 0, "stages": [STAGE], **about}

    def __call__(self):
        self.looks += 1
        return dict(self.about)


def test_the_newest_run_is_first(runs):
    for number in (1, 2, 3):
        runs.began(("ab", number), Job(run=number))
    state = runs.state()
    assert [run["run"] for run in state["runs"]] == [3, 2, 1]
    assert (state["schema_version"], state["headgate"]) == (SCHEMA_VERSION, __version__)
    assert (state["now"], state["streams"]) == (1000.0, [])
    assert json.loads(json.dumps(state)) == state


def test_only_the_newest_runs_are_kept(runs):
    for number in range(MOST_RUNS + 5):
        runs.began(("ab", number), Job(run=number))
    assert [run["run"] for run in runs.state()["runs"]] == list(range(MOST_RUNS + 4, 4, -1))
    assert runs.look(("ab", 4)) is None


def test_a_run_that_is_known_stays(runs):
    runs.began(("ab", 1), Job(rows=1))
    runs.began(("ab", 1), Job(rows=2))
    assert [run["rows"] for run in runs.state()["runs"]] == [1]


def test_a_run_that_has_ended_is_not_looked_at_again_and_not_held(runs):
    job = Job(rows=5)
    held = weakref.ref(job)
    runs.began(("ab", 1), job)
    job.about["state"] = "failed"
    assert runs.look(("ab", 1))["state"] == "failed"
    job.about["rows"] = 6
    assert runs.look(("ab", 1))["rows"] == 5
    assert job.looks == 1
    del job
    gc.collect()
    assert held() is None
    assert runs.state()["runs"][0]["rows"] == 5


def test_what_was_seen_last_stays_if_nobody_answers(runs, caplog):
    answers = [{**Job().about, "rows": 7}]
    runs.began(("ab", 1), answers.pop)
    assert runs.look(("ab", 1))["rows"] == 7
    with caplog.at_level(logging.WARNING, "headgate.observe"):
        assert runs.look(("ab", 1))["rows"] == 7
    assert "run 1 of exchange ab cannot be looked at: pop from empty list" in caplog.text


def test_a_run_that_never_answered_is_left_out(runs):
    runs.began(("ab", 1), lambda: 1 / 0)
    assert runs.state()["runs"] == []


def test_a_kept_run_that_looks_done_between_its_stages_may_go_on(runs):
    job = Job(state="done", mode="kept", consumers=0, consumers_total=2)
    runs.began(("ab", 1), job)
    assert runs.look(("ab", 1))["consumers"] == 0
    job.about.update(state="running", consumers=1)
    assert runs.look(("ab", 1))["state"] == "running"
    job.about.update(state="done", consumers=2)
    assert runs.look(("ab", 1))["consumers"] == 2
    assert runs.look(("ab", 1))["consumers"] == 2
    assert job.looks == 3


def test_a_slot_has_what_was_added(runs, now):
    job = Job()
    runs.began(("ab", 1), job)
    now.now += 0.5
    runs.saw(("ab", 1), {**job.about, "rows": 1})
    now.now += 1.5
    times = {"name": "map", "idle_ms": 10, "busy_ms": 20, "back_pressured_ms": 30}
    job.about.update(rows=100, bytes=1000, stages=[times])
    runs.saw(("ab", 1), job.about)
    now.now += 1
    job.about.update(rows=150, stages=[{**times, "busy_ms": 25}])
    assert runs.look(("ab", 1))["history"] == [
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
    runs.saw(("ab", 9), job.about)
    now.now += 0.25
    job.about.update(state="done", rows=151)
    history = runs.look(("ab", 1))["history"]
    assert (history[-1]["seconds"], history[-1]["rows"]) == (0.25, 1)
    now.now += 5
    runs.saw(("ab", 1), job.about)
    assert runs.look(("ab", 1))["history"] == history


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0.01, 3), st.integers(0, 1000)), max_size=200))
def test_the_slots_add_up(steps):
    now = Time()
    runs, job = Runs(now), Job()
    runs.began(("ab", 1), job)
    for seconds, rows in steps:
        now.now += seconds
        job.about["rows"] += rows
        runs.saw(("ab", 1), job.about)
    now.now += 1
    job.about["state"] = "done"
    history = runs.look(("ab", 1))["history"]
    assert len(history) <= MOST_SLOTS
    if len(history) < MOST_SLOTS:
        assert sum(slot["rows"] for slot in history) == job.about["rows"]
        assert abs(sum(slot["seconds"] for slot in history) - (now.now - 1000)) < 0.1
    assert all(slot["seconds"] >= 1 for slot in history[:-1])
    assert sorted(slot["at"] for slot in history) == [slot["at"] for slot in history]


def test_rows_of_tasks_that_run_again_are_no_negative_numbers(runs, now):
    job = Job(rows=100)
    runs.began(("ab", 1), job)
    for rows in (100, 5, 9):
        now.now += 1
        job.about["rows"] = rows
        runs.look(("ab", 1))
    assert [slot["rows"] for slot in runs.look(("ab", 1))["history"]] == [100, 0, 4]


def test_streaming_jobs_are_there_and_keep_their_last_status(runs, caplog):
    said = {"state": "running", "name": "a"}
    ended = runs.stream("a", lambda: said)
    runs.stream("b", lambda: 1 / 0)
    with caplog.at_level(logging.WARNING, "headgate.observe"):
        assert runs.state()["streams"] == [said]
    assert "streaming job b cannot be looked at" in caplog.text
    over = {"state": "failed", "name": "a"}
    ended(over)
    said["state"] = "not asked any more"
    assert runs.state()["streams"] == [over]
    again = {"state": "running", "name": "a", "attempt": 1}
    runs.stream("a", lambda: again)
    ended(over)
    assert runs.state()["streams"] == [again], "of the job that has the name now"


def test_a_status_that_cannot_be_had_is_the_one_before(runs):
    answers = iter([{"state": "running"}])
    runs.stream("a", lambda: next(answers))
    first = runs.state()["streams"]
    assert runs.state()["streams"] == first == [{"state": "running"}]


def test_the_oldest_streaming_jobs_that_have_ended_are_dropped_first(runs):
    runs.stream("runs", lambda: {"name": "runs"})
    for number in range(MOST_RUNS + 3):
        runs.stream(str(number), dict)({"name": str(number)})
    names = [one["name"] for one in runs.state()["streams"]]
    assert len(names) == MOST_RUNS
    assert names[:2] == ["runs", "4"]
    for number in range(MOST_RUNS):
        runs.stream(f"{number} runs", lambda: {"name": "another"})
    assert "runs" not in [one["name"] for one in runs.state()["streams"]]


def test_a_streaming_job_is_over_as_the_job_says():
    assert {state.value for state in JobState if state.is_over} == STREAM_OVER


def test_a_look_that_blocks_keeps_nobody_from_telling(runs):
    entered, go = threading.Event(), threading.Event()

    def slow():
        entered.set()
        assert go.wait(60)
        return Job(run=1).about

    runs.began(("ab", 1), slow)
    reader = threading.Thread(target=runs.state)
    reader.start()
    assert entered.wait(60)
    runs.began(("ab", 2), Job(run=2))
    runs.saw(("ab", 2), Job().about)
    go.set()
    reader.join(60)
    assert [run["run"] for run in runs.state()["runs"]] == [2, 1]
