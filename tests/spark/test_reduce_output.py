"""Columns of map and reduce are matched to the schema by name, and cast if no value is lost."""

import sys

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException

from headgate.spark import exchange

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS = 60
RIGHT = [(n, 2 * n) for n in range(ROWS)]


@pytest.fixture
def pairs(spark):
    return spark.range(0, ROWS, 1, 2).selectExpr("id", "id * 2 as v")


@pytest.fixture
def reduced(mode, pairs):
    """Run a reduce over the rows, in each mode; return the rows."""

    def run(function, schema="id long, v long"):
        return found(exchange(pairs, by="id", reduce=function, schema=schema, num_partitions=2))

    return run


def found(out):
    return sorted(tuple(row) for row in out.collect())


def extra(batches):
    for batch in batches:
        columns = [batch.column("v"), *batch.columns]
        yield pa.RecordBatch.from_arrays(columns, ["first", *batch.schema.names])


def narrow(batches):
    """Yield smaller types, and the columns in another order."""
    for batch in batches:
        columns = [batch.column("v").cast(pa.uint32()), batch.column("id").cast(pa.int32())]
        yield pa.RecordBatch.from_arrays(columns, ["v", "id"])


def others(batches):
    """Yield types that Spark cannot read, or reads as another type."""
    for batch in batches:
        text = batch.column("id").cast(pa.string())
        yield pa.RecordBatch.from_pydict(
            {
                "at": batch.column("v").cast(pa.timestamp("us")).cast(pa.timestamp("ns")),
                "list": pa.array([[n] for n in range(len(text))], pa.large_list(pa.uint8())),
                "view": text.cast(pa.string_view()),
                "large": text.cast(pa.large_string()),
                "coded": text.dictionary_encode(),
                "id": batch.column("id"),
            }
        )


def test_columns_are_matched_by_name_and_cast(reduced):
    assert reduced(narrow) == RIGHT


def test_types_of_other_arrow_libraries_are_cast(reduced):
    schema = "id long, large string, view string, coded string, at timestamp_ntz, list array<long>"
    rows = reduced(others, schema)
    assert [row[:4] for row in rows] == [(n, str(n), str(n), str(n)) for n in range(ROWS)]
    assert {type(row[4]).__name__ for row in rows} == {"datetime"}
    assert all(len(row[5]) == 1 for row in rows)


def test_columns_of_map_are_matched_by_name(pairs):
    out = exchange(pairs, by="id", map=narrow, schema="id long, v long", num_partitions=2)
    assert found(out) == RIGHT


@pytest.mark.parametrize("role", ["map", "reduce"])
def test_a_column_too_many_is_refused(pairs, role):
    """The other ways in which a batch does not fit are in mistakes.txt."""
    job = {"schema": "id long, v long", "num_partitions": 1, role: extra}
    with pytest.raises(PySparkException) as caught:
        exchange(pairs.coalesce(1), by="id", **job).collect()
    assert f"[HG-4003] {role} returned an unexpected column 'first'" in str(caught.value)
    assert "asked   id: int64, v: int64" in str(caught.value)
    assert "yield batch.select(['id', 'v'])" in str(caught.value)
