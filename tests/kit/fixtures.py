"""Fixtures and hooks of several folders, for tests/conftest.py: session of Spark, check for leftovers, watchdog."""

from pathlib import Path

import pytest
from tests.kit import sessions, watchdog
from tests.kit.leftovers import (
    SETTLE_SPARK,
    Leftovers,
    passed,
    pytest_runtest_makereport,
    remember_environments,
)
from tests.kit.waiting import wait_until

__all__ = ["pytest_runtest_makereport"]

TESTS = Path(__file__).resolve().parents[1]
#: Seconds after the stop of an application in which its threads, sockets and files must be gone.
AFTER_STOP = 15.0


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """A session with four slots. Tests of several folders, each with this fixture, share it."""
    from pyspark.sql import SparkSession
    from tests.kit.masters import MASTER

    if (running := SparkSession.getActiveSession()) is not None:
        yield running
        return
    yield from session_on(MASTER, tmp_path_factory.mktemp("spark"))


def session_on(master, folder):
    """Yield a session; when it has stopped, nothing may be left of it."""
    leftovers = Leftovers(spark="stopped")
    session = sessions.builder(master, "headgate tests", folder).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    leftovers.check(AFTER_STOP)


def check_after(request):
    """Check that a test leaves no environment, connection, thread, process or file."""
    with pytest.MonkeyPatch.context() as patch:
        leftovers = Leftovers(remember_environments(patch))
        yield
        if passed(request):
            leftovers.check()


def check_after_on_spark(request):
    """Check that a test leaves no run, task, connection, thread, process, file or job."""
    session = request.getfixturevalue("spark") if "spark" in request.fixturenames else None
    folders = [] if session is None else [session.conf.get("spark.local.dir")]
    leftovers = Leftovers(spark="live", folders=folders)
    yield
    if session is not None:
        tracker = session.sparkContext.statusTracker()
        wait_until(lambda: not list(tracker.getActiveJobsIds()), "no job is active", SETTLE_SPARK)
    leftovers.check()


#: Folders whose tests are checked for leftovers, and how.
CHECKED = {
    "driver": check_after,
    "functions": check_after,
    "observe": check_after,
    "soak/ends": check_after_on_spark,
    "soak/spark": check_after_on_spark,
    "spark": check_after_on_spark,
    "stream/jobs": check_after,
}
#: Folders whose tests the watchdog ends if they hang. Tests elsewhere are quick, or have limits of their own.
WATCHED = {
    *CHECKED,
    "data_plane",
    "faults",
    "soak/browser",
    "soak/kafka",
    "soak/kit",
    "soak/network",
}


def folder_of(path):
    """Return the folder of a test below tests/; empty for one elsewhere."""
    folder = path.parent
    return folder.relative_to(TESTS).as_posix() if folder.is_relative_to(TESTS) else ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Put the tests of some folders under the watchdog."""
    if folder_of(item.path) in WATCHED:
        return (yield from watchdog.pytest_runtest_protocol(item))
    return (yield)


@pytest.fixture(autouse=True)
def nothing_left(request):
    """Check each test of some folders for leftovers, when its own fixtures are gone."""
    check = CHECKED.get(folder_of(request.path))
    if check is None:
        yield
    else:
        yield from check(request)


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
    from headgate.spark.driver.application import Application

    found, register = [], Application.register

    def note(self, *arguments):
        place = register(self, *arguments)
        found.append(place.secret)
        return place

    monkeypatch.setattr(Application, "register", note)
    return found
