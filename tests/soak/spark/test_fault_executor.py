"""Killed executors and tasks: their processes end by themselves, and each row arrives once."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from pyspark import cloudpickle
from tests.kit.masters import in_executors
from tests.kit.outcomes import RIGHT, once, outcome_of, rounds, wait_for_executors
from tests.kit.waiting import wait_until

from headgate.spark import exchange

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

#: Seconds within which all processes of a killed executor must end.
ORPHANS = 5.0


@pytest.fixture(autouse=True)
def all_slots(request):
    """Start each test with all slots, even after a lost executor."""
    if "spark" in request.fixturenames:
        wait_for_executors(request.getfixturevalue("spark"))


def parent(pid):
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    return int(next(x for x in status.splitlines() if x.startswith("PPid")).split()[1])


def is_running(pid):
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return False


def sign(folder):
    """Create a file whose name has this process and its executor."""
    (folder / f"worker-{os.getpid()}-{parent(os.getppid())}").touch()


def workers(folder):
    """Return executor -> worker processes, from the files of :func:`sign`."""
    found = {}
    for path in folder.glob("worker-*"):
        _, worker, executor = path.name.split("-")
        found.setdefault(int(executor), set()).add(int(worker))
    return found


def asleep():
    time.sleep(120)


def holding_the_lock():
    end = time.monotonic() + 120
    while time.monotonic() < end:
        pass


def stuck(folder, act):
    """Return a function that signs, then blocks in one task and names its executor in a file."""

    def work(batches):
        sign(folder)
        for batch in batches:
            if batch.num_rows and once(folder, "stuck"):
                (folder / f"blocked-{parent(os.getppid())}").touch()
                act()
            yield batch

    return work


@in_executors
@pytest.mark.parametrize("act", rounds([asleep], [asleep, holding_the_lock]))
def test_the_processes_of_a_killed_executor_end_by_themselves(spark, numbers, tmp_path, act):
    # A task that blocks in another executor would last longer than this test waits.
    work, outcomes = stuck(tmp_path, act), []
    result = exchange(
        numbers, by="k", num_partitions=2, map=work, reduce=signing(tmp_path), schema=numbers.schema
    )
    action = threading.Thread(target=lambda: outcomes.append(outcome_of(result)))
    action.start()
    wait_until(lambda: any(tmp_path.glob("blocked-*")), "a blocked task")
    executor = int(next(tmp_path.glob("blocked-*")).name.partition("-")[2])
    theirs = workers(tmp_path)[executor]
    assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{executor}/cmdline").read_bytes()
    os.kill(executor, signal.SIGKILL)
    killed = time.monotonic()
    wait_until(lambda: not any(map(is_running, theirs)), "no orphans", ORPHANS)
    print(f"{len(theirs)} workers ended within {time.monotonic() - killed:.2f} s")
    action.join(90)
    spark.sparkContext.cancelAllJobs()
    action.join(20)
    assert outcomes == ["rows"]


def signing(folder):
    def work(batches):
        sign(folder)
        yield from batches

    return work


def killing(folder, how):
    """Return a function that ends the process of one task, once, between two batches."""

    def work(batches):
        for batch in batches:
            yield batch
            if batch.num_rows and once(folder, "killed"):
                how()

    return work


def by_signal():
    os.kill(os.getpid(), signal.SIGKILL)


def by_leaving():
    os._exit(0)


@in_executors
@pytest.mark.parametrize("how", rounds([by_signal], [by_signal, by_leaving]))
@pytest.mark.parametrize("role", ["map", "reduce"])
def test_a_killed_task_without_a_shuffle_after_it(spark, numbers, tmp_path, role, how):
    result = exchange(
        numbers, by="k", num_partitions=2, schema=numbers.schema, **{role: killing(tmp_path, how)}
    )
    assert sorted(row.id for row in result.collect()) == list(range(RIGHT[1]))


@in_executors
@pytest.mark.parametrize("role", rounds(["reduce"], ["map", "reduce"]))
def test_a_killed_task_with_a_shuffle_after_it(spark, numbers, tmp_path, role):
    result = exchange(
        numbers,
        by="k",
        num_partitions=2,
        schema=numbers.schema,
        **{role: killing(tmp_path, by_signal)},
    )
    shuffled = (
        result.groupBy("k").agg({"id": "collect_list"}).selectExpr("explode(`collect_list(id)`) id")
    )
    assert outcome_of(shuffled) == "rows"


@in_executors
def test_rows_of_a_stage_that_are_lost_after_its_end_are_made_again(spark, numbers, tmp_path):
    def lose_the_executor(batches):
        # The consumers' shuffle files are lost with their executor.
        for batch in batches:
            if batch.num_rows and once(tmp_path, "killed"):
                executor = parent(os.getppid())
                assert (
                    b"CoarseGrainedExecutorBackend"
                    in Path(f"/proc/{executor}/cmdline").read_bytes()
                )
                os.kill(executor, signal.SIGKILL)
                time.sleep(60)
            yield batch

    consumed = exchange(
        numbers, by="k", num_partitions=2, reduce=signing(tmp_path), schema=numbers.schema
    )
    after = consumed.repartition(4, "id").mapInArrow(lose_the_executor, consumed.schema)
    assert outcome_of(after) == "rows"
    print(f"{len(workers(tmp_path))} executors had consumers")
    assert (tmp_path / "killed").exists()


@in_executors
@pytest.mark.parametrize("role", rounds(["reduce"], ["map", "reduce"]))
@pytest.mark.parametrize("interrupt", rounds([False], [False, True]))
def test_a_task_that_spark_is_told_to_kill(spark, numbers, tmp_path, role, interrupt):
    def work(batches):
        from pyspark import TaskContext

        for batch in batches:
            if batch.num_rows and once(tmp_path, "chosen"):
                (tmp_path / f"task-{TaskContext.get().taskAttemptId()}").touch()
                time.sleep(8)
            yield batch

    outcomes = []
    result = exchange(numbers, by="k", num_partitions=2, schema=numbers.schema, **{role: work})
    action = threading.Thread(target=lambda: outcomes.append(outcome_of(result)))
    action.start()
    wait_until(lambda: any(tmp_path.glob("task-*")), "a task")
    attempt = int(next(tmp_path.glob("task-*")).name.split("-")[1])
    spark.sparkContext._jsc.sc().killTaskAttempt(attempt, interrupt, "a test")
    action.join(90)
    assert not action.is_alive()
    assert outcomes == ["rows"]
