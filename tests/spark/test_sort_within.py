"""sort_within gives the rows of each partition in the order of Spark's sortWithinPartitions."""

import sys

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import functions
from tests.kit.masters import in_modes
from tests.kit.shuffle_plans import through_sparks_shuffle

from headgate.errors import OptionError
from headgate.spark import Input, exchange

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

in_both_modes = in_modes("auto", "kept")
SORTS = ["n", ["user", "x", "n"], ["day", "x", "n"], ["a.k", "n"]]


@pytest.fixture
def events(spark):
    """5,000 rows whose last column is unique, with nulls, NaN, both zeros, and fields."""
    return spark.range(0, 5_000, 1, 5).selectExpr(
        "id % 7 AS k",
        "CASE id % 9 WHEN 0 THEN NULL WHEN 1 THEN double('NaN') WHEN 2 THEN -0.0D WHEN 3 THEN 0.0D "
        "ELSE double(id * 7919 % 100) - 50 END AS x",
        "concat('üser ', id % 11) AS user",
        "CASE WHEN id % 5 > 0 THEN date_add(date'2026-01-01', int(id % 30)) END AS day",
        "CASE WHEN id % 6 > 0 THEN named_struct('k', id % 3) END AS a",
        "id * 7919 % 5000 AS n",
    )


def numbered(batches):
    """Return the rows with their places in the partition."""
    at = 0
    for batch in batches:
        places = pa.array(range(at, at + batch.num_rows), pa.int64())
        at += batch.num_rows
        yield batch.append_column("at", places)


def same(batches):
    return batches


def ordered(df, columns):
    """Return the values of the columns in the order of each partition."""
    found = {}
    for row in df.selectExpr("spark_partition_id() as p", "at", *columns).collect():
        found.setdefault(row["p"], []).append((row["at"], str(row[2:])))
    return {p: [values for _, values in sorted(rows)] for p, rows in found.items()}


def expected(events, sort, columns):
    given = [sort] if not isinstance(sort, list) else sort
    in_order = events.repartition(3, "k").sortWithinPartitions(*given)
    return ordered(in_order.mapInArrow(numbered, schema(events)), columns)


def schema(events):
    return events.select("*", functions.lit(0).cast("long").alias("at")).schema


def columns_of(sort):
    return [sort] if isinstance(sort, str) else sort


class TestOrder:
    pytestmark = in_both_modes

    @pytest.mark.parametrize("sort", SORTS, ids=str)
    def test_it_is_sparks(self, events, sort):
        columns = columns_of(sort)
        out = exchange(
            events,
            "k",
            reduce=numbered,
            schema=schema(events),
            sort_within=sort,
            num_partitions=3,
        )
        assert ordered(out, columns) == expected(events, sort, columns)

    def test_after_a_map_in_files(self, events, nothing_left):
        """Rows of 10 KB exceed the memory, so the worker sorts them in files."""
        wide = events.withColumn("wide", functions.repeat("user", 1000))
        out = exchange(
            wide,
            "k",
            map=same,
            map_schema=wide.schema,
            reduce=numbered,
            schema=schema(wide),
            sort_within=["user", "n"],
            num_partitions=2,
            memory="4m",
            segment_size="32k",
        )
        got = ordered(out.drop("wide"), ["user", "n"])
        in_order = events.repartition(2, "k").sortWithinPartitions("user", "n")
        assert got == ordered(in_order.mapInArrow(numbered, schema(events)), ["user", "n"])

    def test_without_reduce(self, events):
        out = exchange(events, "k", sort_within=["day", "n"], num_partitions=3)
        got = ordered(out.mapInArrow(numbered, schema(events)), ["day", "n"])
        assert got == expected(events, ["day", "n"], ["day", "n"])

    def test_an_error_of_reduce_that_reads_all(self, events):
        def wrong(batches):
            batches.read_all()
            raise ValueError("the reduce is wrong")

        out = exchange(
            events,
            "k",
            map=same,
            map_schema=events.schema,
            reduce=wrong,
            schema="n long",
            sort_within="n",
            num_partitions=1,
        )
        with pytest.raises(Exception, match="the reduce is wrong"):
            out.collect()


def test_through_sparks_shuffle(spark, events):
    out = through_sparks_shuffle(
        spark,
        events,
        by="k",
        map=same,
        reduce=numbered,
        schema=schema(events),
        map_schema=events.schema,
        sort_within=["x", "n"],
        num_partitions=3,
    )
    assert ordered(out, ["x", "n"]) == expected(events, ["x", "n"], ["x", "n"])


def test_each_input_has_its_own_order(events):
    def both(left, right):
        for number, batches in enumerate((left, right)):
            table = batches.read_all()
            columns = {"input": [number] * table.num_rows, "n": table["n"].to_pylist()}
            yield pa.RecordBatch.from_pydict(columns)

    inputs = [Input(events, sort_within=["user", "n"]), events]
    job = {"reduce": both, "schema": "input int, n long", "num_partitions": 2, "mode": "kept"}
    out = exchange(inputs, "k", sort_within=functions.col("n"), **job)
    for partition in out.rdd.glom().collect():
        found = [[row["n"] for row in partition if row["input"] == number] for number in (0, 1)]
        assert found[1] == sorted(found[1])
        by_user = {row["n"]: row["user"] for row in events.select("user", "n").collect()}
        assert found[0] == sorted(found[1], key=lambda n: (by_user[n], n))


def test_an_order_that_spark_computes_needs_sparks_shuffle(events):
    out = exchange(events, "k", sort_within=functions.desc("n"), num_partitions=3, mode="auto")
    got = ordered(out.mapInArrow(numbered, schema(events)), ["n"])
    assert got == expected(events, functions.desc("n"), ["n"])
    with pytest.raises(OptionError, match="more than the name of a column"):
        exchange(events, "k", map=same, schema=events.schema, sort_within=functions.desc("n"))
