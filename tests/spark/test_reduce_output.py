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


def swapped(batches):
    for batch in batches:
        yield batch.select(["v", "id"])


def extra(batches):
    for batch in batches:
        columns = [batch.column("v"), *batch.columns]
        yield pa.RecordBatch.from_arrays(columns, ["first", *batch.schema.names])


def missing(batches):
    for batch in batches:
        yield batch.select(["id"])


def narrow(batches):
    for batch in batches:
        columns = [batch.column("v").cast(pa.uint32()), batch.column("id").cast(pa.int32())]
        yield pa.RecordBatch.from_arrays(columns, ["v", "id"])


def nulls(batches):
    for batch in batches:
        columns = [batch.column("id"), pa.nulls(batch.num_rows, pa.int64())]
        yield pa.RecordBatch.from_arrays(columns, ["id", "v"])


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


def test_swapped_columns_keep_their_values(reduced):
    assert reduced(swapped) == RIGHT


def test_smaller_types_are_cast(reduced):
    assert reduced(narrow) == RIGHT


def test_nulls_are_kept_if_the_schema_allows_them(reduced):
    assert reduced(nulls) == [(n, None) for n in range(ROWS)]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("function", "schema", "says"),
    [
        (extra, "id long, v long", "reduce returned an unexpected column 'first'"),
        (missing, "id long, v long", "reduce returned no column 'v'"),
        (swapped, "id long, v string", "reduce returned int64 in column 'v'"),
        (nulls, "id long, v long not null", "reduce returned null in column 'v'"),
    ],
    ids=["extra", "missing", "type", "null"],
)
def test_a_batch_that_does_not_fit_is_refused_with_both_schemas(reduced, function, schema, says):
    with pytest.raises(PySparkException) as caught:
        reduced(function, schema)
    text = str(caught.value)
    assert f"[HG-4003] {says}" in text
    assert "asked   id: int64, v: " in text
    assert "have  " in text


@pytest.mark.soak
def test_the_error_has_the_line_that_fixes_it(reduced):
    with pytest.raises(PySparkException, match=r"yield batch\.select\(\['id', 'v'\]\)"):
        reduced(extra)
    with pytest.raises(PySparkException, match=r'schema="id bigint"'):
        reduced(missing)


def test_types_of_other_arrow_libraries_are_cast(reduced):
    schema = "id long, large string, view string, coded string, at timestamp_ntz, list array<long>"
    rows = reduced(others, schema)
    assert [row[:4] for row in rows] == [(n, str(n), str(n), str(n)) for n in range(ROWS)]
    assert {type(row[4]).__name__ for row in rows} == {"datetime"}
    assert all(len(row[5]) == 1 for row in rows)


@pytest.mark.parametrize("function", [swapped, narrow])
def test_columns_of_map_are_matched_by_name(pairs, function):
    out = exchange(pairs, by="id", map=function, schema="id long, v long", num_partitions=2)
    assert found(out) == RIGHT


def test_an_extra_column_of_map_is_refused(pairs):
    out = exchange(pairs, by="id", map=extra, schema="id long, v long", num_partitions=2)
    with pytest.raises(PySparkException, match=r"\[HG-4003\] map returned an unexpected column"):
        out.collect()
