"""Fails a test that hangs, with the stacks of all its processes.

A separate process keeps the time (see timekeeper.py), so that a test that never releases the GIL is
noticed too. The handler of its signal fails the test with the stacks.
"""

import faulthandler
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.kit import processes
from tests.kit.timekeeper import GRACE, SIGNAL

ROOT = Path(__file__).resolve().parent.parent.parent
#: Limit in seconds of a test without Spark, and of a test with Spark.
LIMIT = 120.0
LIMIT_SPARK = 300.0
#: Limit in seconds of a test that is marked to have none.
NO_LIMIT = 86_400.0
#: Share of pytest-timeout's limit after which the watchdog acts, to leave time for the stacks.
SHARE = 0.75
#: Maximum lines of the report in the error. The whole report is in a section of its own.
SHOWN = 400


class Watchdog:
    """The process that keeps the time, and the pipe to it."""

    def __init__(self):
        self._owner = os.getpid()
        number, name = tempfile.mkstemp(prefix="stacks-", suffix=".txt")
        os.close(number)
        self._report = Path(name)
        command = [sys.executable, "-m", "tests.kit.timekeeper"]
        self._process = subprocess.Popen(
            [*command, str(self._owner), processes.mark()], stdin=subprocess.PIPE, cwd=ROOT
        )

    def arm(self, seconds):
        """Set the limit: the process acts after that many seconds."""
        self._say(f"arm {seconds} {self._report}\n")

    def disarm(self):
        """Cancel the limit."""
        self._say("disarm\n")

    def report(self):
        """Return the stacks that the process wrote, and those that this process sees of itself."""
        with self._report.open("a", encoding="utf-8") as file:
            file.write(f"\n\n=== {os.getpid()}, by its own faulthandler\n")
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
    """Return the limit of a test in seconds, which is below pytest-timeout's."""
    marker = item.get_closest_marker("timeout")
    if marker is not None:
        own = marker.args[0] if marker.args else marker.kwargs["timeout"]
        return SHARE * float(own) if own else NO_LIMIT
    kind = LIMIT_SPARK if {"spark", "local_cluster"} & set(item.fixturenames) else LIMIT
    hard = float(item.config.getoption("timeout", None) or item.config.getini("timeout") or 0)
    return min(kind, SHARE * hard) if hard else kind


def hang_up_on_the_jvm():
    """Close this thread's py4j connection, on which the answer to the interrupted call arrives late.

    The next call opens a new connection. On the old one each call would get the answer to the call
    before it.
    """
    pyspark = sys.modules.get("pyspark")
    gateway = None if pyspark is None else pyspark.SparkContext._gateway
    connection = None if gateway is None else gateway._gateway_client.get_thread_connection()
    if connection is None:
        return
    connection.close()
    session = pyspark.sql.SparkSession._instantiatedSession
    if session is not None:
        # Another thread of the JVM serves the new connection, and it has no active session.
        sessions = session._jvm.org.apache.spark.sql.classic.SparkSession
        sessions.setActiveSession(session._jsparkSession)


def is_reporting(frame):
    """Return True if pytest is reporting the outcome of a test and must not be interrupted."""
    while frame is not None and frame.f_code.co_name != "pytest_runtest_makereport":
        frame = frame.f_back
    return frame is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Fail a test that hangs, or whose fixtures hang, with the stacks of all its processes."""
    if _STARTED not in item.config.stash:
        item.config.stash[_STARTED] = Watchdog()
        item.config.add_cleanup(item.config.stash[_STARTED].close)
    keeper, limit = item.config.stash[_STARTED], limit_of(item)

    def bark(_, frame):
        keeper.disarm()  # the answer that the timekeeper waits for
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
        # The signal may be pending, and its default action would end the process.
        signal.signal(SIGNAL, lambda *_: None)
        keeper.disarm()
