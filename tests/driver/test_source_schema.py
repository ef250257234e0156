"""Types of sources as Spark's: the same meaning, and batches that fit the wire."""

from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from headgate.errors import SchemaMismatchError, UnsupportedTypeError
from headgate.spark.schema import arrow_schema
from headgate.spark.source_schema import Plain, spark_schema

KINDS = [
    (pa.bool_(), t.BooleanType(), [True, None]),
    (pa.int8(), t.ByteType(), [-1, None]),
    (pa.int64(), t.LongType(), [2**63 - 1, None]),
    (pa.uint8(), t.ShortType(), [255, None]),
    (pa.uint16(), t.IntegerType(), [65_535, None]),
    (pa.uint32(), t.LongType(), [2**32 - 1, None]),
    (pa.uint64(), t.DecimalType(20, 0), [2**64 - 1, None]),
    (pa.float64(), t.DoubleType(), [1.5, None]),
    (pa.string(), t.StringType(), ["é", None]),
    (pa.large_string(), t.StringType(), ["é", None]),
    (pa.string_view(), t.StringType(), ["a long text of more than twelve bytes", None]),
    (pa.dictionary(pa.int32(), pa.string()), t.StringType(), ["a", None]),
    (pa.binary(3), t.BinaryType(), [b"abc", None]),
    (pa.large_binary(), t.BinaryType(), [b"abc", None]),
    (pa.binary_view(), t.BinaryType(), [b"abc", None]),
    (pa.date32(), t.DateType(), [3, None]),
    (pa.date64(), t.DateType(), [3 * 86_400_000, None]),
    (pa.timestamp("ns"), t.TimestampNTZType(), [3_000, None]),
    (pa.timestamp("s", "UTC"), t.TimestampType(), [3, None]),
    (pa.timestamp("us", "Asia/Tokyo"), t.TimestampType(), [3, None]),
    (pa.duration("ms"), t.DayTimeIntervalType(), [3, None]),
    (pa.decimal128(15, 2), t.DecimalType(15, 2), [Decimal("1.25"), None]),
    (pa.decimal256(15, 2), t.DecimalType(15, 2), [Decimal("1.25"), None]),
]


@pytest.mark.parametrize(("arrow", "expected", "values"), KINDS, ids=[str(k[0]) for k in KINDS])
def test_a_type_and_its_values(arrow, expected, values):
    batch = pa.RecordBatch.from_arrays([pa.array(values, arrow)], names=["c"])
    schema = spark_schema(batch.schema)
    assert schema == t.StructType([t.StructField("c", expected)])
    wire = arrow_schema(schema, "Europe/Paris")
    plain = Plain(wire)
    for made in (plain(batch), plain(batch)):
        assert made.schema.types == wire.types
        assert made.num_rows == 2
        assert made.column(0).is_null().to_pylist() == [False, True]
    value, sent = (b.column(0)[0] for b in (batch, made))
    if not pa.types.is_temporal(arrow):
        assert sent.as_py() == value.as_py()
    else:
        assert sent.cast(arrow) == value


def test_what_fits_is_not_touched():
    batch = pa.RecordBatch.from_pydict({"a": [1], "b": ["x"]})
    plain = Plain(batch.schema)
    assert plain(batch) is batch
    assert plain(batch) is batch


def test_only_the_columns_that_need_it_are_cast():
    wire = pa.schema([("a", pa.int64()), ("b", pa.string())])
    plain = Plain(wire)
    large = pa.RecordBatch.from_arrays(
        [pa.array([1]), pa.array(["x"], pa.large_string())], ["a", "b"]
    )
    fitting = pa.RecordBatch.from_arrays([pa.array([1]), pa.array(["x"])], ["a", "b"])
    made = plain(large)
    assert made.schema == wire
    assert made.column(0).buffers()[1].address == large.column(0).buffers()[1].address
    assert plain(fitting) is fitting
    assert plain(large).schema == wire


@pytest.mark.parametrize(
    "fields",
    [
        {"a": pa.array([1.0]), "b": pa.array(["x"])},
        {"a": pa.array([1]), "c": pa.array(["x"])},
        {"a": pa.array([1]), "b": pa.array([b"x"])},
        {"a": pa.array([1])},
    ],
)
def test_what_means_something_else_is_left_to_the_writer(fields):
    plain = Plain(pa.schema([("a", pa.int64()), ("b", pa.string())]))
    batch = pa.RecordBatch.from_pydict(fields)
    assert plain(batch) is batch


def test_times_with_and_without_a_zone_are_different_things():
    plain = Plain(pa.schema([("t", pa.timestamp("us", "UTC"))]))
    batch = pa.RecordBatch.from_arrays([pa.array([1], pa.timestamp("us"))], ["t"])
    assert plain(batch) is batch


@pytest.mark.parametrize(
    "kind", [pa.decimal256(50, 2), pa.month_day_nano_interval(), pa.time32("s")]
)
def test_what_spark_has_no_type_for_is_named(kind):
    with pytest.raises(UnsupportedTypeError, match=r"'odd'") as caught:
        spark_schema(pa.schema([("fine", pa.int64()), ("odd", kind)]))
    assert str(kind) in caught.value.summary


def test_a_value_that_does_not_fit_is_refused_with_its_column():
    plain = Plain(pa.schema([("t", pa.timestamp("us"))]))
    batch = pa.RecordBatch.from_arrays([pa.array([1], pa.timestamp("ns"))], ["t"])
    with pytest.raises(SchemaMismatchError, match=r"column 't' has a value that timestamp\[us\]"):
        plain(batch)
