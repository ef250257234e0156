"""``spark.read.format("headgate")``: shipped and registered sources, filters, columns, failures."""

import os
import pickle
import re
import signal
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

datasource = pytest.importorskip("pyspark.sql.datasource")

from pyspark import cloudpickle  # noqa: E402 - after the check
from pyspark.errors import PySparkException  # noqa: E402
from pyspark.sql import functions as F  # noqa: E402, N812
from pyspark.sql.types import StringType, StructField, StructType, TimestampType  # noqa: E402
from tests.kit.masters import PYSPARK, registers  # noqa: E402

from headgate.errors import NotBuiltError  # noqa: E402
from headgate.source import FileSource, NumberSequenceSource  # noqa: E402
from headgate.spark import register  # noqa: E402
from headgate.spark.datasource.data_source import HeadgateDataSource  # noqa: E402

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
PUSHES_FILTERS = hasattr(datasource, "EqualTo")
pushes_filters = pytest.mark.skipif(
    not PUSHES_FILTERS, reason="this version of Spark does not push filters down"
)


@pytest.fixture
def folder(tmp_path):
    """Three files of 300 rows in row groups of 100: id, k, name, with nulls in name."""
    for number in range(3):
        ids = range(number * 300, number * 300 + 300)
        table = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "k": pa.array([i % 7 for i in ids], pa.int32()),
                "name": [None if i % 10 == 0 else f"row {i}" for i in ids],
            }
        )
        pq.write_table(table, tmp_path / f"part-{number}.parquet", row_group_size=100)
    return tmp_path


def rows(df):
    return sorted(df.collect(), key=lambda row: tuple((v is None, v) for v in row))


def test_files_are_read_without_a_call_of_register(spark, folder):
    df = spark.read.format("headgate").load(str(folder))
    assert df.columns == ["id", "k", "name"]
    assert rows(df) == rows(spark.read.parquet(str(folder)))


def test_each_split_is_a_partition(spark, folder):
    df = spark.read.format("headgate").option("splitSize", "1k").load(str(folder))
    assert df.rdd.getNumPartitions() == 9


def test_max_partitions_limits_the_tasks(spark, folder):
    reader = spark.read.format("headgate").option("splitSize", "1k").option("maxPartitions", "4")
    df = reader.load(str(folder))
    assert df.rdd.getNumPartitions() == 4
    assert rows(df) == rows(spark.read.parquet(str(folder)))
    with pytest.raises(PySparkException, match=r"HG-1001[\s\S]*maxPartitions"):
        reader.option("maxPartitions", "none").load(str(folder)).collect()


def test_the_option_columns_selects_columns(spark, folder):
    df = spark.read.format("headgate").option("columns", "k,id").load(str(folder))
    assert rows(df) == rows(spark.read.parquet(str(folder)).select("k", "id"))


def test_types_that_spark_lacks_become_the_next_larger_ones(spark, tmp_path):
    columns = {
        "byte": (pa.uint8(), [255, None]),
        "whole": (pa.uint64(), [2**64 - 1, None]),
        "half": (pa.float16(), [1.5, None]),
        "text": (pa.string_view(), ["a long text of more than twelve bytes", None]),
        "bytes": (pa.binary_view(), [b"abc", None]),
    }
    arrays = {name: pa.array(values, kind) for name, (kind, values) in columns.items()}
    with pa.ipc.new_file(tmp_path / "a.arrow", pa.table(arrays).schema) as writer:
        writer.write_table(pa.table(arrays))
    df = spark.read.format("headgate").option("source", "arrow").load(str(tmp_path))
    assert df.schema.simpleString() == (
        "struct<byte:smallint,whole:decimal(20,0),half:float,text:string,bytes:binary>"
    )
    assert [row.asDict() for row in df.collect()] == pa.table(arrays).to_pylist()


def test_several_paths_are_read_together(spark, folder):
    paths = [str(folder / f"part-{number}.parquet") for number in (0, 2)]
    df = spark.read.format("headgate").load(paths)
    assert rows(df) == rows(spark.read.parquet(*paths))


def test_a_schema_of_the_caller_picks_columns_and_types(spark, folder):
    df = spark.read.format("headgate").schema("k long, id long").load(str(folder))
    expected = spark.read.parquet(str(folder)).select(F.col("k").cast("long"), "id")
    assert rows(df) == rows(expected)


VALUES = [
    "0007",
    "2.500",
    "12345678901234567.89",
    "nan",
    "1e5",
    "0x1F",
    "true",
    "2024-01-01",
    "10:11:12",
]


def texts_of(spark, kind, folder, schema, **options):
    reader = spark.read.format("headgate").option("source", kind).schema(schema)
    return reader.options(**options).load(str(folder))


def test_a_schema_of_the_caller_is_that_of_the_texts(spark, tmp_path):
    """The oracle is Spark's own reader of CSV, and Python for each text."""
    (tmp_path / "a.csv").write_text("id,x\n" + "".join(f"{n},1\n" for n in range(3)))
    (tmp_path / "b.csv").write_text("id,x,later\n" + "".join(f"9,{v},{v}\n" for v in VALUES))
    df = texts_of(spark, "csv", tmp_path, "x string, later string")
    assert rows(df) == sorted([(value, value) for value in VALUES] + [("1", None)] * 3, key=str)
    path = tmp_path / "c"
    path.mkdir()
    (path / "a.csv").write_text("x,n\n12345678901234567.89,0007\n2.500,1\n")
    for schema in ("x decimal(38, 4), n string", "x string, n long", "n double, x decimal(30, 2)"):
        by_spark = spark.read.option("header", True).csv(str(path))
        by_spark = by_spark.selectExpr(
            *(f"cast({name} as {kind}) {name}" for name, kind in fields_of(schema))
        )
        assert rows(texts_of(spark, "csv", path, schema)) == rows(by_spark)


def fields_of(schema):
    fields = [part.strip() for part in re.split(r",(?![^(]*\))", schema)]
    return [part.split(" ", 1) for part in fields]


@pytest.mark.skipif(PYSPARK < (4, 2), reason="older versions of Spark read no stream")
def test_the_schema_of_a_query_is_that_of_the_texts(tmp_path):
    (tmp_path / "a.csv").write_text("x,n\n1,2\n")
    options = {"source": "csv", "path": str(tmp_path), "discoveryInterval": "1s"}
    wanted = StructType([StructField("n", StringType()), StructField("x", TimestampType())])
    asked, given = HeadgateDataSource(options), HeadgateDataSource(options)
    own = asked.schema()
    asked = pickle.loads(cloudpickle.dumps(asked))
    arrow = pa.schema([("n", pa.string()), ("x", pa.timestamp("us", "UTC"))])
    assert given.streamReader(wanted).source.schema == arrow
    assert asked.streamReader(own).source.schema == pa.schema([("x", "int64"), ("n", "int64")])
    declared = HeadgateDataSource({**options, "schema": "x string, n string"})
    assert declared.streamReader(wanted).source.schema.types == [pa.string()] * 2


def test_a_schema_of_the_caller_is_that_of_objects(spark, tmp_path):
    (tmp_path / "a.json").write_text('{"id": 1}\n{"id": 2, "d": "2024-01-01"}\n')
    (tmp_path / "b.json").write_text('{"d": "0007", "n": {"a": [1.50]}}\n')
    schema = "id long, d string, n struct<a: array<decimal(30,2)>>"
    df = texts_of(spark, "json", tmp_path, schema)
    by_spark = spark.read.schema(schema).json(str(tmp_path))
    assert df.schema == by_spark.schema
    assert sorted(map(repr, df.collect())) == sorted(map(repr, by_spark.collect()))
    assert df.where("d = '2024-01-01'").count() == 1


def test_a_value_that_does_not_fit_the_callers_schema_is_an_error(spark, tmp_path):
    (tmp_path / "a.csv").write_text("x\n1.25\n")
    with pytest.raises(PySparkException, match=r"another type in the schema") as caught:
        texts_of(spark, "csv", tmp_path, "x long").collect()
    assert "give the schema" not in str(caught.value)


def test_without_a_schema_later_values_stay_errors(spark, tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "b.csv").write_text("x\n007\n")
    df = spark.read.format("headgate").option("source", "csv").load(str(tmp_path))
    assert df.dtypes == [("x", "bigint")]
    with pytest.raises(PySparkException, match=r"give the schema"):
        df.collect()


def test_a_schema_of_the_caller_for_files_with_types(spark, folder, tmp_path):
    """A column that the first file lacks is null; a type is taken only if no value changes."""
    pq.write_table(pa.table({"id": [7], "late": ["x"]}), tmp_path / "z.parquet")
    df = spark.read.format("headgate").schema("id decimal(20,0), late string").load(str(tmp_path))
    by_spark = spark.read.option("mergeSchema", True).parquet(str(tmp_path)).select("id", "late")
    assert rows(df) == rows(by_spark.selectExpr("cast(id as decimal(20,0)) id", "late"))
    reader = spark.read.format("headgate").schema("name long")
    with pytest.raises(PySparkException, match=r"HG-4003[\s\S]*is of type string, not int64"):
        reader.load(str(folder)).collect()


def test_options_of_csv_have_sparks_names_where_spark_writes_them(spark, tmp_path):
    (tmp_path / "a.csv").write_bytes("id;t\n1;Mü\n2;\n".encode("latin-1"))
    reader = spark.read.format("headgate").option("source", "csv").option("sep", ";")
    reader = reader.option("stringsCanBeNull", "true").option("nullValues", "")
    with pytest.raises(PySparkException, match=r"encoding="):
        reader.load(str(tmp_path))
    df = reader.option("encoding", "latin-1").load(str(tmp_path))
    assert rows(df) == [(1, "Mü"), (2, None)]


def test_a_time_of_a_day_that_spark_lacks_says_to_declare_text(spark, tmp_path):
    (tmp_path / "a.csv").write_text("h,n\n10:11:12,1\n")
    with pytest.raises(PySparkException, match=r"HG-4002[\s\S]*\.schema\(\"h string"):
        spark.read.format("headgate").option("source", "csv").load(str(tmp_path))
    assert texts_of(spark, "csv", tmp_path, "h string").first() == ("10:11:12",)


@pytest.mark.soak
@pushes_filters
@pytest.mark.parametrize(
    "condition",
    [
        "id > 250 AND id <= 650",
        "name IS NULL",
        "name LIKE 'row 2%'",
        "k IN (1, 3, NULL)",
        "NOT (k IN (1, 3))",
        "k = 3 AND name IS NOT NULL",
        "name <=> NULL AND id < 100",
        "k = 1 OR k = 2",
        "id + k > 500",
    ],
)
def test_pushed_filters_give_the_same_rows_as_spark(spark, folder, condition):
    spark.conf.set(PUSHDOWN, "true")
    try:
        df = spark.read.format("headgate").load(str(folder)).where(condition)
        assert rows(df) == rows(spark.read.parquet(str(folder)).where(condition))
    finally:
        spark.conf.unset(PUSHDOWN)


@pushes_filters
def test_days_that_java_lacks_and_times_by_its_zone_are_compared_by_spark(spark, tmp_path):
    numbers = pa.array(range(-141_442, -141_420), pa.int32())  # around 5 to 14 October 1582
    at = pc.multiply(numbers.cast(pa.int64()), 86_400_000_000).cast(pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"day": numbers.cast(pa.date32()), "at": at}), tmp_path / "0.parquet")
    spark.conf.set(PUSHDOWN, "true")
    try:
        df = spark.read.format("headgate").load(str(tmp_path))
        day = "date_from_unix_date(-141430)"
        same = df.where(f"day = {day} and at = cast({day} as timestamp)")
        assert [row[0] for row in same.selectExpr("unix_date(day)").collect()] == [-141_430]
    finally:
        spark.conf.unset(PUSHDOWN)


@pushes_filters
def test_a_pushed_filter_leaves_row_groups_unread(spark, folder):
    spark.conf.set(PUSHDOWN, "true")
    try:
        df = spark.read.format("headgate").option("splitSize", "1k").load(str(folder))
        kept = df.where("id >= 800")
        assert kept.rdd.getNumPartitions() == 1
        assert kept.count() == 100
    finally:
        spark.conf.unset(PUSHDOWN)


def test_numbers_by_their_name(spark):
    reader = spark.read.format("headgate").option("source", "numbers")
    df = reader.option("start", "5").option("end", "25").load()
    assert sorted(row.id for row in df.collect()) == list(range(5, 25))


@registers
def test_a_class_and_an_instance_are_registered_under_new_names(spark, folder):
    register(spark, mine=NumberSequenceSource, these=FileSource(str(folder), columns=["id"]))
    mine = spark.read.format("headgate").option("source", "mine")
    assert mine.option("start", "0").option("end", "3").load().count() == 3
    assert spark.read.format("headgate").option("source", "these").load().count() == 900


@pytest.mark.skipif(PYSPARK >= (4, 1), reason="newer versions of Spark take new names")
def test_new_names_are_refused_by_the_oldest_spark(spark, folder):
    with pytest.raises(NotBuiltError, match="keeps the format headgate"):
        register(spark, mine=FileSource(str(folder)))
    assert spark.read.format("headgate").load(str(folder)).count() == 900


def test_a_class_by_its_module(spark):
    df = spark.read.format("headgate").option("source", "headgate.source:NumberSequenceSource")
    assert df.option("start", "0").option("end", "10").load().count() == 10


@pytest.mark.soak
@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ({"source": "parkett"}, "HG-1001", "parquet"),
        ({}, "HG-1001", "no source is named"),
        ({"source": "no.such:Thing"}, "HG-1001", "cannot be imported"),
        ({"source": "json:JSONDecoder"}, "HG-1001", "is no Source"),
        ({"source": "numbers", "start": "0"}, "HG-1001", "never ends"),
        ({"source": "parquet", "path": "/no/such/folder"}, "HG-6003", "/no/such/folder"),
    ],
)
def test_a_bad_source_option_is_an_error_with_its_code(spark, options, code, said):
    with pytest.raises(PySparkException) as caught:
        spark.read.format("headgate").options(**options).load().collect()
    assert code in str(caught.value)
    assert said in str(caught.value)


class Killing(FileSource):
    """Kills the worker that creates its first reader, once."""

    def create_reader(self, context):
        marker = Path(self.marker)
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().create_reader(context)


@pytest.mark.soak
@registers
def test_a_killed_reader_loses_and_repeats_nothing(spark, folder, tmp_path_factory):
    source = Killing(str(folder), split_size="1k")
    source.marker = str(tmp_path_factory.mktemp("marker") / "killed")
    register(spark, killing=source)
    df = spark.read.format("headgate").option("source", "killing").load()
    retried = spark.sparkContext.master.startswith("local-cluster")
    if retried:
        assert rows(df) == rows(spark.read.parquet(str(folder)))
    else:
        with pytest.raises(Exception, match="exited unexpectedly"):
            df.collect()
    assert Path(source.marker).exists()


def test_a_corrupt_row_group_names_split_and_file(spark, folder):
    path = folder / "part-1.parquet"
    data = bytearray(path.read_bytes())
    offset = pq.ParquetFile(path).metadata.row_group(1).column(2).data_page_offset
    data[offset : offset + 40] = os.urandom(40)
    path.write_bytes(data)
    with pytest.raises(PySparkException) as caught:
        spark.read.format("headgate").load(str(folder)).collect()
    assert "HG-6003" in str(caught.value)
    assert "part-1.parquet" in str(caught.value)


def test_a_file_deleted_after_the_listing_is_named(spark, folder):
    df = spark.read.format("headgate").load(str(folder))
    planned = df.rdd  # Spark plans the read here, which lists the splits
    (folder / "part-2.parquet").unlink()
    with pytest.raises(Exception, match=r"HG-6003[\s\S]*part-2\.parquet"):
        planned.collect()


def test_timestamps_of_96_bits_in_a_session_of_another_zone(spark, tmp_path):
    path = str(tmp_path / "t")
    types, zone = "spark.sql.parquet.outputTimestampType", "spark.sql.session.timeZone"
    confs = {types: "INT96", zone: "Asia/Tokyo"}
    if PUSHES_FILTERS:
        confs[PUSHDOWN] = "true"
    before = {name: spark.conf.get(name) for name in confs}
    for name, value in confs.items():
        spark.conf.set(name, value)
    try:
        texts = ["0001-01-01 00:00:00", "2020-03-01 08:59:59.999999", "9999-12-31 23:59:59.999999"]
        times = spark.createDataFrame([(text,) for text in [*texts, None]], "text string")
        times.selectExpr("text", "timestamp(text) as at").write.parquet(path)
        footers = [pq.ParquetFile(file).schema for file in Path(path).glob("*.parquet")]
        assert {schema.column(1).physical_type for schema in footers} == {"INT96"}
        ours = spark.read.format("headgate").load(path)
        declared = (
            spark.read.format("headgate").option("schema", "text string, at timestamp").load(path)
        )
        theirs = spark.read.parquet(path)
        assert ours.schema == theirs.schema
        for df, condition in (
            (ours, "at >= timestamp'2020-03-01 08:59:59.999999'"),
            (declared, "true"),
        ):
            shown = ("text", "cast(at as string)", "unix_micros(at)")
            found, wanted = (rows(one.where(condition).selectExpr(*shown)) for one in (df, theirs))
            assert found == wanted
            assert len(found) == (2 if df is ours else 4)
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
