"""A worker killed by the kernel for its memory: no row is lost, and other tasks continue."""

import contextlib
import os
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle
from tests.kit.masters import in_executors
from tests.kit.outcomes import outcome_of

from headgate.spark import exchange

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

#: Folder of version 1 of the memory controller, on machines that have it.
CONTROLLER = Path("/sys/fs/cgroup/memory")
LIMIT = 400 * 1024 * 1024


@pytest.fixture
def group():
    """Yield a memory group of 400 MiB that a worker can join."""
    folder = CONTROLLER / f"headgate-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / "memory.limit_in_bytes").write_text(str(LIMIT))
    except OSError as error:
        pytest.skip(f"cannot create a memory group here: {error}")
    yield folder
    for pid in (folder / "cgroup.procs").read_text().split():
        with contextlib.suppress(OSError):  # the process has ended
            (CONTROLLER / "cgroup.procs").write_text(pid)
    folder.rmdir()


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
