"""combine merges rows before they are sent, with the same result, whoever moves the rows."""

import sys

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from tests.kit.masters import in_modes
from tests.kit.waiting import wait_until

import headgate as hg
from headgate.source import NumberSequenceSource
from headgate.spark import Input, exchange, explain, last_stats

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

#: Of 60,000 rows three fifths have the key 0.
HOT = "CASE WHEN id % 5 < 3 THEN 0 ELSE id % 97 END"
PARTIAL = "k long, rows long, total long"


def counted(batches):
    for batch in batches:
        rows = pa.array([1] * batch.num_rows, pa.int64())
        yield pa.RecordBatch.from_arrays([batch["k"], rows, batch["id"]], ["k", "rows", "total"])


def sums(batches):
    table = pa.table(batches).group_by("k").aggregate([("rows", "sum"), ("total", "sum")])
    return table.rename_columns(["k", "rows", "total"])


@pytest.fixture
def hot(spark):
    return spark.range(0, 60_000, 1, 6).selectExpr("id", f"{HOT} AS k")


@pytest.fixture
def expected(hot):
    return sorted(map(tuple, hot.groupBy("k").agg({"*": "count", "id": "sum"}).collect()))


def sorted_rows(df):
    return sorted(map(tuple, df.collect()))


class TestEachMode:
    pytestmark = in_modes("auto", "kept", "spark")

    def test_totals_are_those_of_sparks_group_by(self, hot, expected):
        call = {"by": "k", "map": counted, "map_schema": PARTIAL, "schema": PARTIAL}
        assert sorted_rows(exchange(hot, reduce=sums, combine=sums, **call)) == expected

    def test_without_map_the_rows_of_the_input_are_merged(self, spark, expected, hot):
        rows = hot.selectExpr("k", "1L AS rows", "id AS total")
        assert (
            sorted_rows(exchange(rows, by="k", combine=sums, reduce=sums, schema=PARTIAL))
            == expected
        )


def test_only_merged_rows_are_sent(hot, expected):
    call = {"by": "k", "map": counted, "map_schema": PARTIAL, "schema": PARTIAL}
    assert sorted_rows(exchange(hot, reduce=sums, combine=sums, **call)) == expected
    # One row for each key and producer.
    wait_until(lambda: last_stats().is_over)
    assert last_stats().rows <= 6 * len(expected)


def test_a_source_and_one_of_two_inputs_are_merged(spark):
    def keyed(batches):
        for batch in batches:
            key = pa.compute.bit_wise_and(batch["id"], 3)
            columns = [key, pa.array([1] * len(key), pa.int64()), batch["id"]]
            yield pa.RecordBatch.from_arrays(columns, ["k", "rows", "total"])

    def named(totals, names):
        return sums(totals).join(pa.table(names), "k", join_type="inner")

    names = spark.sql("SELECT id AS k, concat('key ', id) AS name FROM range(4)")
    numbers = Input(NumberSequenceSource(0, 1000), map=keyed, map_schema=PARTIAL, combine=sums)
    schema = f"{PARTIAL}, name string"
    joined = exchange([numbers, names], by="k", reduce=named, schema=schema)
    totals = {n: sum(range(n, 1000, 4)) for n in range(4)}
    assert sorted_rows(joined) == [(n, 250, totals[n], f"key {n}") for n in range(4)]


def test_an_error_of_combine_has_its_name_and_line(hot):
    def failing(batches):
        raise ValueError("no such key")

    rows = hot.selectExpr("k", "1L AS rows", "id AS total").coalesce(1)
    with pytest.raises(Exception, match="no such key"):
        exchange(rows, by="k", combine=failing, reduce=sums, schema=PARTIAL).collect()


def test_explain_says_who_merges(hot):
    out = exchange(
        hot,
        by="k",
        mode="auto",
        combine=lambda rows: rows,
        reduce=hg.per_key("k", sums),
        schema=PARTIAL,
    )
    assert "combine merges the rows in Python" in str(explain(out))
