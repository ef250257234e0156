"""Kept exchanges: Spark schedules both sides, and what was lost is made again."""

import os
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from tests.kit.masters import MASTER, PYSPARK, in_executors
from tests.kit.waiting import wait_until

from headgate.errors import NotBuiltError
from headgate.spark import Input, exchange, explain, iterate, last_stats

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS = 20_000


def same(batches):
    yield from batches


def placed(df):
    return sorted(map(tuple, df.selectExpr("spark_partition_id() as p", "*").collect()))


def kept(df, **options):
    return exchange(df, **{"by": "k", "map": same, "mode": "kept", "schema": df.schema, **options})


def files(spark):
    """Return the files of kept partitions on the executors, which share a folder."""
    return list(Path(spark.conf.get("spark.local.dir")).rglob("kept-*"))


@pytest.fixture
def wide(spark):
    """A producer's share is above the 1 MiB that may travel through Spark's shuffle."""
    return spark.range(0, ROWS, 1, 4).selectExpr("id", "id % 100 as k", "repeat('x', 500) as s")


@pytest.mark.parametrize("partitions", [1, 4, 50])
def test_rows_are_where_spark_places_them(numbers, wide, partitions):
    for df in (numbers, wide):
        out = kept(df, num_partitions=partitions)
        assert placed(out) == placed(df.repartition(partitions, "k"))


def test_small_outputs_leave_no_pages_in_files(spark, numbers, wide):
    def left(df):
        """Return how many files of pages and of indexes an exchange leaves."""
        assert kept(df).count() == ROWS
        # Files of earlier tests may be swept meanwhile.
        own = [path for path in files(spark) if last_stats().name in path.name]
        pages = sum(path.suffix == "" for path in own)
        return pages, len(own) - pages

    # Where executors may be lost, each producer leaves its indexes, and few pages behind them.
    lasting = MASTER.startswith("local-cluster")
    assert left(numbers) == (0, 7 if lasting else 0)
    assert left(wide) == (4, 4 if lasting else 0)


@pytest.mark.skipif(PYSPARK < (4, 1), reason="has no other ids")
def test_ids_by_hash_place_rows_alike(numbers, monkeypatch):
    from pyspark.sql.classic.dataframe import DataFrame

    expected = placed(numbers.repartition(7, "k"))
    monkeypatch.delattr(DataFrame, "repartitionById")
    monkeypatch.delattr(DataFrame.__mro__[1], "repartitionById", raising=False)
    out = kept(numbers, num_partitions=7)
    assert "RepartitionById" not in out._jdf.queryExecution().toString()
    assert placed(out) == expected


def test_the_plan_says_how_rows_travel(numbers, mode):
    out = exchange(numbers, by="k", map=same, num_partitions=3, schema=numbers.schema)
    plan = out._jdf.queryExecution().toString()
    if mode == "spark":
        assert "headgate: map(" in plan
    else:
        assert "kept by [k] -> 3 through files: map(" in plan
        assert "kept by [k] -> 3 through files: reduce(" in plan
    alone = exchange(numbers, by="k", reduce=same, schema=numbers.schema, mode="auto")
    assert "headgate: reduce(" in alone._jdf.queryExecution().toString()


def test_a_partition_without_rows_calls_reduce(numbers):
    def count(batches):
        yield pa.RecordBatch.from_pydict({"n": [sum(batch.num_rows for batch in batches)]})

    out = kept(
        numbers.where("k = 7"),
        reduce=count,
        map_schema=numbers.schema,
        schema="n long",
        num_partitions=6,
    )
    assert sorted(row["n"] for row in out.collect()) == [0] * 5 + [ROWS // 100]


def test_two_collects_of_one_plan_run_the_producers_once(spark, wide):
    ran = spark.sparkContext.accumulator(0)

    def counted(batches):
        ran.add(1)
        yield from batches

    out = kept(wide, map=counted)
    assert len(out.collect()) == len(out.collect()) == ROWS
    assert ran.value == 4


def test_a_cached_result_survives_its_files(spark, wide):
    out = kept(wide).cache()
    try:
        assert out.count() == ROWS
        for path in files(spark):
            path.unlink()
        assert out.where("k = 7").count() == ROWS // 100
    finally:
        out.unpersist(blocking=True)


def test_a_reduce_that_ends_early_is_called_once_per_partition(numbers, wide):
    def first(batches):
        yield next(iter(batches)).slice(0, 1)

    for df in (numbers, wide):
        assert kept(df, reduce=first, num_partitions=3).count() == 3


@in_executors
def test_rows_are_not_placed_by_their_order_if_spark_does_not_compare_them(spark, numbers):
    conf = "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch"
    spark.conf.set(conf, "false")
    try:
        for by in (None, lambda batch: [0] * batch.num_rows):
            with pytest.raises(NotBuiltError, match="by their order"):
                kept(numbers, by=by)
        assert kept(numbers).count() == ROWS
        # By default Spark places rows that it can place.
        in_turn = kept(numbers, by=None, mode="auto")
        assert "kept by" not in in_turn._jdf.queryExecution().toString()
        assert in_turn.count() == ROWS
    finally:
        spark.conf.unset(conf)


def test_a_shuffle_that_is_not_known_to_write_local_files_is_left_to_spark(numbers, monkeypatch):
    manager = "org.apache.spark.shuffle.celeborn.SparkShuffleManager"
    confs = {"spark.shuffle.manager": manager}
    monkeypatch.setattr("headgate.spark.plan.facts.context_confs", lambda _: confs)
    options = {"map": same, "schema": numbers.schema}
    out = exchange(numbers, by="k", mode="auto", **options)
    assert "kept by" not in out._jdf.queryExecution().toString()
    assert out.count() == ROWS
    assert f"spark.shuffle.manager={manager} is not known" in " ".join(str(explain(out)).split())
    state = Input(numbers, by="k")
    rounds = {
        "by": "k",
        "send": same,
        "update": lambda state, _: state,
        "rounds": 1,
        "num_partitions": 1,
    }
    for refused in (
        lambda: exchange(numbers, by="k", mode="kept", **options),
        lambda: exchange(
            [numbers, numbers], by="k", reduce=lambda rows, _: rows, schema=numbers.schema
        ),
        lambda: iterate(state, message_schema=numbers.schema, **rounds),
    ):
        with pytest.raises(
            NotBuiltError, match=r"HG-2201.* cannot be kept with this shuffle"
        ) as caught:
            refused()
        assert manager in str(caught.value)
        assert "spark.shuffle.manager=sort" in str(caught.value)


@in_executors
def test_a_killed_worker_runs_again_and_no_other(spark, wide, tmp_path):
    def killed_once(batches):
        from pyspark import TaskContext

        number = TaskContext.get().partitionId()
        (tmp_path / f"{number}-{time.monotonic_ns()}").touch()
        yield from batches
        if number == 2 and len(list(tmp_path.glob("2-*"))) == 1:
            os.kill(os.getpid(), 9)

    for role in ("map", "reduce"):
        out = kept(wide, num_partitions=4, **{role: killed_once})
        assert placed(out) == placed(wide.repartition(4, "k"))
        ran = sorted(path.name[0] for path in tmp_path.iterdir())
        assert ran == ["0", "1", "2", "2", "3"]
        for path in tmp_path.iterdir():
            path.unlink()


@pytest.mark.soak
def test_files_are_deleted_once_the_plan_is_garbage(spark, wide):
    import gc

    out = kept(wide)
    assert out.count() == ROWS
    mine = set(files(spark))
    assert mine
    del out
    gc.collect()

    def are_gone():
        # Spark's cleaner follows the JVM's collector. The driver sweeps each 10 s.
        spark.sparkContext._jvm.System.gc()
        return not mine & set(files(spark))

    wait_until(are_gone, "the files of a plan that is garbage are gone", 180)


def test_statistics_tell_of_both_stages(numbers, wide):
    for df, has_files in ((numbers, False), (wide, True)):
        out = kept(df, num_partitions=3)
        assert out.count() == ROWS
        stats = last_stats()
        assert (stats.state, stats.mode, stats.error) == ("done", "kept", "")
        assert (stats.rows, stats.rows_received, stats.consumers) == (ROWS, ROWS, 3)
        assert stats.producers == df.rdd.getNumPartitions()
        assert (stats.file_bytes >= stats.bytes > 500 * ROWS) if has_files else not stats.file_bytes
        assert (stats.made_again, stats.failed_attempts) == (0, 0)
        assert {stage.name for stage in stats.stages} >= {"source", "map", "reduce"}
        # Few rows take no memory of a pool.
        assert (0 < stats.peak_bytes <= 64 << 20) if has_files else stats.peak_bytes == 0
        assert "kept: " in str(stats)
        assert all(task.peak_resident_bytes > 10 << 20 for task in stats.tasks)


def test_the_peak_of_memory_is_that_of_each_task_in_a_worker_that_had_others_before(numbers):
    def hoards(batches):
        hoard = bytearray(os.urandom(1 << 20)) * 300
        yield from batches
        del hoard

    peaks = []
    for function in (hoards, same):
        assert kept(numbers, num_partitions=3, map=function, schema=numbers.schema).count() == ROWS
        stats = last_stats()
        peaks.append(stats.peak_resident_bytes)
        assert stats.peak_resident_bytes == max(task.peak_resident_bytes for task in stats.tasks)
        assert not any("peak_resident_bytes" in notice for notice in stats.notices)
    assert peaks[0] > 300 << 20
    assert 0 < peaks[1] < peaks[0] - (150 << 20)


def test_each_action_is_a_run(wide):
    out = kept(wide)
    seen = []
    for _ in range(2):
        assert len(out.collect()) == ROWS
        seen.append(last_stats())
    assert seen[1].number == seen[0].number + 1
    assert (seen[0].producers, seen[1].producers) == (4, 0), "Spark has the output of the first"
    assert seen[1].rows_received == ROWS


@pytest.mark.soak
def test_a_run_that_fails_or_is_limited_says_so(wide):
    def third_fails(batches):
        from pyspark import TaskContext

        if TaskContext.get().partitionId() == 3:
            time.sleep(1.0)
            raise ValueError("the third")
        yield from batches

    with pytest.raises(PySparkException, match="the third"):
        kept(wide, map=third_fails).collect()
    wait_until(lambda: last_stats().state == "failed", "Spark has written down the failure", 10)
    assert "the third" in last_stats().error_summary
    assert kept(wide, num_partitions=4).limit(5).count() == 5
    wait_until(lambda: last_stats().state == "done", "Spark has written down the end", 10)


@pytest.mark.soak
def test_auto_keeps_what_a_map_makes_on_one_host(numbers, mode):
    out = exchange(numbers, by="k", map=same, num_partitions=2, schema=numbers.schema)
    assert placed(out) == placed(numbers.repartition(2, "k"))
    assert ("kept by" in out._jdf.queryExecution().toString()) == (mode != "spark")
