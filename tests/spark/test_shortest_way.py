"""If no Python function makes the rows, Spark's own repartition moves them."""

import sys

import pytest
from pyspark import cloudpickle
from tests.kit.masters import compares_rows, in_modes

from headgate import BroadcastSelector, HashSelector
from headgate.errors import HeadgateWarning
from headgate.spark import exchange

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = in_modes("auto")


def same(batches):
    yield from batches


def sizes(batches):
    import pyarrow as pa

    yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows for batch in batches]})


def plan_of(df):
    """Return the executed plan as text."""
    return df._jdf.queryExecution().toString()


def placed(df):
    rows = df.selectExpr("spark_partition_id() as partition", "*").collect()
    return sorted(map(tuple, rows))


@pytest.mark.parametrize("by", ["k", ["k", "s"], HashSelector(["k"])])
def test_rows_placed_by_columns_do_not_enter_python(numbers, by):
    names = [by] if isinstance(by, str) else getattr(by, "columns", by)
    out = exchange(numbers, by=by, num_partitions=3)
    assert "MapInArrow" not in plan_of(out)
    assert placed(out) == placed(numbers.repartition(3, *names))


def test_a_reduce_is_the_only_python_function(numbers):
    out = exchange(numbers, by="k", reduce=same, num_partitions=3, schema=numbers.schema)
    assert plan_of(out).partition("== Physical Plan ==")[2].count("MapInArrow") == 1
    assert placed(out) == placed(numbers.repartition(3, "k"))


def test_rows_in_turn_are_spread_evenly(numbers):
    out = exchange(numbers, num_partitions=4)
    assert "MapInArrow" not in plan_of(out)
    counts = out.selectExpr("spark_partition_id() as p").groupBy("p").count().collect()
    assert sum(row["count"] for row in counts) == 20_000
    # Each of the 7 tasks before the shuffle deals its rows out in turn.
    assert all(abs(row["count"] - 5000) <= 7 for row in counts)


def test_the_result_has_a_partition_per_slot_by_default(numbers):
    assert exchange(numbers, by="k").rdd.getNumPartitions() == 4


def test_more_partitions_than_slots_give_no_warning(numbers, recwarn):
    out = exchange(numbers, by="k", reduce=same, num_partitions=50, schema=numbers.schema)
    assert out.count() == 20_000
    assert not [one for one in recwarn if isinstance(one.message, HeadgateWarning)]


@pytest.mark.parametrize("name", ["a.b", "a`b", "a b", "Ä"])
def test_a_key_with_any_name_is_one_column(spark, name):
    df = spark.range(0, 100, 1, 2).withColumnRenamed("id", name)
    expected = placed(spark.range(0, 100, 1, 2).repartition(3, "id"))
    assert placed(exchange(df, by=name, num_partitions=3)) == expected


def test_a_key_is_found_whatever_its_case(spark):
    df = spark.range(0, 100, 1, 2).withColumnRenamed("id", "Key")
    expected = placed(spark.range(0, 100, 1, 2).repartition(3, "id"))
    assert placed(exchange(df, by="kEY", num_partitions=3)) == expected


def test_rows_without_columns_are_spread(spark):
    out = exchange(spark.range(0, 100, 1, 2).select(), num_partitions=3)
    assert out.columns == []
    assert out.count() == 100


def test_batch_bytes_joins_the_batches_of_reduce(spark):
    df = spark.range(0, 50_000, 1, 1)
    job = {"reduce": sizes, "schema": "rows long", "num_partitions": 1}
    apart = [row["rows"] for row in exchange(df, **job).collect()]
    joined = [row["rows"] for row in exchange(df, batch_bytes="320k", **job).collect()]
    assert apart == [10_000] * 5
    assert joined == [40_000, 10_000]


@pytest.mark.parametrize(
    "job",
    [
        {"by": "k", "map": same, "schema": "id long, k long, s string"},
        pytest.param({"by": lambda batch: [0] * batch.num_rows}, marks=compares_rows),
        {"by": BroadcastSelector()},
    ],
    ids=["map", "function", "selector"],
)
def test_all_other_calls_are_kept(numbers, job):
    out = exchange(numbers, num_partitions=1, **job)
    assert "kept by" in plan_of(out)


@pytest.mark.parametrize(
    "job",
    [
        {"by": "k", "map": same, "schema": "id long, k long, s string"},
        {"map": same, "schema": "id long, k long, s string"},
        pytest.param(
            {"by": lambda batch: [number % 3 for number in batch["id"].to_pylist()]},
            marks=compares_rows,
        ),
    ],
    ids=["columns", "in turn", "function"],
)
def test_spark_moves_all_rows_if_the_caller_says_so(numbers, job):
    out = exchange(numbers, num_partitions=3, mode="spark", **job)
    assert "kept by" not in plan_of(out)
    assert sorted(out.collect()) == sorted(numbers.collect())
    if job.get("by") == "k":
        assert placed(out) == placed(numbers.repartition(3, "k"))
