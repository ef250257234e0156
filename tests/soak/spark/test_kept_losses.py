"""Lost executors and failing tasks of kept exchanges: Spark makes again what was lost, and no more."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from pyspark import cloudpickle
from tests.kit.masters import in_executors
from tests.kit.outcomes import once, wait_for_executors

import headgate as hg
from headgate.spark import exchange, explain, last_stats

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS = 30_000
PRODUCERS = 6


@pytest.fixture
def wide(spark):
    """Rows whose pages are too many to travel through Spark's shuffle."""
    wait_for_executors(spark)
    yield spark.range(0, ROWS, 1, PRODUCERS).selectExpr(
        "id", "id % 100 as k", "repeat('x', 500) as s"
    )
    wait_for_executors(spark)


def executor_of_this_worker():
    daemon = Path(f"/proc/{os.getppid()}/status").read_text(encoding="ascii")
    executor = int(next(x for x in daemon.splitlines() if x.startswith("PPid")).split()[1])
    assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{executor}/cmdline").read_bytes()
    return executor


def noting(folder):
    """Return a function that notes which executor ran which producer."""

    def work(batches):
        from pyspark import TaskContext

        yield from batches
        name = (
            f"{TaskContext.get().partitionId()}-{executor_of_this_worker()}-{time.monotonic_ns()}"
        )
        (folder / name).touch()

    return work


def killing(folder, when):
    """Return a function that kills its executor once, after the batch number ``when``."""

    def work(batches):
        for number, batch in enumerate(batches):
            yield batch
            if number == when and once(folder, "killed"):
                executor = executor_of_this_worker()
                (folder / "killed").write_text(str(executor), encoding="ascii")
                os.kill(executor, signal.SIGKILL)
                time.sleep(60)

    return work


def right(rows):
    return sorted(row.id for row in rows) == list(range(ROWS))


def ran(folder):
    """Return the producers that ran, in their order: number of the task, and its executor."""
    notes = sorted(folder.glob("*-*-*"), key=lambda path: int(path.name.split("-")[2]))
    return [tuple(map(int, path.name.split("-")[:2])) for path in notes]


def losing_in_reduce(wide, folder, partitions):
    return exchange(
        wide,
        by="k",
        map=noting(folder),
        map_schema=wide.schema,
        reduce=killing(folder, 0),
        schema=wide.schema,
        num_partitions=partitions,
        mode="kept",
    )


@in_executors
@pytest.mark.parametrize("partitions", [4, 40])
def test_an_executor_lost_in_the_reduce_stage(wide, tmp_path, partitions):
    out = losing_in_reduce(wide, tmp_path, partitions)
    assert right(out.select("id").collect())
    killed = int((tmp_path / "killed").read_text(encoding="ascii"))
    producers = ran(tmp_path)
    lost = sorted(task for task, executor in producers[:PRODUCERS] if executor == killed)
    again = sorted(task for task, _ in producers[PRODUCERS:])
    assert lost, "both executors had producers"
    # Until the driver knows of the loss, executors of one host read each other's shuffle files.
    assert set(again) <= set(lost)
    assert last_stats().made_again == len(again)


@in_executors
def test_an_executor_lost_in_the_tasks_between_two_exchanges(wide, tmp_path):
    options = {"schema": wide.schema, "num_partitions": 4, "mode": "kept"}
    first = exchange(wide, by="k", map=noting(tmp_path), **options)
    out = exchange(first, by="id", map=killing(tmp_path, 0), **options)
    assert explain(out).exchanges[1].inputs[0].follows == explain(first).exchanges[0].name
    assert right(out.select("id").collect())
    killed = int((tmp_path / "killed").read_text(encoding="ascii"))
    producers = ran(tmp_path)
    lost = {task for task, executor in producers[:PRODUCERS] if executor == killed}
    assert lost, "both executors had producers"
    assert {task for task, _ in producers[PRODUCERS:]} <= lost


@in_executors
def test_rows_in_turn_are_the_same_when_a_producer_runs_again(wide, tmp_path):
    out = exchange(
        wide,
        map=noting(tmp_path),
        map_schema=wide.schema,
        reduce=killing(tmp_path, 0),
        schema=wide.schema,
        num_partitions=40,
        mode="kept",
    )
    assert right(out.select("id").collect())
    killed = int((tmp_path / "killed").read_text(encoding="ascii"))
    producers = ran(tmp_path)
    lost = {task for task, executor in producers[:PRODUCERS] if executor == killed}
    assert {task for task, _ in producers[PRODUCERS:]} <= lost


def fewer(batches, is_first):
    for batch in batches:
        yield batch if is_first else batch.slice(1)


def in_another_order(batches, is_first):
    found = list(batches)
    yield from found if is_first else found[::-1]


def by_order(batch):
    return [row % 4 for row in range(batch.num_rows)]


@in_executors
@pytest.mark.parametrize(
    ("by", "change"),
    [
        ("k", fewer),
        (None, in_another_order),
        (by_order, in_another_order),
        (hg.RebalanceSelector(by_rows=True), in_another_order),
    ],
    ids=["fewer rows", "other order", "other order, function", "other order, rebalance"],
)
def test_a_producer_that_returns_other_rows_when_it_runs_again_fails_the_job(
    wide, tmp_path, by, change
):
    def unsteady(batches):
        from pyspark import TaskContext

        return change(batches, once(tmp_path, f"first-{TaskContext.get().partitionId()}"))

    def killing_after_another(batches):
        from pyspark import TaskContext

        yield from batches
        if TaskContext.get().partitionId() > 0:
            (tmp_path / f"ended-{TaskContext.get().partitionId()}").touch()
        elif once(tmp_path, "killed"):
            while not list(tmp_path.glob("ended-*")):
                time.sleep(0.1)
            time.sleep(2.0)  # until the driver has the rows of the other
            os.kill(executor_of_this_worker(), signal.SIGKILL)
            time.sleep(60)

    wide.sparkSession.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    schemas = {"map_schema": wide.schema, "schema": wide.schema}
    job = {"map": unsteady, "reduce": killing_after_another, "num_partitions": 4, "mode": "kept"}
    with pytest.raises(Exception, match="indeterminate output"):
        exchange(wide, by=by, **job, **schemas).collect()
    wide.sparkSession.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


@in_executors
def test_an_executor_lost_in_the_map_stage(wide, tmp_path):
    out = exchange(
        wide.repartition(PRODUCERS),
        by="k",
        map=killing(tmp_path, 0),
        num_partitions=4,
        mode="kept",
        schema=wide.schema,
    )
    assert right(out.select("id").collect())
    assert (tmp_path / "killed").exists()


@in_executors
def test_a_consumer_that_fails_after_half_of_its_rows_reads_them_again(wide, tmp_path):
    def fails_once(batches):
        for number, batch in enumerate(batches):
            yield batch
            if number == 0 and once(tmp_path, "failed"):
                raise ValueError("once")

    out = exchange(
        wide,
        by="k",
        map=noting(tmp_path),
        map_schema=wide.schema,
        reduce=fails_once,
        schema=wide.schema,
        num_partitions=4,
        mode="kept",
    )
    assert right(out.select("id").collect())
    assert len(ran(tmp_path)) == PRODUCERS, "no producer runs again"
    assert (last_stats().made_again, last_stats().failed_attempts) == (0, 1)
