"""A streaming job is in the record of this process as plain values, also at its end, and is not held by it."""

import gc
import json
import time

import kit

from headgate.observe.runs import RUNS
from headgate.sink import FunctionSink


def job(name):
    """Return the job of this name in the record, or None."""
    return next((one for one in RUNS.state()["streams"] if one["name"] == name), None)


def test_a_job_is_in_the_record_until_nobody_holds_it(tmp_path):
    rows = kit.numbers(10**8).key_by("key").sink(FunctionSink(lambda _: time.sleep(0.01)))
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
        assert (found["state"], found["attempt"], found["restarts"]) == ("running", 1, 0)
        assert {task["index"] for task in found["tasks"]} == {0}
        assert any(one["savepoint"] for one in found["checkpoints"])
        assert "secret-place" not in json.dumps(found)
    assert job("seen")["state"] == "cancelled"
    assert job("seen")["started_at"] <= time.time()
    del query
    gc.collect()
    assert job("seen") is None
