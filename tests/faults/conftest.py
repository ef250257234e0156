"""The tests of the fault kit are watched by it; an application whose processes may be hurt."""

import os
import sys

import pytest
from tests.faults import processes
from tests.faults.leftovers import Leftovers
from tests.faults.watchdog import pytest_runtest_protocol

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

#: pytest finds it by its name here.
__all__ = ["pytest_runtest_protocol"]

#: Seconds in which everything of an application must have gone after its stop.
AFTER_STOP = 15.0


@pytest.fixture(scope="module")
def local_cluster(tmp_path_factory):
    """An application of two executors with two slots each, of this module alone."""
    from pyspark.sql import SparkSession
    from tests.faults import failpoints

    processes.mark()
    leftovers = Leftovers(spark="stopped")
    assert SparkSession.getActiveSession() is None, "another module left its session open"
    folder = tmp_path_factory.mktemp("spark")
    builder = (
        SparkSession.builder.master("local-cluster[2,2,1024]")
        .appName("headgate faults")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.headgate.memory", "16m")
        .config("spark.headgate.progress", "off")
    )
    for name, value in failpoints.environment(folder / "failpoints").items():
        builder = builder.config(f"spark.executorEnv.{name}", value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    session.failpoints = failpoints.Failpoints(folder / "failpoints")
    yield session
    session.stop()
    leftovers.check(AFTER_STOP)
