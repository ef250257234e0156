"""Folders of partition columns: named as Spark names them, and read by Spark as its own."""

import datetime as dt
import decimal
import random
import string
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest
from pyarrow import parquet

from headgate import _partition_names as names
from headgate.errors import OptionError, UnknownColumnError, UnsupportedTypeError
from headgate.sink import FileSink, partition_values
from headgate.spark import write

SPECIAL = string.printable + "\x01\x1f\x7f\x80éß€\U0001f30a"
ZONE = "America/New_York"


def floats(rng):
    """Return a float of few digits: Java before 19 writes more than are needed of some others."""
    special = (0.0, -0.0, float("nan"), float("inf"))
    return rng.choice([*special, *(rng.randint(-9999, 9999) / 2**bits for bits in range(7))])


#: Type in Spark -> a random value.
KINDS = {
    "string": lambda rng: "".join(rng.choices(SPECIAL, k=rng.randint(0, 12))),
    "boolean": lambda rng: rng.random() < 0.5,
    "tinyint": lambda rng: rng.randint(-128, 127),
    "bigint": lambda rng: rng.randint(-(2**63), 2**63 - 1),
    "double": lambda rng: floats(rng) * rng.choice([1, 2.0**40]),
    "float": floats,
    "decimal(20,9)": lambda rng: decimal.Decimal(rng.randint(-(10**12), 10**12)).scaleb(-9),
    "date": lambda rng: dt.date(rng.randint(1, 9999), 1, 1) + dt.timedelta(rng.randint(0, 364)),
    "timestamp": lambda rng: (
        dt.datetime(rng.randint(1700, 2200), 1, rng.randint(1, 31), tzinfo=dt.UTC)
        + dt.timedelta(microseconds=rng.choice([0, 500_000, rng.randrange(10**9)]))
    ),
    "timestamp_ntz": lambda rng: (
        dt.datetime(rng.randint(1, 9998), 2, 3)  # noqa: DTZ001 - of no zone
        + dt.timedelta(microseconds=rng.choice([0, 500_000, rng.randrange(10**12)]))
    ),
}


@pytest.fixture
def zone(spark):
    """Run the test with a time zone that is not that of the machine."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    yield ZONE
    spark.conf.set("spark.sql.session.timeZone", before)


def table_of(seed, count):
    """Return random rows as a table of Arrow, a column for each kind."""
    rng = random.Random(seed)
    arrow = {
        "string": pa.string(), "boolean": pa.bool_(), "tinyint": pa.int8(), "bigint": pa.int64(),
        "double": pa.float64(), "float": pa.float32(), "decimal(20,9)": pa.decimal128(20, 9), "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
    }  # fmt: skip
    columns = {
        f"c {kind.partition('(')[0]}": pa.array(
            [None if rng.random() < 0.1 else value(rng) for _ in range(count)], arrow[kind]
        )
        for kind, value in KINDS.items()
    }
    return pa.table({"id": pa.array(range(count), pa.int64()), **columns})


def test_names_of_random_values_are_those_of_spark(spark, zone):
    """Spark casts each value to text and makes the name; 200 rows of ten types."""
    table = table_of(7, 200)
    batch = table.combine_chunks().to_batches()[0]
    columns = table.column_names[1:]
    utils = spark._jvm.org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils
    df = spark.createDataFrame(table)
    casts = (
        df.orderBy("id").selectExpr(*(f"cast(`{name}` as string)" for name in columns)).collect()
    )
    for place, column in enumerate(columns):
        by_spark = [utils.getPartitionPathString(column, row[place]) for row in casts]
        places, paths = partition_values.folders_of(batch, [column], zone)
        assert [paths[number] for number in places.to_pylist()] == by_spark
        assert len(set(by_spark)) >= (3 if column == "c boolean" else 8)


def folders(path):
    """Return the folders that have files, as relative paths."""
    files = path.rglob("part-*")
    return sorted({file.parent.relative_to(path).as_posix() for file in files})


def texts(df):
    return sorted(map(repr, df.collect()))


@pytest.mark.parametrize("columns", [["string"], ["date", "boolean"], ["timestamp"], ["decimal"], ["double", "tinyint"], ["timestamp_ntz"]])  # fmt: skip
def test_spark_reads_the_same_rows_and_types_as_from_its_own_folders(
    spark, zone, tmp_path, columns
):
    df = spark.createDataFrame(table_of(len(columns), 25)).coalesce(2)
    by = [f"c {column}" for column in columns]
    df.write.partitionBy(*by).parquet(str(tmp_path / "spark"))
    result = write(df, FileSink(tmp_path / "ours", partition_by=by, sort_within="id"))
    assert result.rows == 25
    assert folders(tmp_path / "ours") == folders(tmp_path / "spark")
    ours, theirs = (spark.read.parquet(str(tmp_path / name)) for name in ("ours", "spark"))
    assert ours.schema == theirs.schema
    assert texts(ours) == texts(theirs)


def test_consumers_of_an_exchange_write_folders(spark, zone, tmp_path):
    df = spark.range(0, 5_000, 1, 4).selectExpr(
        "id",
        "id % 7 as day",
        "timestamp'2026-01-31 00:00:00' + make_interval(0, 0, 0, id % 2) as t",
    )
    sink = FileSink(tmp_path, partition_by=["day", "t"], sort_within="id", max_rows_per_file=100)
    result = write(df, sink, by="day", num_partitions=3)
    days = {unquote(file.split("/")[0]) for file in result.files}
    assert days == {f"day={day}" for day in range(7)}
    assert {file.split("/")[1] for file in result.files} == {
        names.partition_name("t", f"2026-0{day} 00:00:00") for day in ("1-31", "2-01")
    }
    back = spark.read.parquet(str(tmp_path))
    assert texts(back.selectExpr("id", "bigint(day) as day", "t")) == texts(df)
    for file in result.files:
        ids = parquet.ParquetFile(tmp_path / file).read()["id"].to_pylist()
        assert ids == sorted(ids)
        assert len(ids) <= 100


def test_an_attempt_that_fails_leaves_no_folder(spark, tmp_path):
    def fail(batches):
        yield from batches
        raise KeyError("not today")

    df = spark.range(0, 100, 1, 2).selectExpr("id", "id % 3 as k")
    with pytest.raises(Exception, match="not today"):
        write(
            df, FileSink(tmp_path / "out", partition_by="k"), by="id", reduce=fail, schema=df.schema
        )
    assert list(tmp_path.iterdir()) == []


def test_what_spark_refuses_is_refused_at_the_call(spark, tmp_path):
    df = spark.range(3).selectExpr("id", "array(id) as a", "map(id, id) as m", "struct(id) as s")
    for column in ("a", "m", "s"):
        with pytest.raises(Exception, match=r"Cannot use .* for partition column"):
            df.write.partitionBy(column).parquet(str(tmp_path / "spark"))
        with pytest.raises(UnsupportedTypeError, match="names of folders cannot have"):
            write(df, FileSink(tmp_path / "out", partition_by=column))
    with pytest.raises(UnknownColumnError, match="kk"):
        write(df, FileSink(tmp_path / "out", partition_by="kk"))
    with pytest.raises(OptionError, match="is no time zone"):
        FileSink(tmp_path / "out", partition_by="id", time_zone="Mars")
    assert not Path(tmp_path / "out").exists()
