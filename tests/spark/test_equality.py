"""An exchange puts the same rows into the same partitions as Spark's own repartition."""

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.kit.masters import compares_rows
from tests.kit.shuffle_plans import through_sparks_shuffle

import headgate as hg
from headgate import BroadcastSelector, HashSelector, RoundRobinSelector
from headgate.key_groups import key_groups, operator_index
from headgate.spark import exchange

UTC = dt.UTC
COLUMNS = {
    "bool": (pa.bool_(), [True, False]),
    "i8": (pa.int8(), [0, -1, 127, -128]),
    "i16": (pa.int16(), [0, -1, 32767, -32768]),
    "i32": (pa.int32(), [0, -1, 2**31 - 1, -(2**31)]),
    "i64": (pa.int64(), [0, -1, 2**63 - 1, -(2**63)]),
    "f32": (pa.float32(), [0.0, -0.0, 1.5, math.nan, math.inf, -math.inf]),
    "f64": (pa.float64(), [0.0, -0.0, 1.5, math.nan, math.inf, -math.inf]),
    "text": (pa.string(), ["", "a", "abcd", "Zürich", "水門", "\U0001f30a", "x" * 1000]),
    "raw": (pa.binary(), [b"", b"\0", b"\xff\xfe", b"abcdefg"]),
    "day": (pa.date32(), [dt.date(1970, 1, 1), dt.date(1582, 10, 15), dt.date(9999, 12, 31)]),
    "at": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), dt.datetime(2026, 11, 20, tzinfo=UTC)],
    ),
    "at_ntz": (pa.timestamp("us"), [dt.datetime(1970, 1, 1), dt.datetime(2026, 11, 20, 1, 2, 3)]),  # noqa: DTZ001 - without a zone by definition
    "dec9": (pa.decimal128(9, 2), [Decimal("0.00"), Decimal("-1.25"), Decimal("9999999.99")]),
    "dec38": (pa.decimal128(38, 6), [Decimal("0.000000"), Decimal("-" + "9" * 32 + ".999999")]),
    "list": (pa.list_(pa.int64()), [[], [1], [None, 2], [1, 2, 3]]),
    "lists": (pa.list_(pa.list_(pa.string())), [[], [["a"], None, []], [[None], ["Zürich", "b"]]]),
    "pair": (
        pa.struct([("x", pa.float64()), ("name", pa.string())]),
        [{"x": -0.0, "name": None}, {"x": math.nan, "name": "a"}, {"x": None, "name": None}],
    ),
    "pairs": (
        pa.list_(pa.struct([("day", pa.date32()), ("ok", pa.bool_())])),
        [[], [None], [{"day": dt.date(2026, 11, 21), "ok": None}, {"day": None, "ok": True}]],
    ),
}
ROWS = 300


def exchanged(spark, df, **options):
    return exchange(df, **options)


both_ways = pytest.mark.parametrize(
    "way", [pytest.param(exchanged, marks=compares_rows), through_sparks_shuffle]
)


@pytest.fixture(scope="module")
def table():
    """All types, with nulls and a row number; values repeat with another period in each column."""
    columns = {"row": pa.array(range(ROWS), pa.int64())}
    for rhythm, (name, (kind, values)) in enumerate(COLUMNS.items(), start=2):
        some = [
            None if i % 7 == rhythm % 7 else values[i * rhythm % len(values)] for i in range(ROWS)
        ]
        columns[name] = pa.array(some, kind)
    columns["span"] = pa.array(
        [dt.timedelta(microseconds=i) for i in range(ROWS)], pa.duration("us")
    )
    maps = [None if i % 5 == 0 else [("a", i), ("b", None)][: i % 3] for i in range(ROWS)]
    columns["map"] = pa.array(maps, pa.map_(pa.string(), pa.int64()))
    return pa.table(columns)


@pytest.fixture
def df(spark, table):
    # More partitions than slots, and one of them is empty.
    return spark.createDataFrame(table).repartition(5).where("row % 5 >= 0")


def placed(df):
    """Return the sorted rows of each partition as text: NaN equals NaN, and -0.0 is not 0.0."""
    rows = df.selectExpr("spark_partition_id() as partition", "*").collect()
    found = {}
    for row in rows:
        found.setdefault(row["partition"], []).append(repr(tuple(row)[1:]))
    return {partition: sorted(texts) for partition, texts in found.items()}


@pytest.mark.parametrize("key", list(COLUMNS))
def test_each_type_as_a_key(df, key):
    out = exchange(df.select("row", key), by=key, num_partitions=2)
    assert placed(out) == placed(df.select("row", key).repartition(2, key))


def test_all_types_at_once_by_several_columns(df):
    keys = list(COLUMNS)
    out = placed(exchange(df, by=keys, num_partitions=3))
    assert out == placed(df.repartition(3, *keys))
    assert sum(map(len, out.values())) == ROWS


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_all_types_at_once_compressed(df, codec):
    out = placed(exchange(df, by="text", num_partitions=3, compression=codec))
    assert out == placed(df.repartition(3, "text"))


def test_a_key_that_holds_most_rows(spark):
    df = spark.range(0, 20_000, 1, 6).selectExpr("id", "if(id % 10 > 0, 'hot', string(id)) as k")
    assert placed(exchange(df, by="k", num_partitions=3)) == placed(df.repartition(3, "k"))


def test_empty_batches_and_rowless_inputs(spark):
    def with_empty_ones(batches):
        for batch in batches:
            yield batch.slice(0, 0)
            yield batch
            yield batch.slice(0, 0)

    df = spark.range(0, 100, 1, 4)
    out = exchange(df, by="id", map=with_empty_ones, schema="id long", num_partitions=2)
    assert placed(out) == placed(df.repartition(2, "id"))
    assert placed(exchange(df.where("id < 0"), by="id")) == {}


def test_one_row_of_20_mb(spark):
    df = spark.range(0, 3, 1, 3).selectExpr("id", "repeat(string(id), 20 * 1000 * 1000) as big")
    sizes = exchange(df, by="id").selectExpr("id", "length(big) n", "substr(big, -1) c").collect()
    assert sorted(map(tuple, sizes)) == [(i, 20_000_000, str(i)) for i in range(3)]


@pytest.mark.soak
@compares_rows
def test_rows_without_columns_by_round_robin(spark):
    df = spark.range(0, 1000, 1, 4).select()
    out = exchange(df)
    assert out.columns == []
    assert out.count() == 1000


@compares_rows
def test_round_robin_keeps_all_rows_and_uses_all_partitions(spark):
    df = spark.range(0, 1000, 1, 4)
    for by in (None, RoundRobinSelector()):
        out = placed(exchange(df, by=by, num_partitions=2))
        assert sum(map(len, out.values())) == 1000
    out = placed(exchange(df, num_partitions=2))
    assert {partition: len(rows) for partition, rows in out.items()} == {0: 500, 1: 500}


@both_ways
def test_selectors_and_functions(spark, way):
    df = spark.range(0, 1000, 1, 4)
    out = way(spark, df, by=HashSelector(["id"]), num_partitions=3)
    assert placed(out) == placed(df.repartition(3, "id"))
    everywhere = placed(way(spark, df, by=BroadcastSelector(), num_partitions=3))
    assert [len(rows) for rows in everywhere.values()] == [1000] * 3

    def thirds(batch):
        return [n % 3 for n in batch.column("id").to_pylist()]

    out = way(spark, df, by=thirds, num_partitions=3).selectExpr("id", "spark_partition_id() as p")
    assert out.where("p != id % 3").count() == 0
    assert out.count() == 1000


@both_ways
def test_flinks_selectors(spark, way):
    df = spark.range(0, 1000, 1, 4)
    groups = key_groups(pa.array(range(1000)), 128).to_pylist()
    for by in (
        hg.RebalanceSelector(),
        hg.RescaleSelector(),
        hg.ShuffleSelector(seed=3),
        hg.ShuffleSelector(by_rows=True),
    ):
        out = placed(way(spark, df, by=by, num_partitions=2))
        assert sum(map(len, out.values())) == 1000
    for by in (hg.GlobalSelector(), hg.ForwardSelector()):
        out = placed(way(spark, df, by=by, num_partitions=2))
        assert {partition for partition, rows in out.items() if rows} == {0}
        assert len(out[0]) == 1000
    out = way(spark, df, by=hg.KeyGroupSelector("id"), num_partitions=2)
    for row in out.selectExpr("id", "spark_partition_id() as p").collect():
        assert row["p"] == operator_index(groups[row["id"]], 2, 128)


def test_column_names_ignore_case(spark):
    df = spark.range(0, 100, 1, 2).selectExpr("id as Key")
    assert placed(exchange(df, by="KEY", num_partitions=2)) == placed(df.repartition(2, "KEY"))


def test_timestamps_keep_their_meaning_in_another_time_zone(spark):
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    try:
        df = spark.sql(
            "select timestamp'2026-03-08 02:30:00' t, timestamp_ntz'2026-03-08 02:30:00' n"
        )
        assert placed(exchange(df, by="t", num_partitions=2)) == placed(df.repartition(2, "t"))
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
