"""Folders with columns in their names: workers get the values that Spark has read from them, and its files."""

import contextlib
import pickle
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

from headgate.source import read
from headgate.spark.plan.read_auto.decide import source_of
from headgate.spark.plan.read_auto.scan import Unsure

#: Texts in the names of folders, of which Spark escapes some.
TEXTS = ["a", "a/b", "x=y", "%41", "100%", " ", "a b", "Zürich", "null", "'", '"', "\\", ":", "a,b", "\U0001f30a", "#", "+"]  # fmt: skip
#: What a column of folders may be, in SQL over ``id``, and the type that Spark infers.
KINDS = {
    "cast(id % 3 as int)": "int",
    "id % 2 + 3000000000": "bigint",
    "cast(id % 3 as double) + 0.5D": "double",
    "date_add(date'2023-12-31', cast(id % 3 as int))": "date",
    "timestamp'2024-10-27 00:30:00Z' + make_interval(0, 0, 0, 0, cast(id % 3 as int))": "timestamp",
    "if(id % 3 = 0, null, cast(id % 3 as int))": "int",
    "if(id % 3 = 0, null, 'x')": "string",
    "if(id % 3 = 0, 'true', '7')": "string",
    "concat('0', id % 3)": "int",
    "cast(12345678901234567890123 + id % 2 as string)": "decimal",
}


def by_workers(df):
    with read(pickle.loads(pickle.dumps(source_of(df)))) as batches:
        return texts(batches.to_reader().read_all())


def by_spark(df):
    return texts(df.toArrow())


def texts(table):
    """Return rows as texts, with times in UTC."""
    utc = pa.timestamp("us", "UTC")
    columns = [
        column.cast(utc) if getattr(column.type, "tz", None) else column for column in table.columns
    ]
    return sorted(map(repr, zip(*(column.to_pylist() for column in columns), strict=True)))


def alike(df):
    """Compare the rows; for a DataFrame of which no folder is left there is no source."""
    wanted = by_spark(df)
    if wanted:
        assert by_workers(df) == wanted
    else:
        with contextlib.suppress(Unsure):
            assert by_workers(df) == []


def files(df):
    """Return the number of files that the source of a DataFrame has."""
    return len(source_of(df)._files.paths)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_values_are_those_that_spark_infers(spark, tmp_path, zone):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        columns = [f"{text} as c{n}" for n, text in enumerate(KINDS)]
        names = [f"c{n}" for n in range(len(KINDS))]
        rows = spark.range(12).selectExpr("id", *columns).coalesce(1)
        rows.write.partitionBy(*names).parquet(str(tmp_path / "t"))
        df = spark.read.parquet(str(tmp_path / "t"))
        inferred = [dict(df.dtypes)[name].partition("(")[0] for name in names]
        assert inferred == list(KINDS.values())
        alike(df)
        alike(df.select("c4", "c0"))
        alike(df.where("c4 > timestamp'2024-10-27 01:00:00Z' and c3 >= date'2024-01-01'"))
        alike(df.where("c5 is null or c2 < 1").select("id", "c6", "c2"))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_texts_and_nulls_in_names(spark, tmp_path):
    texts = spark.createDataFrame(
        [(n, text) for n, text in enumerate([*TEXTS, None])], "id long, k string"
    )
    texts.coalesce(1).write.partitionBy("k").parquet(str(tmp_path / "t"))
    df = spark.read.parquet(str(tmp_path / "t"))
    assert len(by_workers(df)) == len(TEXTS) + 1
    alike(df)
    for text in [*TEXTS, "none"]:
        alike(df.where(df.k == text))
    alike(df.where("k is null"))
    alike(df.where("id > 3 or k = 'a/b'"))


def test_a_given_schema_casts_the_values(spark, tmp_path):
    spark.range(6).selectExpr("id", "id % 3 as k").write.partitionBy("k").parquet(
        str(tmp_path / "t")
    )
    for kind in ("string", "tinyint", "bigint", "float", "double", "decimal(10,3)", "boolean"):
        try:
            df = spark.read.schema(f"k {kind}, id long").parquet(str(tmp_path / "t"))
            wanted = by_spark(df)
        except PySparkException:  # a cast that Spark refuses
            continue
        if kind.startswith("decimal"):  # for 2 Spark gives 0.002
            with pytest.raises(Unsure, match="value of type decimal"):
                source_of(df)
        else:
            assert by_workers(df) == wanted


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("k = 1", 1),
        ("k > 0 and id > 2", 2),
        ("k + length(g) = 3", 1),
        ("year(d) = 2023 and upper(g) = 'X'", 1),
        ("k = 1 or id = 0", 3),
        ("k in (0, 2) and g <> 'none'", 2),
    ],
)
def test_spark_drops_folders_by_any_filter_on_them(spark, tmp_path, condition, count):
    rows = spark.range(9).selectExpr(
        "id", "id % 3 as k", "repeat('x', cast(id % 3 as int) + 1) as g",
        "date_add(date'2023-12-31', cast(id % 3 as int)) as d",
    )  # fmt: skip
    rows.coalesce(1).write.partitionBy("k", "g", "d").parquet(str(tmp_path / "t"))
    df = spark.read.parquet(str(tmp_path / "t")).where(condition)
    assert files(df) == count
    alike(df)
    alike(df.selectExpr("id", "k"))


def test_tables_of_the_catalog_have_values_and_places_of_their_own(spark, tmp_path):
    spark.sql(
        f"create table parts (id long, k int, g string) using parquet partitioned by (k, g) location '{tmp_path}/t'"
    )
    try:
        spark.sql("insert into parts values (1, 1, 'a'), (2, 2, 'b'), (3, null, 'c'), (4, 2, null)")
        other = tmp_path / "elsewhere"
        other.mkdir()
        pq.write_table(pa.table({"id": [5, 6]}), other / "x.parquet")
        spark.sql(f"alter table parts add partition (k=7, g='z') location '{other}'")
        df = spark.table("parts")
        alike(df)
        assert len(by_workers(df)) == 6
        for condition in (
            "k = 7",
            "k is null",
            "k = 2 and g = 'b'",
            "k > 1 and id > 4",
            "g is null",
        ):
            alike(df.where(condition))
        alike(df.select("id"))
        assert files(df.where("k = 7")) == 1
    finally:
        spark.sql("drop table parts")


def test_a_column_of_files_and_folders_has_the_value_of_the_folder(spark, tmp_path):
    for k in (1, 2):
        (tmp_path / f"k={k}").mkdir()
        pq.write_table(pa.table({"k": ["own"], "id": [k]}), tmp_path / f"k={k}" / "a.parquet")
    df = spark.read.parquet(str(tmp_path))
    alike(df)
    alike(df.where("k = 2"))
    alike(df.where("k % 2 = id"))


@pytest.mark.soak
def test_random_folders_and_filters(spark, tmp_path):
    chosen = random.Random(7)
    for number in range(12):
        names = [f"c{n}" for n in range(chosen.randint(1, 3))]
        columns = [f"{chosen.choice(list(KINDS))} as {name}" for name in names]
        path = str(tmp_path / str(number))
        spark.range(20).selectExpr("id", *columns).coalesce(1).write.partitionBy(*names).parquet(
            path
        )
        df = spark.read.parquet(path)
        for _ in range(6):
            row = chosen.choice(df.collect())
            terms = []
            for name in chosen.sample(names, chosen.randint(1, len(names))):
                same = df[name].eqNullSafe(row[name])
                terms.append(chosen.choice([same, ~same, df[name].isNull(), df[name] >= row[name]]))
            condition = terms[0]
            for term in terms[1:]:
                condition = chosen.choice(
                    [condition & term, condition | term, condition | (df.id > 9)]
                )
            alike(df.where(condition))


def test_calls_into_the_jvm_do_not_grow_with_the_folders(spark, tmp_path, monkeypatch):
    client = type(spark.sparkContext._gateway._gateway_client)
    calls = []
    send = client.send_command
    monkeypatch.setattr(
        client, "send_command", lambda *args, **more: calls.append(args) or send(*args, **more)
    )
    counts = []
    for folders in (2, 40):
        path = str(tmp_path / str(folders))
        rows = spark.range(folders).selectExpr("id", "id as k", "'a b+%' as text")
        rows.coalesce(1).write.partitionBy("k", "text").parquet(path)
        df = spark.read.parquet(path)
        source_of(df)
        calls.clear()
        source_of(df)
        # py4j tells the JVM of objects that are garbage here, whenever Python finds them.
        counts.append(sum(not call[1].startswith("m\n") for call in calls))
        alike(df)
    assert counts[0] == counts[1] > 100
