"""exchange() of a source gives the rows of Spark's own read, in the same partitions."""

import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from tests.kit.masters import compares_rows
from tests.kit.parts import (
    Parts,
    all_ids,
)
from tests.kit.shuffle_plans import through_sparks_shuffle

from headgate import RoundRobinSelector
from headgate.errors import (
    OptionError,
    UnsupportedTypeError,
)
from headgate.source import Boundedness
from headgate.source.files import FileSource
from headgate.spark import exchange

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

PLACE = "spark_partition_id() as p"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three Parquet files of four row groups each: 1,200 rows of several types, some null."""
    path = tmp_path_factory.mktemp("files")
    begin = datetime.fromisoformat("2026-01-01")
    for number in range(3):
        rows = range(number * 400, (number + 1) * 400)
        table = pa.table(
            {
                "id": pa.array(rows, pa.int64()),
                "k": pa.array([n % 97 for n in rows], pa.int32()),
                "s": pa.array([None if n % 11 == 0 else f"row {n % 50}" for n in rows]),
                "d": pa.array([Decimal(n) / 100 for n in rows], pa.decimal128(15, 2)),
                "t": pa.array([begin + timedelta(seconds=n) for n in rows], pa.timestamp("us")),
                "x": pa.array([n / 8 for n in rows]),
            }
        )
        pq.write_table(table, path / f"{number}.parquet", row_group_size=100)
    return str(path)


def same_rows(left, right):
    """Return True if two DataFrames have the same rows in the same partitions."""
    left, right = (Counter(df.selectExpr(PLACE, "*").collect()) for df in (left, right))
    return left == right


def ids(df):
    return sorted(row["id"] for row in df.select("id").collect())


def test_rows_and_partitions_are_those_of_sparks_own_read(spark, folder):
    table = spark.read.parquet(folder)
    for by in ("k", ["s", "d", "t"]):
        out = exchange(FileSource(folder), by=by, num_partitions=2, spark=spark)
        assert out.dtypes == table.dtypes
        columns = [by] if isinstance(by, str) else by
        assert f"kept by [{', '.join(columns)}] -> 2" in out._jdf.queryExecution().toString()
        assert same_rows(out, table.repartition(2, *columns))


def test_the_active_session_is_the_default(spark):
    spark.range(1).count()
    assert ids(exchange(Parts(3), by="id")) == all_ids(3)


def test_a_thread_without_an_active_session_takes_the_session_of_the_application(spark):
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: ids(exchange(Parts(3), by="id"))).result() == all_ids(3)


@compares_rows
@pytest.mark.parametrize("by", [None, RoundRobinSelector(), lambda batch: batch.column("part")])
def test_round_robin_and_a_function_as_by(spark, by):
    out = exchange(Parts(2), by=by, num_partitions=2, spark=spark)
    assert ids(out) == all_ids(2)
    if callable(by):
        assert out.where("part <> spark_partition_id()").isEmpty()


def test_a_source_without_rows(spark, tmp_path):
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "none.parquet")
    out = exchange(FileSource(str(tmp_path)), by="a", spark=spark)
    assert out.dtypes == [("a", "bigint")]
    assert out.count() == 0


def test_a_limit_of_an_exchange_of_a_source(spark):
    out = exchange(Parts(50), by="id", spark=spark)
    assert len(out.limit(7).collect()) == 7
    assert len(out.take(3)) == 3
    assert ids(out) == all_ids(50)


def test_the_splits_are_planned_for_sparks_shuffle(spark, folder):
    out = through_sparks_shuffle(spark, FileSource(folder), by="k", num_partitions=4)
    assert same_rows(out, spark.read.parquet(folder).repartition(4, "k"))

    def ten(batches):
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"n": [10 * i for i in batch["id"].to_pylist()]})

    source = Parts(3)
    out = through_sparks_shuffle(
        spark, source, by="n", map=ten, schema="n long", num_partitions=5, parallelism=2
    )
    assert out.rdd.getNumPartitions() == 5
    assert sorted(row["n"] for row in out.collect()) == [10 * n for n in all_ids(3)]


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        (
            Parts(1, boundedness=Boundedness.CONTINUOUS_UNBOUNDED),
            {},
            "never ends.*headgate.stream.*readStream",
        ),
        (Parts(1, schema=None), {}, "'parts' has no schema"),
        (Parts(1, schema=pa.schema([])), {}, "'parts' has no column"),
        (Parts(1, reader=threading.Lock()), {}, "'parts' cannot be pickled"),
        (Parts(1), {"parallelism": 0}, "parallelism=0"),
        (Parts(1), {"parallelism": "many"}, "parallelism='many'"),
        (Parts(1), {"watermarks": 5}, "'watermarks' is no option.*stream"),
    ],
)
def test_a_bad_argument_is_refused_by_the_call(spark, source, options, said):
    options = {"spark": spark, **options}
    with pytest.raises(OptionError, match=f"(?s){said}"):
        exchange(source, by="id", **options)


def test_columns_are_checked_against_the_sources_schema(spark):
    nulls = pa.schema([("id", pa.int64()), ("t", pa.null())])
    with pytest.raises(UnsupportedTypeError, match="'t'"):
        exchange(Parts(1, schema=nulls), by="id", spark=spark)
    fine = exchange(Parts(1, schema=nulls), by="id", map=lambda b: b, schema="id long", spark=spark)
    assert fine.columns == ["id"]


def test_a_session_is_that_of_the_dataframe(spark, numbers):
    with pytest.raises(OptionError, match="another session"):
        exchange(numbers, by="k", spark=spark.newSession())
    assert exchange(numbers, by="k", spark=spark).columns == ["id", "k", "s"]


def test_parallelism_in_the_conf_is_ignored_for_a_dataframe(spark, numbers):
    spark.conf.set("spark.headgate.parallelism", "3")
    try:
        assert exchange(numbers, by="k").count() == 20_000
        assert ids(exchange(Parts(2), by="id", num_partitions=1, spark=spark)) == all_ids(2)
    finally:
        spark.conf.unset("spark.headgate.parallelism")
