"""The session of the tests, and a check after each test for leftovers such as runs and threads."""

import os
import sys

import pytest
from pyspark.sql import SparkSession
from tests.faults import sessions
from tests.faults.leftovers import SETTLE_SPARK, Leftovers
from tests.faults.patience import wait_until
from tests.spark.masters import MASTER

from headgate.spark.driver.application import Application

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

#: Seconds after the stop of an application in which its threads, sockets and files must be gone.
AFTER_STOP = 15.0


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """A session with four slots. Tests of several folders, each with this fixture, share it."""
    if (running := SparkSession.getActiveSession()) is not None:
        yield running
        return
    leftovers = Leftovers(spark="stopped")
    folder = tmp_path_factory.mktemp("spark")
    session = sessions.builder(MASTER, "headgate tests", folder).getOrCreate()
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
        wait_until(lambda: not list(tracker.getActiveJobsIds()), "no job is active", SETTLE_SPARK)
    leftovers.check()


@pytest.fixture(params=["auto", "kept", "spark"])
def mode(request, spark):
    """Each value of the option ``mode``, as a conf of the session."""
    before = spark.conf.get("spark.headgate.mode")
    spark.conf.set("spark.headgate.mode", request.param)
    yield request.param
    spark.conf.set("spark.headgate.mode", before)


@pytest.fixture
def whole_slots(monkeypatch):
    """Let workers hold slots where they could take shares of a core."""
    monkeypatch.setattr("headgate.spark.driver.scheduler.shares._SINCE", (1000, 0))


@pytest.fixture
def numbers(spark):
    """20,000 rows in 7 partitions: id, a key of 100 values, a string."""
    return spark.range(0, 20_000, 1, 7).selectExpr("id", "id % 100 as k", "concat('row ', id) as s")


@pytest.fixture
def secrets(monkeypatch):
    """The secrets of the exchanges with hosts that the test makes, and that of their hosts."""
    found, register = [], Application.register

    def note(self, *arguments):
        place = register(self, *arguments)
        found.append(place.secret)
        return place

    monkeypatch.setattr(Application, "register", note)
    return found
