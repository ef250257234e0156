"""Spark types for the columns of sources: the same meaning, and batches cast to them."""

from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from headgate.errors import UnsupportedTypeError
from headgate.schema_cast import same_type
from headgate.spark.ddl_cast import DdlCast
from headgate.spark.schema import arrow_schema
from headgate.spark.source_schema import spark_schema

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
    cast = DdlCast(wire, "the source")
    for made in (cast(batch), cast(batch)):
        assert same_type(made.schema.types[0], wire.types[0])
        assert made.num_rows == 2
        assert made.column(0).is_null().to_pylist() == [False, True]
    value, sent = (b.column(0)[0] for b in (batch, made))
    if not pa.types.is_temporal(arrow):
        assert sent.as_py() == value.as_py()
    else:
        assert sent.cast(arrow) == value


@pytest.mark.parametrize(
    "kind", [pa.decimal256(50, 2), pa.month_day_nano_interval(), pa.time32("s")]
)
def test_what_spark_has_no_type_for_is_named(kind):
    with pytest.raises(UnsupportedTypeError, match=r"'odd'") as caught:
        spark_schema(pa.schema([("fine", pa.int64()), ("odd", kind)]))
    assert str(kind) in caught.value.summary
