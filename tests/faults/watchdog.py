"""A test that hangs says where: the stacks of all its processes, then it fails.

A process of its own keeps the time (see timekeeper.py), so that a test that holds Python's lock for
ever is seen too. The handler of its signal fails the test with the stacks.
"""

import faulthandler
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.faults import processes
from tests.faults.timekeeper import GRACE, SIGNAL

ROOT = Path(__file__).resolve().parent.parent.parent
#: Seconds of a test of the data plane, and of one of Spark.
LIMIT = 120.0
LIMIT_SPARK = 300.0
#: Of one that is marked to have none.
NO_LIMIT = 86_400.0
#: Of pytest-timeout's limit, where that is less: the rest is for looking at the processes.
SHARE = 0.75
#: Lines of the report that go into the error; all of it is in a section of its own.
SHOWN = 400


class Watchdog:
    """The other process, and the way to talk to it."""

    def __init__(self):
        self._owner = os.getpid()
        number, name = tempfile.mkstemp(prefix="stacks-", suffix=".txt")
        os.close(number)
        self._report = Path(name)
        command = [sys.executable, "-m", "tests.faults.timekeeper"]
        self._process = subprocess.Popen(
            [*command, str(self._owner), processes.mark()], stdin=subprocess.PIPE, cwd=ROOT
        )

    def arm(self, seconds):
        """Let it bark in so many seconds."""
        self._say(f"arm {seconds} {self._report}\n")

    def disarm(self):
        """Forget the last limit."""
        self._say("disarm\n")

    def report(self):
        """Return what it wrote, with this process's own view of itself."""
        with self._report.open("a", encoding="utf-8") as file:
            file.write(f"\n\n=== {os.getpid()}, as it sees itself\n")
            file.flush()
            faulthandler.dump_traceback(file)
        return self._report.read_text(encoding="utf-8")

    def close(self):
        """End the process."""
        if os.getpid() == self._owner:
            self._process.stdin.close()
            self._process.wait(GRACE)
            self._report.unlink()

    def _say(self, line):
        if os.getpid() == self._owner:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()


_STARTED = pytest.StashKey()


def limit_of(item):
    """Return a test's limit in seconds: its own, or its kind's; below pytest-timeout's."""
    marker = item.get_closest_marker("timeout")
    if marker is not None:
        own = marker.args[0] if marker.args else marker.kwargs["timeout"]
        return SHARE * float(own) if own else NO_LIMIT
    kind = LIMIT_SPARK if {"spark", "local_cluster"} & set(item.fixturenames) else LIMIT
    hard = float(item.config.getoption("timeout", None) or item.config.getini("timeout") or 0)
    return min(kind, SHARE * hard) if hard else kind


def hang_up_on_the_jvm():
    """Close this thread's connection of py4j: the answer to the call that is given up would come.

    The next call makes a new one; without this it would get that answer, and so would all tests after.
    """
    pyspark = sys.modules.get("pyspark")
    gateway = None if pyspark is None else pyspark.SparkContext._gateway
    connection = None if gateway is None else gateway._gateway_client.get_thread_connection()
    if connection is None:
        return
    connection.close()
    session = pyspark.sql.SparkSession._instantiatedSession
    if session is not None:
        # The new connection is served by another thread of the JVM, which has no active session.
        sessions = session._jvm.org.apache.spark.sql.classic.SparkSession
        sessions.setActiveSession(session._jsparkSession)


def is_reporting(frame):
    """Whether pytest was about to say how a test ended, which it must not be kept from."""
    while frame is not None and frame.f_code.co_name != "pytest_runtest_makereport":
        frame = frame.f_back
    return frame is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Fail a test that hangs, with the stacks of all its processes; its fixtures count as well."""
    if _STARTED not in item.config.stash:
        item.config.stash[_STARTED] = Watchdog()
        item.config.add_cleanup(item.config.stash[_STARTED].close)
    keeper, limit = item.config.stash[_STARTED], limit_of(item)

    def bark(_, frame):
        keeper.disarm()  # it waits for a sign of life
        if is_reporting(frame):
            return
        hang_up_on_the_jvm()
        text = keeper.report()
        item.add_report_section("call", "stacks of all processes", text)
        lines = text.splitlines()
        cut = [f"... {len(lines) - SHOWN} more lines in the section below"] * (len(lines) > SHOWN)
        pytest.fail("\n".join([f"it hangs: not done after {limit:g} s", *lines[:SHOWN], *cut]))

    signal.signal(SIGNAL, bark)
    keeper.arm(limit)
    try:
        return (yield)
    finally:
        # Not the default, which would end the process: the signal may be on its way.
        signal.signal(SIGNAL, lambda *_: None)
        keeper.disarm()
