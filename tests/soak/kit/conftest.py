"""The watchdog for the tests in this folder, and an application whose processes may be killed."""

import os
import sys

import pytest
from tests.faults import processes, sessions
from tests.faults.leftovers import Leftovers
from tests.faults.watchdog import pytest_runtest_protocol

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

#: pytest finds the hook by its name here.
__all__ = ["pytest_runtest_protocol"]

#: Seconds after its stop within which all resources of an application must be released.
AFTER_STOP = 15.0


@pytest.fixture(scope="module")
def local_cluster(tmp_path_factory):
    """Yield an application with two executors of two slots, for the tests of one module."""
    from pyspark.sql import SparkSession

    processes.mark()
    leftovers = Leftovers(spark="stopped")
    assert SparkSession.getActiveSession() is None, "another module left its session open"
    folder = tmp_path_factory.mktemp("spark")
    builder = sessions.builder("local-cluster[2,2,1024]", "headgate faults", folder)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    leftovers.check(AFTER_STOP)
