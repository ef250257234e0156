"""Kept exchanges that are cancelled, damaged or run side by side; with adaptive execution and without."""

import os
import sys
import threading
import time
from pathlib import Path

import pytest
from pyspark import InheritableThread, cloudpickle
from pyspark.errors import PySparkException
from tests.kit.masters import in_executors, not_in_executors
from tests.kit.waiting import wait_until

from headgate.spark import exchange, last_stats

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS = 20_000


def same(batches):
    yield from batches


def placed(df):
    return sorted(map(tuple, df.selectExpr("spark_partition_id() as p", "*").collect()))


def kept(df, **options):
    given = {"by": "k", "map": same, "mode": "kept", "schema": df.schema, "num_partitions": 4}
    if "reduce" in options:
        given["map_schema"] = df.schema
    return exchange(df, **{**given, **options})


@pytest.fixture
def wide(spark):
    """A producer's pages are too many to travel through Spark's shuffle."""
    return spark.range(0, ROWS, 1, 4).selectExpr("id", "id % 100 as k", "repeat('x', 500) as s")


@pytest.fixture(params=["true", "false"])
def adaptive(spark, request):
    name = "spark.sql.adaptive.enabled"
    before = spark.conf.get(name)
    spark.conf.set(name, request.param)
    yield request.param
    spark.conf.set(name, before)


def test_rows_are_those_of_spark_with_adaptive_execution_and_without(adaptive, wide):
    out = kept(wide, num_partitions=9)
    assert placed(out) == placed(wide.repartition(9, "k"))
    grouped = out.groupBy("k").count().join(out.select("k").distinct(), "k")
    assert sorted(map(tuple, grouped.collect())) == [(k, ROWS // 100) for k in range(100)]
    again = kept(grouped.selectExpr("k", "count"), num_partitions=3)
    assert sorted(map(tuple, again.collect())) == [(k, ROWS // 100) for k in range(100)]
    assert len(out.union(out).take(7)) == 7
    assert out.coalesce(1).count() == ROWS
    assert not out.isEmpty()


def test_four_threads_of_exchanges_share_four_slots(wide):
    found, threads = [], []

    def act(partitions):
        out = kept(kept(wide, num_partitions=partitions), by="id", num_partitions=partitions)
        found.append((out.count(), out.select("id").distinct().count()))

    for partitions in (1, 3, 4, 9):
        threads.append(threading.Thread(target=act, args=(partitions,)))
        threads[-1].start()
    for thread in threads:
        thread.join(120)
    assert found == [(ROWS, ROWS)] * 4


def sleeping(folder):
    def sleep(batches):
        for batch in batches:
            (folder / "begun").touch()
            time.sleep(60)
            yield batch

    return sleep


def cancel_group(context):
    context.cancelJobGroup("mine")


def cancel_tag(context):
    context.cancelJobsWithTag("mine too")


def cancel_all(context):
    context.cancelAllJobs()


@pytest.mark.parametrize("cancel", [cancel_group, cancel_tag, cancel_all])
@pytest.mark.parametrize("role", ["map", "reduce"])
def test_a_cancelled_exchange_ends_at_once_and_the_next_one_works(
    spark, wide, tmp_path, role, cancel
):
    out = kept(wide, **{role: sleeping(tmp_path)})
    texts = []

    def act():
        spark.sparkContext.setJobGroup("mine", "to be cancelled")
        spark.sparkContext.addJobTag("mine too")
        try:
            out.collect()
        except Exception as error:  # noqa: BLE001 - Spark's classes differ by version
            texts.append(str(error))

    thread = InheritableThread(target=act)
    thread.start()
    wait_until((tmp_path / "begun").exists, "a function has a batch", 60)
    cancel(spark.sparkContext)
    thread.join(20)
    assert not thread.is_alive()
    assert "cancel" in texts[0].lower()
    assert "HG-" not in texts[0]
    tracker = spark.sparkContext.statusTracker()
    wait_until(lambda: not list(tracker.getActiveJobsIds()), "no job is active", 20)
    if last_stats() is not None and last_stats().name[:4] in out._jdf.queryExecution().toString():
        wait_until(lambda: last_stats().state == "cancelled", "Spark has written it down", 10)
    assert kept(wide).count() == ROWS


def flip(folders, exchange_id, suffix, most):
    """Change one bit in the middle of files of pages, or of indexes, of an exchange; return of how many."""
    number = 0
    for folder in folders:
        for path in Path(folder).rglob(f"kept-{exchange_id}*"):
            if number < most and path.suffix == suffix and path.stat().st_size:
                at = path.stat().st_size // 2
                with path.open("r+b") as file:
                    file.seek(at)
                    byte = file.read(1)[0]
                    file.seek(at)
                    file.write(bytes([byte ^ 1]))
                number += 1
    return number


@in_executors
@pytest.mark.parametrize("suffix", ["", ".index"])
@pytest.mark.parametrize("most", [1, 4])
def test_producers_whose_files_are_damaged_run_again(spark, wide, suffix, most):
    out = kept(wide)
    rows = sorted(map(tuple, out.collect()))
    exchange_id = last_stats().name
    assert flip([spark.conf.get("spark.local.dir")], exchange_id, suffix, most) == most
    # Spark has the output of the producers, so only consumers run at first.
    assert sorted(map(tuple, out.collect())) == rows
    stats = last_stats()
    assert stats.name == exchange_id
    assert stats.state == "done"
    # Spark may take all map output of that executor for lost.
    assert most <= stats.producers <= 4


@not_in_executors
def test_damaged_pages_are_an_error_where_spark_tries_nothing_again(spark, wide):
    out = kept(wide)
    assert len(out.collect()) == ROWS
    assert flip([spark.conf.get("spark.local.dir")], last_stats().name, "", 1) == 1
    with pytest.raises(PySparkException) as caught:
        out.collect()
    assert "[HG-3005]" in str(caught.value)
    assert "IntegrityError" in str(caught.value)
    # Spark keeps the failure of an action, and makes the pages again for another one.
    assert out.count() == ROWS


@in_executors
def test_a_deleted_file_is_an_error_that_names_its_producer(spark, wide):
    out = kept(wide)
    assert len(out.collect()) == ROWS
    for path in Path(spark.conf.get("spark.local.dir")).rglob("kept-*"):
        path.unlink()
    with pytest.raises(PySparkException, match=r"(?s)HG-3006.*of producer \d"):
        out.collect()


@in_executors
def test_a_producer_that_fails_after_half_of_its_rows_leaves_nothing_of_them(wide, spark, tmp_path):
    def fails_once(batches):
        from pyspark import TaskContext

        for number, batch in enumerate(batches):
            yield batch
            if number == 0 and TaskContext.get().partitionId() == 1:
                try:
                    (tmp_path / "failed").open("x").close()
                except FileExistsError:
                    continue
                raise ValueError("once")

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    try:
        out = kept(wide, map=fails_once)
        assert placed(out) == placed(wide.repartition(4, "k"))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert (tmp_path / "failed").exists()
    stats = last_stats()
    assert (stats.producers, stats.made_again, stats.failed_attempts) == (4, 0, 1)
    own = Path(spark.conf.get("spark.local.dir")).rglob(f"*{stats.name}*")
    pages = [path for path in own if path.suffix == ""]
    assert len(pages) == 4
    assert sum(path.stat().st_size for path in pages) <= stats.file_bytes + 4 * os.sysconf(
        "SC_PAGE_SIZE"
    )
