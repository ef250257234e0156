"""Sessions to run exchanges in, and a check after each test that nothing is left."""

import os
import sys
import time
from pathlib import Path

import pytest
from tests.faults import sessions
from tests.faults.leftovers import SETTLE_SPARK, Leftovers, our_threads
from tests.faults.watchdog import pytest_runtest_protocol

# Tests share actors.py and friends; importlib mode puts no folder on the path by itself.
sys.path.insert(0, str(Path(__file__).parent))

from masters import MASTERS

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

#: Seconds in which everything of an application must have gone after its stop.
AFTER_STOP = 15.0
#: pytest finds it by its name here; tests import the other.
__all__ = ["our_threads", "pytest_runtest_protocol"]


@pytest.fixture(scope="session", params=MASTERS)
def spark(request, tmp_path_factory):
    """A session with four slots; in one process, and in three."""
    leftovers = Leftovers(spark="stopped")
    folder = tmp_path_factory.mktemp("spark")
    session = sessions.builder(request.param, "headgate tests", folder).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    leftovers.check(AFTER_STOP)


@pytest.fixture(autouse=True)
def nothing_left(request):
    """Check that a test leaves no run, task, connection, thread, process, file or job."""
    session = request.getfixturevalue("spark") if "spark" in request.fixturenames else None
    folders = [] if session is None else [session.conf.get("spark.local.dir")]
    leftovers = Leftovers(spark="live", folders=folders)
    yield
    if session is not None:
        tracker = session.sparkContext.statusTracker()
        wait_until(lambda: not list(tracker.getActiveJobsIds()), "jobs")
    leftovers.check()


def wait_until(condition, what, seconds=SETTLE_SPARK):
    """Wait for a condition; fail when it does not come true in time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} are left after {seconds} s"
        time.sleep(0.02)


@pytest.fixture
def numbers(spark):
    """20,000 rows in 7 partitions: id, a key of 100 values, a string."""
    return spark.range(0, 20_000, 1, 7).selectExpr("id", "id % 100 as k", "concat('row ', id) as s")
