"""Sessions to run exchanges in, and a check after each test that nothing is left."""

import os
import sys
import threading
import time
from pathlib import Path

import pytest

# Tests share actors.py and friends; importlib mode puts no folder on the path by itself.
sys.path.insert(0, str(Path(__file__).parent))

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

MASTERS = ["local[4]", "local-cluster[2,2,1024]"]
#: Seconds in which an exchange must have cleaned up behind itself.
CLEAN = 6.0


@pytest.fixture(scope="session", params=MASTERS)
def spark(request, tmp_path_factory):
    """A session with four slots; in one process, and in three."""
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master(request.param)
        .appName("headgate tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.headgate.memory", "16m")
        .config("spark.headgate.progress", "off")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    wait_until(lambda: not our_threads(), "threads of Headgate after spark.stop()")


@pytest.fixture(autouse=True)
def nothing_left(request):
    """Check that a test leaves no run, task, connection, thread or job."""
    session = request.getfixturevalue("spark") if "spark" in request.fixturenames else None
    yield
    if session is None:
        return
    from headgate.spark.driver import application

    for owner in list(application._running.values()):
        server = owner._server
        wait_until(lambda s=server: not s.coordinator.live_runs, "live runs")
        wait_until(lambda s=server: not s.coordinator.members, "tasks")
        wait_until(lambda s=server: not s._connections, "connections")
        wait_until(lambda s=server: not s.coordinator.runs, "runs")
    jobs = [f"headgate-{name}" for name in ("job", "reduce", "control")]
    wait_until(lambda: not [t for t in our_threads() if t.startswith(tuple(jobs))], "threads")
    tracker = session.sparkContext.statusTracker()
    wait_until(lambda: not list(tracker.getActiveJobsIds()), "jobs")


def our_threads():
    """Names of Headgate's threads in this process."""
    return [t.name for t in threading.enumerate() if t.name.startswith("headgate")]


def wait_until(condition, what, seconds=CLEAN):
    """Wait for a condition; fail when it does not come true in time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} are left after {seconds} s: {our_threads()}"
        time.sleep(0.02)


@pytest.fixture
def numbers(spark):
    """20,000 rows in 7 partitions: id, a key of 100 values, a string."""
    return spark.range(0, 20_000, 1, 7).selectExpr("id", "id % 100 as k", "concat('row ', id) as s")
