"""A worker killed by the kernel for its memory: no row is lost, and other tasks continue."""

import contextlib
import json
import os
import subprocess
import sys

import pytest
from pyspark import cloudpickle
from tests.kit.cgroups import limited
from tests.kit.masters import in_executors
from tests.kit.outcomes import outcome_of

from headgate.spark import exchange

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

LIMIT = 400 * 1024 * 1024


@pytest.fixture
def group():
    """Yield a memory group of 400 MiB that a worker can join."""
    with limited(LIMIT) as folder:
        yield folder


def kills(group):
    lines = (group / "memory.oom_control").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("oom_kill ")))


@in_executors
@pytest.mark.parametrize("role", ["map", "reduce"])
def test_a_worker_that_the_kernel_kills_for_its_memory(spark, numbers, tmp_path, group, role):
    def greedy(batches):
        hoard = []
        for batch in batches:
            yield batch
            if not batch.num_rows:
                continue
            with contextlib.suppress(FileExistsError), (tmp_path / "greedy").open("x"):
                (group / "cgroup.procs").write_text(str(os.getpid()))
                hoard += [os.urandom(1 << 20) * 16 for _ in range(100)]

    result = exchange(numbers, by="k", schema=numbers.schema, **{role: greedy})
    outcome = outcome_of(result)
    assert kills(group) == 1
    assert outcome == "rows"
    assert outcome_of(exchange(numbers, by="k")) == "rows"


#: An application that is in the group with all of its processes. A worker of it takes more than the group has.
APPLICATION = """
import json, os, sys
from pathlib import Path

group, folder = map(Path, sys.argv[1:])
(group / "memory.limit_in_bytes").write_text(str(1600 << 20))
(group / "cgroup.procs").write_text(str(os.getpid()))
from pyspark.sql import SparkSession
from headgate.spark import exchange, last_stats

def greedy(batches):
    try:
        (folder / "greedy").touch(exist_ok=False)
    except FileExistsError:
        pass
    else:
        hoard = [bytearray(os.urandom(1 << 20)) * 16 for _ in range(100)]
    yield from batches

builder = SparkSession.builder.master("local[1,2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.local.dir", str(folder)).getOrCreate()
numbers = spark.range(1000).selectExpr("id", "id % 7 as k")
rows = exchange(numbers, by="k", map=greedy, schema=numbers.schema, mode="kept").count()
print(json.dumps([rows, last_stats().plain()]))
spark.stop()
"""


def test_the_record_counts_the_workers_that_the_kernel_has_killed(tmp_path, group):
    run = subprocess.run(
        [sys.executable, "-c", APPLICATION, str(group), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    rows, stats = json.loads(run.stdout.splitlines()[-1])
    assert (rows, kills(group), stats["failed_attempts"]) == (1000, 1, 1)
    killed = [notice for notice in stats["notices"] if "has killed" in notice]
    text = "the kernel has killed 1 process for want of memory in the cgroup of tasks"
    assert text in killed[0]
    assert "a limit of 1.7 GB" in killed[0]
    assert "exited unexpectedly" in stats["failures"][0]["summary"]
