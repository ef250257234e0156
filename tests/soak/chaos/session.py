"""A Spark session that survives many faults, in a process of its own."""

import os
import sys
import time
from pathlib import Path

from tests.kit.sessions import SHORT_LIVED
from tests.soak.chaos import remains

#: Seconds within which lost executors must be replaced.
READY = 120.0


class NotReady(RuntimeError):
    """The session does not have all of its executors."""


def make_session(token, folder):
    """Return a session with two executors of three slots. All of its processes have the token."""
    os.environ[remains.TOKEN] = token
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    confs = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.task.maxFailures": "4",
        # Dozens of executors are lost, and each one must be replaced.
        "spark.deploy.maxExecutorRetries": "-1",
        # Spark must notice a stopped executor within the limit of a run.
        "spark.executor.heartbeatInterval": "1s",
        "spark.storage.blockManagerHeartbeatTimeoutMs": "8s",
        "spark.network.timeoutInterval": "1s",
        "spark.headgate.progress": "off",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.executor.extraJavaOptions": SHORT_LIVED,
    }
    builder = SparkSession.builder.master("local-cluster[2,3,1024]").appName("headgate chaos")
    for name, value in confs.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def wait_ready(session, token):
    """Wait until both executors run and Spark knows no others.

    Raises:
        NotReady: this is not so after :data:`READY` seconds.
    """
    end = time.monotonic() + READY
    while True:
        alive = {Path(p.folder).name for p in remains.of(token) if p.kind == "executor"}
        if len(alive) == 2 and alive == _registered(session):
            return
        if time.monotonic() > end:
            raise NotReady(f"executors {sorted(alive)}, Spark knows {_registered(session)}")
        time.sleep(0.1)


def _registered(session):
    scala = session.sparkContext._jsc.sc()
    known = scala.statusStore().executorList(True)
    return {known.apply(i).id() for i in range(known.size())} - {"driver"}
