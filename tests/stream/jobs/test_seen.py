"""A streaming job is in the record of this process as plain values, also at its end, and is not held by it."""

import gc
import json
import time
import weakref

import pytest
from tests.kit import stream_jobs
from tests.kit.waiting import wait_until

from headgate.errors import HeadgateError
from headgate.observe.runs import RUNS
from headgate.observe.state import wall_ms
from headgate.sink import FunctionSink


def job(name):
    """Return the job of this name in the record, or None."""
    return next((one for one in RUNS.state()["runs"] if one["name"] == name), None)


def test_a_job_is_in_the_record_and_keeps_its_last_status_there(tmp_path):
    rows = stream_jobs.numbers(10**8).key_by("key").sink(FunctionSink(lambda _: time.sleep(0.01)))
    folder = str(tmp_path / "checkpoints")
    with rows.start(name="seen", checkpoint=folder, interval=0.1) as query:
        deadline = time.monotonic() + 60
        while not any(one["status"] == "complete" for one in job("seen")["checkpoints"]):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        savepoint = str(tmp_path / "secret-place")
        query.savepoint(savepoint)
        found = job("seen")
        assert json.loads(json.dumps(found)) == found
        assert (found["mode"], found["state"], found["number"]) == ("stream", "running", 1)
        assert {task["task"] for task in found["tasks"]} == {0}
        assert [stage["inputs"] for stage in found["stages"]] == [[], [found["stages"][0]["name"]]]
        wait_until(lambda: all(wall_ms(task) for task in job("seen")["tasks"]), "its times", 20)
        assert job("seen")["history"]
        assert any(one["savepoint"] for one in found["checkpoints"])
        assert "secret-place" not in json.dumps(found)
    assert (job("seen")["state"], job("seen")["verdict"]) == ("cancelled", None)
    assert job("seen")["started_at"] <= time.time()
    held = weakref.ref(query._master)
    del query
    wait_until(lambda: gc.collect() is not None and held() is None, "nobody holds the job", 10)
    assert job("seen")["state"] == "cancelled"


def test_a_job_that_failed_says_why(tmp_path):
    def fail(_):
        raise ValueError("no such shelf")

    rows = stream_jobs.numbers(100).key_by("key").sink(FunctionSink(fail))
    with pytest.raises(HeadgateError, match="no such shelf"):
        rows.run(name="fails", restarts=0)
    found = job("fails")
    assert (found["state"], found["restarts"]) == ("failed", 0)
    assert "no such shelf" in found["error_summary"]
    assert [one["attempt"] for one in found["failures"]] == [1]


def test_a_slow_sink_is_named_while_the_job_runs():
    rows = stream_jobs.numbers(10**8).key_by("key").map(lambda b: b, name="middle").key_by("id")
    slow = rows.sink(FunctionSink(lambda _: time.sleep(0.02)), name="slow")
    with slow.start(options={"memory": "1m"}) as query:
        named = lambda: query.status.verdict is not None and query.status.verdict.stage == "slow"  # noqa: E731
        wait_until(named, "the verdict", 30)
        assert "slowest: middle waits" in str(query.status)
