"""CSV and JSON lines of a file sink, as Spark writes them through it and reads them itself."""

import math

import pytest

from headgate.errors import UnsupportedTypeError
from headgate.sink import FileSink
from headgate.spark import write

SCHEMA = (
    "text string, number double, long bigint, instant timestamp, "
    "local timestamp_ntz, day date, price decimal(38,9)"
)
ROWS = """values
    ('a"b', double('NaN'), 9223372036854775807L, timestamp'2024-03-31 02:30:00 Europe/Berlin'),
    ('x\\r\\ny', double('-Infinity'), -9223372036854775808L, timestamp'0001-01-01 00:00:00 UTC'),
    ('', -0.0D, null, null),
    (null, 1e-300D, 0L, timestamp'9999-12-31 23:59:59.999999 UTC'),
    ('a,b\\\\"', null, 1L, timestamp'1970-01-01 00:00:00.000001 UTC')
    as t(text, number, long, instant)"""
MORE = """timestamp_ntz'2024-01-01 00:00:00.1' local, date(instant) day,
    cast('-12345678901234567890123456789.000000001' as decimal(38,9)) price"""
#: A text that no value has: by default null and empty text are both null to Spark.
NOTHING = "\u0001"


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_spark_reads_what_it_wrote_through_the_sink(spark, tmp_path, kind):
    rows = spark.sql(f"select *, {MORE} from {ROWS}")
    if kind == "json":
        rows = rows.replace(math.nan, None).where("number is null or abs(number) < 1e308")
    (rows.write.format("headgate").mode("append").option("format", kind)).save(f"{tmp_path}/a")
    write(rows, FileSink(f"{tmp_path}/b", format=kind, compression="gzip"))
    reader = spark.read.schema(SCHEMA)
    for folder in ("a", "b"):
        if kind == "csv":
            options = {"header": True, "multiLine": True, "escape": '"', "nullValue": NOTHING}
            found = reader.options(**options).csv(f"{tmp_path}/{folder}")
        else:
            found = reader.json(f"{tmp_path}/{folder}")
        assert sorted(map(repr, found.toArrow().to_pylist())) == sorted(
            map(repr, rows.toArrow().to_pylist())
        )


def test_a_nested_column_in_csv_is_refused_before_a_task_runs(spark, tmp_path):
    rows = spark.sql("select array(1) a")
    with pytest.raises(UnsupportedTypeError, match="column a"):
        write(rows, FileSink(f"{tmp_path}/out", format="csv"))
    assert list(tmp_path.iterdir()) == []
