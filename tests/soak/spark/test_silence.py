"""Workers that are stopped or hold the GIL: only one that stays silent counts as lost."""

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from pyspark import cloudpickle
from tests.faults.patience import wait_until
from tests.spark.masters import in_executors
from tests.spark.outcomes import rounds

from headgate.spark import exchange, last_stats

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = in_executors

#: Seconds for which a function holds the GIL, and ``heartbeat_timeout``. The full test uses 10 s.
HELD, PATIENCE = rounds((6, "2s"), (60, "10s"))


def stop_here(folder):
    """Write the pid to a file and stop this process, at the first call only."""
    mark = folder / "stopped"
    try:
        with mark.open("x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGSTOP)


def is_running(pid):
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.parametrize(("role", "partitions"), [("map", 2), ("reduce", 2), ("reduce", 1)])
def test_a_process_that_is_stopped_for_good_is_replaced_and_named_in_the_log(
    spark, numbers, tmp_path, caplog, role, partitions
):
    def stop(batches):
        for batch in batches:
            if batch.num_rows:
                stop_here(tmp_path)
            yield batch

    out = exchange(
        numbers,
        by="k",
        num_partitions=partitions,
        heartbeat_timeout="2s",
        schema=numbers.schema,
        **{role: stop},
    )
    with caplog.at_level("WARNING", "headgate.spark"):
        assert sorted(out.toArrow()["id"].to_pylist()) == list(range(20_000))
    what = {"map": "producer", "reduce": "consumer"}[role]
    (said,) = [r.getMessage() for r in caplog.records if "epoch 0 ended" in r.getMessage()]
    assert "no heartbeat for 2 s" in said
    assert f"{what} of partition " in said
    wait_until(lambda: last_stats().state != "running", "runs")
    assert (last_stats().state, last_stats().epoch) == ("done", 1)
    pid = int((tmp_path / "stopped").read_text())
    wait_until(lambda: not is_running(pid), "stopped workers", 30)


def test_processes_that_are_stopped_for_5_seconds_are_not_lost(spark, numbers, tmp_path):
    folders = {name: tmp_path / name for name in ("map", "reduce")}

    def stopper(folder):
        folder.mkdir()

        def stop(batches):
            for batch in batches:
                if batch.num_rows:
                    stop_here(folder)
                yield batch

        return stop

    functions = {name: stopper(folder) for name, folder in folders.items()}

    def resume(folder):
        wait_until((folder / "stopped").exists, "running workers", 60)
        time.sleep(5)
        os.kill(int((folder / "stopped").read_text()), signal.SIGCONT)

    threads = [threading.Thread(target=resume, args=(folder,)) for folder in folders.values()]
    for thread in threads:
        thread.start()
    rows = (
        exchange(numbers, by="k", schema=numbers.schema, **functions)
        .selectExpr("sum(id)", "count(id)")
        .first()
    )
    for thread in threads:
        thread.join()
    assert tuple(rows) == (sum(range(20_000)), 20_000)


@pytest.mark.timeout(400)
def test_functions_that_hold_pythons_lock_are_not_lost(spark, numbers, tmp_path):
    def hold_once(batches):
        rest = iter(batches)
        for batch in rest:
            if batch.num_rows:
                ctypes.PyDLL(None).sleep(HELD)
                yield batch
                break
            yield batch
        yield from rest

    out = exchange(
        numbers.coalesce(2),
        by="k",
        map=hold_once,
        reduce=hold_once,
        heartbeat_timeout=PATIENCE,
        schema=numbers.schema,
    )
    rows = out.selectExpr("sum(id)", "count(id)").first()
    assert tuple(rows) == (sum(range(20_000)), 20_000)
