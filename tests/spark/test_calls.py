"""Arguments that exchange() refuses, and the plan through Spark's own shuffle."""

import sys

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from tests.kit.shuffle_plans import through_sparks_shuffle
from tests.kit.waiting import wait_until

from headgate.errors import (
    OptionError,
    UnknownColumnError,
    UnsupportedTypeError,
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


def test_an_unknown_column_is_named_beside_the_existing_ones(numbers):
    with pytest.raises(UnknownColumnError) as caught:
        exchange(numbers, by="kk")
    assert "'kk'" in str(caught.value)
    assert "id, k, s" in str(caught.value)
    assert "by='k'" in str(caught.value)
    with pytest.raises(UnknownColumnError, match="what map returns"):
        exchange(numbers, by="k", map=same, schema="n long")
    with pytest.raises(UnknownColumnError):
        exchange(numbers.select(), by="k")


def test_unsupported_types_are_named_with_their_column(spark):
    df = spark.sql("select 1 as a, interval '1' month as b, map('k', 1) as m")
    with pytest.raises(UnsupportedTypeError, match=r"'b'.*interval month"):
        exchange(df, by="a")
    months = "array<struct<i: interval month>>"
    with pytest.raises(UnsupportedTypeError, match=r"'m'.*interval month"):
        exchange(df, by="a", map=same, schema=f"a int, m {months}")
    with pytest.raises(UnsupportedTypeError, match=r"'d'.*key"):
        exchange(spark.sql("select interval '1' day as d"), by="d")
    with pytest.raises(UnsupportedTypeError, match=r"'m'.*key"):
        exchange(df.select("m"), by="m")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"memroy": "1m"}, "memory"),
        ({"num_partitions": 0}, "at least|below|1"),
        ({"num_partitions": 10_000}, "8000"),
        ({"memory": "none"}, "memory"),
        ({"batch_bytes": "2g"}, "batch_bytes"),
        ({"mode": "kepd"}, "kept"),
        ({"schema": "a long"}, "schema needs map or reduce"),
        ({"map": 3}, "not a function"),
        ({"map": same}, "schema is missing: the columns that map returns"),
        ({"map": same, "reduce": same}, "schema is missing: the columns that reduce returns"),
        ({"map": same, "schema": "no schema at all!"}, "is not a schema in Spark's DDL"),
        ({"map": same, "schema": "a long", "map_schema": "a long"}, "there is no reduce"),
        ({"map": same, "schema": 7}, "not a DDL"),
        ({"by": 3}, "by takes names of columns"),
        ({"by": []}, "by takes names of columns"),
        ({"by": ["k", 3]}, "by takes names of columns"),
    ],
)
def test_a_bad_argument_is_refused(numbers, options, said):
    with pytest.raises(OptionError, match=said):
        exchange(numbers, **{"by": "k", **options})


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


@pytest.mark.parametrize("way", ["argument", "conf"])
def test_a_pipelined_exchange_is_a_streaming_job(spark, numbers, way):
    given = {"mode": "pipelined"} if way == "argument" else {}
    spark.conf.set("spark.headgate.mode", "pipelined" if way == "conf" else "kept")
    try:
        with pytest.raises(OptionError, match="mode='pipelined' is not one of its") as caught:
            exchange(numbers, by="k", **given)
    finally:
        spark.conf.set("spark.headgate.mode", "kept")
    assert "headgate.stream.stream(source) ... .start(spark=spark)" in caught.value.remedy


@pytest.mark.soak
def test_sparks_shuffle_gives_the_same_result_for_all_kinds_of_by(spark, numbers):
    from headgate import BroadcastSelector, RoundRobinSelector

    def doubled(batches):
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"n": [2 * i for i in batch.column("id").to_pylist()]})

    def total(batches):
        yield pa.RecordBatch.from_pydict(
            {"s": [sum(sum(b.column("n").to_pylist()) for b in batches)]}
        )

    def fifths(batch):
        return [n // 2 % 5 for n in batch.column("n").to_pylist()]

    everything = 20_000 * 19_999

    def sums(by):
        out = through_sparks_shuffle(
            spark,
            numbers,
            by=by,
            map=doubled,
            map_schema="n long",
            reduce=total,
            schema="s long",
            num_partitions=5,
        )
        rows = out.selectExpr("spark_partition_id() as p", "s").collect()
        assert len(rows) == 5
        return {row["p"]: row["s"] for row in rows}

    for by in ("n", None, RoundRobinSelector()):
        assert sum(sums(by).values()) == everything
    by_fifths = sums(fifths)
    assert by_fifths == {p: sum(2 * n for n in range(20_000) if n % 5 == p) for p in range(5)}
    assert sums(BroadcastSelector()) == dict.fromkeys(range(5), everything)


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


def test_a_streaming_dataframe_is_refused_and_foreach_batch_works(spark, tmp_path):
    rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    with pytest.raises(OptionError, match="streaming") as caught:
        exchange(rates, by="value")
    assert "foreachBatch" in str(caught.value)
    with pytest.raises(OptionError, match="streaming"):
        exchange([rates, rates], "value", reduce=lambda left, right: left, schema="value long")
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
