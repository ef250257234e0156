"""``read="auto"``: workers read a scan of files only if they get Spark's own rows; else Spark reads it."""

import datetime as dt
import logging
import sys
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle

from headgate.source.files.footer import Footer
from headgate.spark import exchange
from headgate.spark.plan.read_auto.columns import Leaf
from headgate.spark.plan.read_auto.files import _check_days
from headgate.spark.plan.read_auto.scan import Unsure

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS = 60
NOON = dt.datetime(2026, 3, 29, 12, 30, 15, 123456)  # noqa: DTZ001 - a zone is added where one is tested
#: Column -> its type, and values; every seventh row is null.
COLUMNS = {
    "flag": (pa.bool_(), [True, False]),
    "i8": (pa.int8(), [0, -128, 127]),
    "i16": (pa.int16(), [0, -(2**15), 2**15 - 1]),
    "i32": (pa.int32(), [0, -(2**31), 2**31 - 1]),
    "i64": (pa.int64(), [0, -(2**63), 2**63 - 1]),
    "f32": (pa.float32(), [0.0, -0.0, 1.5, float("inf"), float("nan")]),
    "f64": (pa.float64(), [0.0, -0.0, 1.5, float("-inf"), float("nan")]),
    "text": (pa.string(), ["", "a", "Zürich", "\U0001f30a", "x" * 500]),
    "large": (pa.large_string(), ["", "b"]),
    "raw": (pa.binary(), [b"", b"\0\xff"]),
    "day": (pa.date32(), [dt.date(1582, 10, 15), dt.date(1970, 1, 1), dt.date(9999, 12, 31)]),
    "at": (pa.timestamp("us", "UTC"), [NOON, NOON.replace(year=1970)]),
    "at_ms": (pa.timestamp("ms", "Asia/Tokyo"), [NOON.replace(microsecond=5000)]),
    "local": (pa.timestamp("us"), [NOON, NOON.replace(hour=2)]),
    "price": (pa.decimal128(12, 2), [Decimal("0.00"), Decimal("-9999999999.99")]),
    "wide": (pa.decimal128(38, 10), [Decimal("0.0000000001"), Decimal(-1)]),
}


def column(kind, values):
    return pa.array([None if n % 7 == 6 else values[n % len(values)] for n in range(ROWS)], kind)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two files with all types, and one that lacks half of the columns."""
    path = tmp_path_factory.mktemp("scan")
    table = pa.table({name: column(*about) for name, about in COLUMNS.items()})
    table = table.append_column("id", pa.array(range(ROWS), pa.int64()))
    for number in range(2):
        pq.write_table(table, path / f"{number}.parquet", row_group_size=13)
    pq.write_table(table.select(["id", *list(COLUMNS)[::2]]), path / "2.parquet")
    return str(path)


@pytest.fixture
def logged(caplog):
    """Return what the log says of who reads."""
    caplog.set_level(logging.INFO, "headgate.spark")

    def read_by():
        (line,) = [r.getMessage() for r in caplog.records if "read" in r.getMessage()[:60]]
        caplog.clear()
        return line

    return read_by


def same(batches):
    yield from batches


def rows(df):
    """Return rows with their partitions as text, in which NaN and -0.0 can be compared."""
    return sorted(repr(tuple(row)) for row in df.selectExpr("spark_partition_id()", "*").collect())


def by_workers(df, logged, by="id"):
    out = exchange(
        df, by=by, map=same, num_partitions=3, read="auto", mode="kept", schema=df.schema
    )
    assert "the workers read the input" in logged()
    assert rows(out) == rows(df.repartition(3, by))
    return out


def by_spark(df, logged, by="id"):
    """Check that Spark reads the input; return why."""
    out = exchange(
        df, by=by, map=same, num_partitions=3, read="auto", mode="kept", schema=df.schema
    )
    line = logged()
    assert ": Spark reads the input: " in line
    assert rows(out) == rows(df.repartition(3, by))
    return line


@pytest.mark.soak
@pytest.mark.parametrize("name", COLUMNS)
def test_each_type_is_read_as_spark_reads_it(spark, folder, logged, name):
    by_workers(spark.read.schema("id long").parquet(folder).select("id"), logged)
    by_workers(spark.read.parquet(f"{folder}/0.parquet").select("id", name), logged)


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles"])
def test_times_do_not_depend_on_the_sessions_zone(spark, folder, logged, zone):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        by_workers(
            spark.read.parquet(f"{folder}/1.parquet").select("id", "at", "at_ms", "local"), logged
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_a_column_that_a_file_lacks_is_null(spark, folder, logged):
    df = spark.read.parquet(f"{folder}/0.parquet")
    whole = spark.read.schema(df.schema).parquet(folder)
    by_workers(whole, logged)
    by_workers(whole.where("text is null or i8 = 0"), logged)


@pytest.mark.parametrize(
    "condition",
    [
        "i32 = 0",
        "0 < i32",
        "i64 >= 9223372036854775807",
        "i8 <> 127",
        "not (i16 > 0 or text = 'a')",
        "text in ('a', 'Zürich')",
        "text > 'Z' and day <= date'1970-01-01'",
        "day is null or text is not null and id < 30",
        "i32 = 0 and (i64 < 5 or i8 is null)",
        "f64 < 0",
        "at > timestamp'2020-01-01'",
        "length(text) > 1",
    ],
)
def test_a_filter_keeps_the_same_rows(spark, folder, logged, condition):
    df = spark.read.parquet(f"{folder}/0.parquet").where(condition).select("text", "id")
    by_workers(df, logged)
    assert 0 < df.count() < ROWS


@pytest.mark.soak
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda df: df.selectExpr("id", "upper(text) as u"), "its column 'u' has Upper"),
        (
            lambda df: df.where("raw = X'00'").select("id"),
            "its filter has a literal of type binary",
        ),
        (lambda df: df.where("i32 <=> null").select("id"), "LocalRelation|IsNull|workers"),
        (lambda df: df.where("hash(text) > 1").select("id"), "its filter has Murmur3Hash"),
        (lambda df: df.limit(5).select("id"), "its plan has GlobalLimit"),
        (lambda df: df.distinct().select("id"), "its plan has"),
        (lambda df: df.repartition(3).select("id"), "its plan has Repartition"),
        (lambda df: df.select("id", "_metadata.file_name"), "column '_metadata'"),
        (lambda df: df.union(df).select("id"), "more than one table"),
    ],
)
def test_what_is_more_than_a_scan_stays_with_spark(spark, folder, logged, change, why):
    import re

    df = change(spark.read.parquet(f"{folder}/0.parquet"))
    out = exchange(
        df, by="id", map=same, num_partitions=3, read="auto", mode="kept", schema=df.schema
    )
    assert re.search(why, logged())
    assert out.count() == df.count()


def test_other_tables_stay_with_spark(spark, folder, logged, tmp_path):
    assert "it is Range, not a scan" in by_spark(spark.range(10), logged)
    (tmp_path / "a.csv").write_text("1\n2\n")
    text = spark.read.schema("id long").csv(str(tmp_path / "a.csv"))
    assert "by CSVFileFormat, not Parquet" in by_spark(text, logged)
    cached = spark.read.parquet(f"{folder}/0.parquet").select("id")
    by_workers(cached, logged)
    cached.cache()
    try:
        assert "it is InMemoryRelation" in by_spark(cached, logged)
    finally:
        cached.unpersist(blocking=True)


def test_folders_with_columns_and_computed_keys_are_read(spark, logged, tmp_path):
    spark.range(9).selectExpr("id", "id % 3 as k").write.partitionBy("k").parquet(
        str(tmp_path / "p")
    )
    df = spark.read.parquet(str(tmp_path / "p"))
    by_workers(df, logged)
    by_workers(df.where("k > 0").selectExpr("pmod(id, 5L) as key", "id"), logged, by="key")


def test_a_file_that_is_read_twice_stays_with_spark(spark, folder, logged):
    df = spark.read.parquet(f"{folder}/0.parquet", f"{folder}/0.parquet").select("id")
    assert "it reads a file twice" in by_spark(df, logged)


def test_options_stay_with_spark(spark, folder, logged):
    globbed = spark.read.option("pathGlobFilter", "0*").parquet(folder).select("id")
    assert "has the option pathglobfilter" in by_spark(globbed, logged)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.sql.files.ignoreCorruptFiles", "true"),
        ("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY"),
        ("spark.sql.parquet.aConfOfANewerSpark", "1"),
        ("parquet.aSettingOfHadoop", "1"),
    ],
)
def test_a_conf_that_is_not_known_to_change_no_row_stays_with_spark(
    spark, folder, logged, name, value
):
    df = spark.read.parquet(folder).select("id")
    spark.conf.set(name, value)
    try:
        assert f"{name} is {value}" in (why := by_spark(df, logged)) or f"has {name}" in why
    finally:
        spark.conf.unset(name)
    spark.conf.set("spark.sql.files.maxPartitionBytes", "1m")
    try:
        by_workers(df, logged)
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")


@pytest.fixture
def make_table(spark):
    """Return a function that makes a table with a row (id 1) and changes it."""
    names = []

    def make(columns, *changes, properties=""):
        name = f"scan_{len(names)}"
        names.append(name)
        spark.sql(f"drop table if exists {name}")
        spark.sql(f"create table {name} ({columns}) using parquet {properties}")
        spark.sql(f"insert into {name} (id) values (1)")
        for change in changes:
            spark.sql(change.format(name))
        return spark.table(name)

    yield make
    for name in names:
        spark.sql(f"drop table {name}")


def test_a_table_is_read_by_workers(make_table, logged):
    df = make_table("id long comment 'a key', s string", "alter table {} add column b int")
    by_workers(df, logged)


@pytest.mark.parametrize(
    ("columns", "changes", "properties", "why"),
    [
        ("id long", ["alter table {} add column b int default 99"], "", "_DEFAULT"),
        ("id long, c varchar(4)", [], "", "__CHAR_VARCHAR_TYPE_STRING"),
        ("id long", ["alter table {} set tblproperties ('a' = '1')"], "", "has the property a"),
        ("id long", [], "clustered by (id) into 2 buckets", "has bucketSpec"),
        ("id long", [], "options ('a' = '1')", "has the option a"),
    ],
)
def test_a_table_with_more_than_columns_stays_with_spark(
    make_table, logged, columns, changes, properties, why
):
    df = make_table(columns, *changes, properties=properties)
    assert why in by_spark(df, logged)


def test_a_default_is_no_matter_if_its_column_is_not_read(make_table, logged):
    df = make_table("id long", "alter table {} add column b int default 99")
    by_workers(df.select("id"), logged)


def test_each_field_of_sparks_plan_is_known(spark, folder, monkeypatch, logged):
    from headgate.spark.plan.read_auto import relation

    less = {name: values for name, values in relation._RELATION.items() if name != "bucketSpec"}
    monkeypatch.setattr(relation, "_RELATION", less)
    df = spark.read.parquet(folder).select("id")
    assert "its relation has the field bucketSpec" in by_spark(df, logged)


@pytest.mark.parametrize(
    ("data", "options", "why"),
    [
        ({"x": pa.array([2**40], pa.uint64())}, {}, r"column 'x' is uint64"),
        ({"x": pa.array([1], pa.uint8())}, {}, "column 'x' is uint8"),
        ({"x": pa.array([1], pa.duration("us"))}, {}, "column 'x' is duration"),
        (
            {"x": pa.array([NOON], pa.timestamp("ns"))},
            {"use_deprecated_int96_timestamps": True},
            "column 'x' of a file has times of 96 bits by parquet-cpp-arrow",
        ),
    ],
)
def test_columns_that_may_be_read_otherwise_stay_with_spark(
    spark, logged, tmp_path, data, options, why
):
    pq.write_table(
        pa.table({"id": pa.array([1], pa.int64()), **data}), tmp_path / "a.parquet", **options
    )
    df = spark.read.parquet(str(tmp_path))
    exchange(df, by="id", map=same, num_partitions=3, read="auto", mode="kept", schema=df.schema)
    assert why in logged()


OLD_TIMES = {
    "day": [dt.date(1500, 1, 1)],
    "in_list": pa.array([[NOON.replace(year=1850)]], pa.list_(pa.timestamp("us", "UTC"))),
}


@pytest.mark.parametrize("name", OLD_TIMES)
@pytest.mark.parametrize(
    ("mode", "notes", "why"),
    [
        ("CORRECTED", {}, ""),
        ("EXCEPTION", {}, "before the Gregorian calendar"),
        ("CORRECTED", {"org.apache.spark.version": "2.4.8"}, "before the Gregorian calendar"),
        ("EXCEPTION", {"org.apache.spark.version": "4.1.0"}, ""),
    ],
)
def test_old_days_are_read_by_the_calendar_of_the_file(
    spark, logged, tmp_path, name, mode, notes, why
):
    table = pa.table({"id": [1], name: OLD_TIMES[name]}).replace_schema_metadata(notes)
    pq.write_table(table, tmp_path / "a.parquet")
    df = spark.read.parquet(str(tmp_path))
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", mode)
    try:
        if not why:
            by_workers(df, logged)
            return
        exchange(df, by="id", map=same, read="auto", mode="kept", schema=df.schema)
        assert why in logged()
    finally:
        spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInRead")


def test_lists_of_the_old_form_stay_with_spark(spark, logged, tmp_path):
    """Their elements have no group of their own."""
    spark.conf.set("spark.sql.parquet.writeLegacyFormat", "true")
    try:
        rows_of_spark = spark.sql("select 1L as id, array(1, 2) as a, map('k', 1) as m")
        rows_of_spark.write.parquet(str(tmp_path / "t"))
    finally:
        spark.conf.unset("spark.sql.parquet.writeLegacyFormat")
    df = spark.read.parquet(str(tmp_path / "t"))
    assert "'a' of a file is a list of an old form" in by_spark(df, logged)
    by_workers(df.select("id", "m"), logged)


def test_a_column_spelt_otherwise_in_a_file_stays_with_spark(spark, logged, tmp_path):
    pq.write_table(pa.table({"id": [1], "User": ["a"]}), tmp_path / "a.parquet")
    df = spark.read.schema("id long, user string").parquet(str(tmp_path))
    assert "has the columns User for 'user'" in by_spark(df, logged)


def test_a_file_of_another_type_than_the_table_stays_with_spark(spark, logged, tmp_path):
    pq.write_table(pa.table({"id": pa.array([1], pa.int32())}), tmp_path / "a.parquet")
    df = spark.read.schema("id long").parquet(str(tmp_path))
    assert "column 'id' is int32" in by_spark(df, logged)


def test_encodings_by_which_pyarrow_fails_stay_with_spark(spark, logged, tmp_path):
    for version in ("v1", "v2"):
        path = tmp_path / version / "a.parquet"
        path.parent.mkdir()
        rows_of_duckdb = "select (random() * 2e9)::int as id from range(5000)"
        options = f"format parquet, parquet_version {version}"
        duckdb.sql(f"copy ({rows_of_duckdb}) to '{path}' ({options})")
    by_workers(spark.read.parquet(str(tmp_path / "v1")), logged)
    reason = by_spark(spark.read.parquet(str(tmp_path / "v2")), logged)
    assert "DuckDB has encoded values by DELTA_BINARY_PACKED" in reason


def test_old_days_that_spark_wrote_are_read(spark, logged, tmp_path):
    spark.sql("select 1L as id, date'0900-02-03' as d").write.parquet(str(tmp_path / "t"))
    by_workers(spark.read.parquet(str(tmp_path / "t")), logged)


def test_columns_that_are_not_read_may_have_any_type(spark, logged, tmp_path):
    rows_of_spark = spark.sql("select 1L as id, interval '1' month as m")
    rows_of_spark.write.parquet(str(tmp_path / "t"))
    by_workers(spark.read.parquet(str(tmp_path / "t")).select("id"), logged)


def test_workers_read_by_default_and_spark_if_asked_to(spark, folder, logged, caplog):
    df = spark.read.parquet(folder).select("id")
    exchange(df, by="id", map=same, schema="id long")
    assert "the workers read" in logged()
    exchange(df, by="id", map=same, schema="id long", read="spark")
    assert not [r for r in caplog.records if "read" in r.getMessage()[:60]]


def test_a_call_without_functions_stays_with_spark(spark, folder, logged):
    df = spark.read.parquet(folder).select("id")
    out = exchange(df, by="id", num_partitions=3, read="auto", mode="auto")
    assert "no function gets its rows" in logged()
    assert rows(out) == rows(df.repartition(3, "id"))
    exchange(df, by="id", reduce=same, num_partitions=3, read="auto", mode="auto", schema=df.schema)
    assert "the workers read" in logged()


def test_map_and_reduce_get_what_the_workers_read(spark, folder, logged):
    def doubled(batches):
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"n": [2 * n for n in batch["id"].to_pylist()]})

    out = exchange(
        spark.read.parquet(folder).where("id < 5").select("id"),
        by="n",
        map=doubled,
        map_schema="n long",
        reduce=same,
        schema="n long",
        read="auto",
        mode="kept",
    )
    assert "the workers read" in logged()
    assert sorted(row["n"] for row in out.collect()) == sorted([0, 2, 4, 6, 8] * 3)


def test_batches_have_as_many_rows_as_sparks(spark, folder, logged):
    def sizes(batches):
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"id": [0], "rows": [batch.num_rows]})

    def most(value):
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", value)
        df = spark.read.parquet(folder).select("id")
        out = exchange(
            df, by="id", map=sizes, schema="id long, rows long", read="auto", mode="kept"
        )
        assert "the workers read" in logged()
        return max(row["rows"] for row in out.collect())

    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    try:
        assert (most("5"), most("0")) == (5, ROWS)
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", before)


@pytest.mark.parametrize("kind", ["histogram", "type"])
def test_a_damaged_footer_stays_with_spark(kind):
    """Pyarrow would end the driver if it were asked for the statistics."""
    path = Path(__file__).parents[1] / "source" / "data" / f"damaged_{kind}.parquet"
    footer = Footer.read(pafs.LocalFileSystem(), str(path), path.stat().st_size)
    with pytest.raises(Unsure, match="the footer is damaged"):
        _check_days(str(path), footer, [("id", Leaf(("id",), "INT64", 0))])


def test_a_map_beside_times_of_96_bits_is_no_obstacle(spark, tmp_path, logged):
    path = f"{tmp_path}/maps"
    frame = spark.range(20).selectExpr("id", "timestamp'2024-01-01' at", "map('a', id) m")
    frame.write.parquet(path)
    metadata = pq.ParquetFile(next(Path(path).glob("*.parquet"))).schema
    assert "INT96" in {metadata.column(n).physical_type for n in range(len(metadata))}
    by_workers(spark.read.parquet(path).select("id"), logged)
    by_workers(spark.read.parquet(path).select("id", "at"), logged)
    by_headgate = spark.read.format("headgate").load(path)
    by_sparks = spark.read.parquet(path)
    assert by_headgate.dtypes == by_sparks.dtypes
    assert sorted(map(repr, by_headgate.collect())) == sorted(map(repr, by_sparks.collect()))


def test_an_unexpected_failure_of_the_look_leaves_the_read_to_spark(
    spark, folder, logged, monkeypatch
):
    def fail(*_):
        raise TypeError("map_() takes at least 2 positional arguments")

    monkeypatch.setattr("headgate.spark.plan.read_auto.decide.checked", fail)
    df = spark.read.parquet(f"{folder}/0.parquet").select("id")
    assert "the look at it failed with TypeError: map_() takes" in by_spark(df, logged)
