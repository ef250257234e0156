"""Keys that are fields, Columns, and what Spark computes, placed as by Spark's repartition."""

import sys

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import functions
from tests.kit.shuffle_plans import through_sparks_shuffle

import headgate as hg
from headgate.errors import OptionError
from headgate.spark import Input, exchange

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def nested(spark):
    """Rows with fields as keys: null structs, null fields."""
    return spark.range(0, 500, 1, 3).selectExpr(
        "id",
        """CASE WHEN id % 11 > 0 THEN named_struct(
            'k', CASE WHEN id % 7 > 0 THEN id % 13 END,
            'in', CASE WHEN id % 5 > 0 THEN named_struct('s', concat('name ', id % 17)) END
        ) END AS a""",
        "concat('USER ', id % 23) AS user",
    )


def placed(df):
    return sorted(map(str, df.selectExpr("spark_partition_id() as p", "*").collect()))


def same(batches):
    return batches


@pytest.mark.parametrize("by", ["a.k", "a.in.s", ["user", "a.k"], "A.`in`.S"], ids=str)
class TestFields:
    @pytest.mark.usefixtures("mode")
    @pytest.mark.parametrize("mode", ["auto", "kept"], indirect=True)
    def test_rows_are_where_spark_places_them(self, nested, by):
        expected = self.expected(nested, by)
        assert placed(exchange(nested, by, num_partitions=3)) == expected
        assert (
            placed(exchange(nested, by, same, schema=nested.schema, num_partitions=3)) == expected
        )

    def test_through_sparks_shuffle(self, spark, nested, by):
        out = through_sparks_shuffle(
            spark, nested, by=by, map=same, schema=nested.schema, num_partitions=3
        )
        assert placed(out) == self.expected(nested, by)

    @staticmethod
    def expected(nested, by):
        return placed(nested.repartition(3, *([by] if isinstance(by, str) else by)))


def test_a_column_is_its_name(nested):
    expected = placed(nested.repartition(3, "a.k", "user"))
    for by in (
        [functions.col("a.k"), functions.col("user")],
        [nested.a.k, nested["user"]],
        (functions.col("A.K"), "USER"),
    ):
        assert placed(exchange(nested, by, num_partitions=3)) == expected


def test_a_selector_of_a_field(nested):
    selector = hg.HashSelector([("a", "k")])
    out = exchange(nested, selector, num_partitions=3, mode="kept")
    assert placed(out) == placed(nested.repartition(3, "a.k"))


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("mode", ["auto"], indirect=True)
class TestComputed:
    @pytest.mark.soak
    def test_spark_computes_it_where_it_moves_the_rows(self, nested):
        by = [functions.lower("user"), functions.col("id") % 3]
        out = exchange(nested, by, reduce=same, schema=nested.schema, num_partitions=4)
        assert placed(out) == placed(nested.repartition(4, *by))

    def test_a_column_that_spark_does_not_know(self, nested):
        with pytest.raises(AnalysisException, match="users"):
            exchange(nested, functions.lower("users"), num_partitions=4)


def test_inputs_with_fields_as_keys(nested):
    def counts(left, right):
        rows = [left.read_all().num_rows, right.read_all().num_rows]
        yield pa.RecordBatch.from_pydict({"rows": [rows]})

    flat = nested.selectExpr("a.k AS key")
    job = {"reduce": counts, "schema": "rows array<long>", "num_partitions": 4, "mode": "kept"}
    out = exchange([Input(nested, by="a.k"), Input(flat, by="key")], **job)
    found = [row["rows"] for row in out.collect()]
    assert all(left == right for left, right in found)
    assert sum(left for left, _ in found) == 500
    with pytest.raises(OptionError, match=r"a\.k bigint.*user string"):
        exchange([Input(nested, by="a.k"), nested], "user", **job)
