"""A streaming job on Spark whose executor or driver is killed: each row is committed once."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.kit.masters import in_executors
from tests.kit.outcomes import wait_for_executors
from tests.kit.sessions import SHORT_LIVED
from tests.kit.spark_jobs import ROWS, check, counted, signed, start, wait_for_rows
from tests.kit.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]

#: A driver that runs the job to its end; its folder is its first argument.
DRIVER = f"""
import os, sys, tempfile
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from pyspark.sql import SparkSession
from tests.kit import spark_jobs
folder = Path(sys.argv[1])
spark = (SparkSession.builder.master("local-cluster[2,2,1024]").config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false").config("spark.headgate.memory", "16m")
    .config("spark.local.dir", tempfile.mkdtemp(dir=folder))
    .config("spark.driver.extraJavaOptions", {SHORT_LIVED!r})
    .config("spark.executor.extraJavaOptions", {SHORT_LIVED!r})
    .getOrCreate())
spark.sparkContext.setLogLevel("OFF")
query = spark_jobs.start(spark_jobs.counted(2 * spark_jobs.ROWS, folder=folder), spark, folder, name="counts")
spark_jobs.wait_for_rows(query, folder)
(folder / "has-rows").touch()
assert query.await_termination(180)
spark.stop()
"""


@in_executors
@pytest.mark.parametrize("alignment", ["aligned", "unaligned"])
def test_a_killed_executor_costs_time_and_no_rows(spark, tmp_path, alignment):
    wait_for_executors(spark)
    job = counted(2 * ROWS, folder=tmp_path)
    with start(job, spark, tmp_path, alignment=alignment) as query:
        wait_for_rows(query, tmp_path)
        _, daemon = max(signed(tmp_path))
        os.kill(_parent(daemon), signal.SIGKILL)
        assert query.await_termination(180)
        assert query.status.restarts >= 1
    check(spark, tmp_path, 2 * ROWS)
    wait_for_executors(spark)


def _parent(pid):
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("PPid")).split()[1])


@pytest.mark.timeout(600)
def test_a_killed_driver_is_replaced_by_the_next_one(spark, tmp_path):
    script = tmp_path / "driver.py"
    script.write_text(textwrap.dedent(DRIVER), encoding="utf-8")
    run = [sys.executable, str(script), str(tmp_path)]
    first = subprocess.Popen(run, cwd=tmp_path)
    try:
        done = (tmp_path / "has-rows").exists
        wait_until(lambda: done() or first.poll() is not None, "rows have come", 180)
        assert first.poll() is None
    finally:
        first.kill()
        first.wait()
    workers = {worker for worker, _ in signed(tmp_path)}
    assert workers
    wait_until(
        lambda: not any(Path(f"/proc/{one}").exists() for one in workers),
        "the workers of the killed driver have ended",
        30,
    )
    before = list((tmp_path / "out").glob("*.parquet"))
    again = subprocess.run(run, cwd=tmp_path, check=False, timeout=300)
    assert again.returncode == 0
    assert all(one.exists() for one in before)
    check(spark, tmp_path, 2 * ROWS)
