"""Processes of hosts that are killed: what they serve is served again, or made again, and no row is lost."""

import os
import signal
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle
from tests.kit.hosts import hosts_of
from tests.kit.masters import in_executors
from tests.kit.outcomes import once
from tests.kit.waiting import wait_until
from tests.soak.ends.test_kept_lost_files import PRODUCERS, keep, right, same, way

from headgate.spark import last_stats

__all__ = ["keep", "way"]

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = [in_executors, pytest.mark.parametrize("way", ["network"], indirect=True)]


def opened(process):
    """Return the names of all that a process has open; nothing once it has ended."""
    try:
        return [str(one.readlink()) for one in Path(f"/proc/{process}/fd").iterdir()]
    except OSError:
        return []


def serving(process):
    """Return True for a process that listens, and False for the one above it."""
    return any(name.startswith("socket:") for name in opened(process))


def kill(processes):
    for process in processes:
        os.kill(process, signal.SIGKILL)


def made_again(out):
    """Read once more; return how many producers ran for it."""
    assert right(out)
    return last_stats().producers


def test_a_host_whose_idle_process_is_killed_goes_on(spark, keep):
    out = keep()
    assert right(out)
    idle = {process for process in hosts_of(spark) if not serving(process)}
    assert len(idle) == 2, "one of each executor"
    kill(idle)
    wait_until(lambda: not idle & hosts_of(spark), "they are gone", 10)
    assert made_again(out) == 0


def test_a_host_that_is_killed_as_a_whole_is_started_again_by_the_next_task(spark, keep):
    out = keep()
    assert right(out)
    processes = hosts_of(spark)
    assert len(processes) == 4
    kill(sorted(processes))  # first the one that would start the other one again
    wait_until(lambda: not hosts_of(spark), "they are gone", 10)
    assert made_again(out) <= PRODUCERS
    assert len(hosts_of(spark)) == 4


def test_a_host_that_nobody_starts_again_costs_its_executor(spark, keep):
    out = keep()
    assert right(out)
    # By what is open: executors that earlier tests killed have left files too.
    files = {process: opened(process) for process in hosts_of(spark)}
    lock = min(name for names in files.values() for name in names if name.endswith("/host.lock"))
    Path(lock).with_name("host.json").unlink()
    kill(sorted(process for process, names in files.items() if lock in names))
    assert 1 <= made_again(out) <= PRODUCERS


def test_hosts_that_are_killed_while_they_are_read_cost_no_row(spark, keep, tmp_path):
    mine = spark.conf.get("spark.local.dir")

    def killing(batches):
        for number, batch in enumerate(batches):
            yield batch
            if number == 0 and once(tmp_path, "killed"):
                for process in sorted(int(one.name) for one in Path("/proc").glob("[0-9]*")):
                    if any(n.startswith(mine) and n.endswith("host.lock") for n in opened(process)):
                        os.kill(process, signal.SIGKILL)

    assert right(keep(killing))
    assert (tmp_path / "killed").exists()
    assert right(keep(same))
