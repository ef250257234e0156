"""The arguments of exchange() from calls and confs, and the plan through Spark's own shuffle; mistakes.txt has wrong calls."""

import sys

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from tests.kit.waiting import wait_until

from headgate.errors import (
    OptionError,
)
from headgate.spark import exchange

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def same(batches):
    return batches


def test_a_call_starts_no_job(spark, numbers):
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(None))
    out = exchange(numbers, by="k")
    assert out.columns == ["id", "k", "s"]
    assert set(tracker.getJobIdsForGroup(None)) == before


def test_confs_are_read_and_checked(spark, numbers):
    spark.conf.set("spark.headgate.segmentSize", "none")
    try:
        with pytest.raises(OptionError, match="segment_size"):
            exchange(numbers, by="k")
        assert exchange(numbers, by="k", segment_size="64k").count() == 20_000
    finally:
        spark.conf.unset("spark.headgate.segmentSize")


def test_batch_bytes_joins_small_pages(numbers):
    def largest(batches):
        rows = [batch.num_rows for batch in batches]
        yield pa.RecordBatch.from_pydict({"all": [sum(rows)], "largest": [max(rows)]})

    out = exchange(
        numbers,
        by="k",
        reduce=largest,
        schema="all long, largest long",
        num_partitions=1,
        segment_size="4k",
        batch_bytes="1m",
    )
    (row,) = out.collect()
    assert row["all"] == 20_000
    assert row["largest"] > 4096 // 8, "a batch is no larger than a page"


def test_a_pipelined_exchange_is_a_streaming_job_also_by_conf(spark, numbers):
    spark.conf.set("spark.headgate.mode", "pipelined")
    try:
        with pytest.raises(OptionError, match="mode='pipelined' is not one of its") as caught:
            exchange(numbers, by="k")
    finally:
        spark.conf.set("spark.headgate.mode", "kept")
    assert "headgate.stream.stream(source) ... .start(spark=spark)" in caught.value.remedy


def test_murmur3_returns_sparks_hash(spark):
    from headgate.spark.plan.shuffle import murmur3

    row = spark.sql("select hash(0), hash(1), hash(42), hash(2147483647), hash(123456789)").first()
    assert [murmur3(n) for n in (0, 1, 42, 2**31 - 1, 123456789)] == list(row)


def test_the_secret_is_nowhere_to_be_seen(spark, numbers, capsys):
    from headgate.spark.driver import application

    out = exchange(numbers, by="k")
    out.explain(extended=True)
    owner = application.of(spark.sparkContext)
    seen = capsys.readouterr().out + repr(owner._host_lookup) + repr(out)
    assert "secret" not in seen
    for key in owner._host_lookup._keys.values():
        assert repr(key)[2:-1] not in seen


def test_a_schema_of_pyarrow(numbers):
    schema = pa.schema([("k", pa.uint8()), ("s", pa.large_string()), ("id", pa.int64())])
    out = exchange(numbers, by="k", map=same, map_schema=numbers.schema, reduce=same, schema=schema)
    assert out.schema.simpleString() == "struct<k:smallint,s:string,id:bigint>"
    assert sorted(out.collect()) == sorted(numbers.select("k", "s", "id").collect())


def test_foreach_batch_of_a_streaming_dataframe(spark, tmp_path):
    rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    found = []

    def write(batch, _):
        found.extend(
            row["value"]
            for row in exchange(batch, "value", map=same, schema=batch.schema).collect()
        )

    options = {"checkpointLocation": str(tmp_path / "checkpoint")}
    query = rates.writeStream.foreachBatch(write).options(**options).start()
    try:
        wait_until(lambda: len(found) >= 30, "three batches")
    finally:
        query.stop()
    assert sorted(found)[:30] == list(range(30))
