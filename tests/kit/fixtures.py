"""Fixtures that tests of several folders share: the session of Spark, and the check for leftovers."""

import pytest
from tests.kit import sessions
from tests.kit.leftovers import SETTLE_SPARK, Leftovers, passed, remember_environments
from tests.kit.waiting import wait_until

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
