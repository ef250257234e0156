"""Kept exchanges of sources: splits are listed by the call, and an attempt reads those of the one before."""

import os
import signal
import sys
import time

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from tests.kit.masters import in_executors, in_modes
from tests.kit.outcomes import once
from tests.kit.parts import (
    CLOSED,
    GreetingEnumerator,
    GreetingReader,
    Parts,
    all_ids,
    read_at_once,
    rows_of,
)
from tests.kit.waiting import wait_until

from headgate.errors import NotBuiltError, OptionError
from headgate.sink import FileSink
from headgate.source import HybridSource, NumberSequenceSource, WatermarkStrategy
from headgate.spark import exchange, last_stats, write

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = in_modes("auto")

STRATEGY = WatermarkStrategy.for_bounded_out_of_orderness(0).with_timestamp_assigner(
    lambda batch: batch.column("id").cast(pa.timestamp("ms"))
)
ENDED = ("done", "failed", "cancelled")


def ids(df):
    return sorted(row["id"] for row in df.collect())


def ended():
    """Return the statistics of the newest run, once all of its tasks have reported."""
    wait_until(lambda: last_stats().state in ENDED, "the run has ended", 10)
    return last_stats()


def test_by_default_there_are_partitions_and_readers_for_all_slots(spark):
    out = exchange(Parts(40), by="id", spark=spark)
    assert out.rdd.getNumPartitions() == 4
    assert ids(out.select("id")) == all_ids(40)
    found = ended()
    assert (found.mode, found.producers, found.splits_done) == ("kept", 16, 40)
    # No more readers than splits, and one if there are none.
    assert ids(exchange(Parts(3), by="id", spark=spark).select("id")) == all_ids(3)
    assert ended().producers == 3
    assert exchange(Parts(0), by="id", spark=spark).count() == 0
    assert exchange(Parts(5), by="id", parallelism=2, spark=spark).count() == 50
    assert ended().producers == 2


def test_map_reduce_and_arrow_types_that_spark_replaces(spark):
    schema = pa.schema([("id", pa.uint32()), ("s", pa.large_string()), ("t", pa.timestamp("ns"))])

    def read(part, context):
        columns = [[part.number], ["x"], [part.number * 1_000]]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    source = Parts(9, read, schema=schema)
    types = [("id", "bigint"), ("s", "string"), ("t", "timestamp_ntz")]
    assert exchange(source, by="id", spark=spark).dtypes == types
    assert ids(exchange(source, by="s", spark=spark)) == list(range(9))

    def ten(batches):
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"n": [10 * i for i in batch["id"].to_pylist()]})

    def total(batches):
        found = sum(sum(batch["n"].to_pylist()) for batch in batches)
        yield pa.RecordBatch.from_pydict({"total": [found]})

    job = {"by": "n", "map": ten, "map_schema": "n long", "reduce": total, "schema": "total long"}
    rows = exchange(source, num_partitions=3, spark=spark, **job).collect()
    assert len(rows) == 3
    assert sum(row["total"] for row in rows) == 10 * sum(range(9))


def test_a_call_lists_the_splits_and_closes_the_enumerator(spark):
    CLOSED.clear()
    out = exchange(Parts(4), by="id", spark=spark)
    assert len(CLOSED) == 1
    assert ids(out.select("id")) == ids(out.select("id")) == all_ids(4)
    assert len(CLOSED) == 1


def test_chains_joins_and_unions_of_sources(spark):
    left = exchange(Parts(4), by="id", num_partitions=6, spark=spark)
    right = exchange(Parts(6), by="id", num_partitions=6, spark=spark)
    assert ids(left.join(right, "id").select("id")) == all_ids(4)
    assert ids(
        exchange(left.unionAll(right), by="part", map=lambda x: x, schema=left.schema).select("id")
    ) == sorted(all_ids(4) + all_ids(6))
    cached = left.cache()
    assert cached.count() == cached.count() == 40
    cached.unpersist(blocking=True)


@in_executors
@pytest.mark.parametrize("role", ["reader", "consumer"])
def test_a_task_that_runs_again_reads_the_splits_that_it_had(spark, tmp_path, role):
    def read(part, context):
        (tmp_path / f"{part.number}-{os.getpid()}").touch()
        yield rows_of(part, part.number)
        if role == "reader" and part.number == 5 and once(tmp_path, "killed"):
            os.kill(os.getpid(), signal.SIGKILL)

    def reduce(batches):
        for batch in batches:
            if role == "consumer" and once(tmp_path, "killed"):
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    source = Parts(8, read)
    out = exchange(
        source,
        by="id",
        reduce=reduce,
        num_partitions=3,
        parallelism=4,
        spark=spark,
        schema=source.schema,
    )
    assert ids(out.select("id")) == all_ids(8)
    assert (tmp_path / "killed").exists()
    times = {n: len(list(tmp_path.glob(f"{n}-*"))) for n in range(8)}
    # The reader of part 5 has part 1, too, as four readers get the parts in turn.
    again = {1, 5} if role == "reader" else set()
    assert {n for n, count in times.items() if count == 2} == again
    assert sum(times.values()) == 8 + len(again)


def test_a_failing_source_names_the_split(spark):
    def read(part, context):
        if part.number == 2:
            raise OSError("the disk is gone")
        yield from read_at_once(part, context)

    out = exchange(Parts(4, read), by="id", spark=spark)
    with pytest.raises(PySparkException, match=r"HG-6003.*part 2") as caught:
        out.collect()
    assert "OSError: the disk is gone" in str(caught.value)


def test_a_source_that_a_plan_cannot_serve_is_refused_by_the_call(spark):
    first, second = NumberSequenceSource(0, 100), NumberSequenceSource(100, 150)
    hybrid = HybridSource.builder(first).add_source(second).build()
    greeting = Parts(4, enumerator=GreetingEnumerator, reader=GreetingReader)
    for source in (hybrid, greeting):
        for mode in ("auto", "kept", "spark"):
            with pytest.raises(NotBuiltError, match="events") as caught:
                exchange(source, by="id", mode=mode, spark=spark)
            assert "headgate.stream.stream(source)" in caught.value.remedy


def test_watermarks_are_for_streaming_jobs(spark, tmp_path):
    for call in (
        lambda: exchange(Parts(4), by="id", watermarks=STRATEGY, spark=spark),
        lambda: write(Parts(4), FileSink(str(tmp_path)), watermarks=STRATEGY, spark=spark),
    ):
        with pytest.raises(OptionError, match="'watermarks' is no option of exchange") as caught:
            call()
        assert "headgate.stream.stream(source)" in caught.value.remedy


def test_a_source_is_written_to_a_sink(spark, tmp_path):
    result = write(
        Parts(8), FileSink(str(tmp_path / "out")), by="id", num_partitions=3, spark=spark
    )
    assert result.rows == 80
    assert ended().mode == "kept"
    assert ids(spark.read.parquet(str(tmp_path / "out")).select("id")) == all_ids(8)


def test_a_rate_limits_all_readers_together(spark):
    source = NumberSequenceSource(0, 3_000, batch_size=50, splits=8, rows_per_second=1_000)
    begin = time.monotonic()
    assert exchange(source, by="id", spark=spark).count() == 3_000
    assert time.monotonic() - begin > 2.0
