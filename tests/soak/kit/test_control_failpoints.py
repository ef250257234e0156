"""Processes killed at a control message: the right rows or one clear error, and no leftovers."""

import collections
import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from pyspark import cloudpickle
from tests.faults import processes
from tests.faults.failpoints import Failpoints, environment
from tests.faults.leftovers import Leftovers

from headgate.spark import exchange

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

HERE = Path(__file__).resolve().parents[2] / "faults"
ROWS = 4_000

#: Points at which a worker is killed: all messages of a run without a source.
WORKERS = [
    "consumer sends CONSUMER",
    "consumer sent CONSUMER",
    "heartbeat sent HEARTBEAT",
    "consumer received START",
    "consumer handled START",
    "consumer received PARTITION",
    "consumer handled PARTITION",
    "consumer received SEALED",
    "consumer handled SEALED",
    "consumer sends DONE",
    "consumer sent DONE",
    "consumer received OK",
    "producer sends PRODUCER",
    "producer sent PRODUCER",
    "producer received GO",
    "producer sends REGISTERED",
    "producer sent REGISTERED",
    "producer sends DONE",
    "producer sent DONE",
    "producer received OK",
]
DRIVER = ["driver handled CONSUMER", "driver handled REGISTERED", "driver sent SEALED"]
if os.environ.get("HEADGATE_TEST_FAULTS") != "full":
    WORKERS, DRIVER = WORKERS[::3], DRIVER[1:2]


@pytest.fixture
def cluster(local_cluster):
    """Yield the application without rules. Check for leftovers after the test."""
    leftovers = Leftovers(spark="live")
    local_cluster.failpoints.clear()
    yield local_cluster
    local_cluster.failpoints.clear()
    leftovers.check(30)


def count(spark):
    """Exchange some rows; return the number of copies of each."""
    numbers = spark.range(0, ROWS, 1, 3)
    return collections.Counter(row[0] for row in exchange(numbers, by="id").collect())


def outcome(action):
    """Return the result of an action and the text of its error, one of them empty."""
    try:
        return action(), ""
    except Exception as error:  # noqa: BLE001 - Spark's classes differ by mode
        return None, str(error)


@pytest.mark.parametrize("point", WORKERS)
def test_a_worker_that_is_killed_at_a_message(cluster, point):
    cluster.failpoints.set(point, "kill")
    started = time.monotonic()
    counts, text = outcome(lambda: count(cluster))
    seconds = time.monotonic() - started
    fired = cluster.failpoints.fired()
    assert len(fired) == 1, f"no process reached {point}"
    print(f"{point}: {'right rows' if counts else 'an error'} after {seconds:.1f} s")
    if counts is None:
        assert "HG-3001" in text or "exited unexpectedly" in text, text
    else:
        assert counts == collections.Counter(range(ROWS))
    cluster.failpoints.clear()
    assert count(cluster) == collections.Counter(range(ROWS))


def test_a_connection_that_breaks_at_a_message(cluster):
    cluster.failpoints.set("producer sent REGISTERED", "hang up")
    counts, text = outcome(lambda: count(cluster))
    assert len(cluster.failpoints.fired()) == 1
    print("right rows" if counts else f"an error: {text[:300]}")
    assert counts == collections.Counter(range(ROWS)) if counts else "HG-" in text


def test_random_delays_of_messages_change_nothing(cluster):
    seed = int(os.environ.get("HEADGATE_TEST_SEED", uuid.uuid4().int % 1_000_000))
    print("HEADGATE_TEST_SEED =", seed)
    for role, kind in [("consumer", "PARTITION"), ("consumer", "SEALED"), ("producer", "GO")]:
        point = f"{role} received {kind}"
        cluster.failpoints.set(point, "sleep", seconds=0.3, times=50, chance=0.5, seed=seed)
    assert count(cluster) == collections.Counter(range(ROWS))
    assert cluster.failpoints.passes() >= 8


@pytest.mark.timeout(400)
@pytest.mark.parametrize("point", DRIVER)
def test_a_driver_that_is_killed_takes_all_of_its_processes_along(tmp_path, point):
    rules = Failpoints(tmp_path / "failpoints")
    rules.set(point, "kill")
    value = uuid.uuid4().hex
    marked = {processes.MARK: value, **environment(tmp_path / "failpoints")}
    said = tmp_path / "said.txt"
    with said.open("w") as file:
        driver = subprocess.Popen(
            [sys.executable, str(HERE / "application.py"), str(tmp_path / "local")],
            env={**os.environ, **marked},
            stdout=file,
            stderr=file,
        )
    try:
        code = driver.wait(280)
        assert code == -signal.SIGKILL, said.read_text()
        assert [fired["pid"] for fired in rules.fired()] == [driver.pid]
        deadline = time.monotonic() + 60
        while left := processes.family(driver.pid, value):
            assert time.monotonic() < deadline, [str(process) for process in left.values()]
            time.sleep(0.2)
    finally:
        for pid in [driver.pid, *processes.family(driver.pid, value)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        driver.wait()
