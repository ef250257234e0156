"""Exchanges on Spark with DataFusion Comet: its scans, its shuffle manager, and ``mapInArrow`` on its own batches."""

import datetime as dt
import os
import sys
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benches.peer_program import COMET
from pyspark import cloudpickle
from tests.kit import sessions
from tests.kit.masters import MASTER, in_executors

from headgate.errors import NotBuiltError
from headgate.sink import FileSink
from headgate.spark import Input, exchange, explain, write

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

#: The jar of Comet, which scripts/comet_jar.sh downloads.
JAR = os.environ.get("HEADGATE_TEST_COMET")
pytestmark = pytest.mark.skipif(
    JAR is None, reason="no jar of Comet: run scripts/comet.sh tests/soak/comet"
)

FEEDS_PYTHON = "spark.comet.exec.pyarrowUDF.enabled"
ROWS = 3000
KEYS = 17
#: A zone that is not UTC, by which Comet labels the times of its batches.
ZONE = "America/Los_Angeles"
#: The change of that zone's clocks is among the rows' times.
START = dt.datetime(2024, 3, 10, 8, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def comet(tmp_path_factory):
    """A session with Comet."""
    folder = tmp_path_factory.mktemp("comet")
    builder = sessions.builder(MASTER, "headgate on Comet", folder)
    settings = {
        **COMET,
        "spark.memory.offHeap.size": "512m",
        "spark.driver.extraClassPath": JAR,
        "spark.executor.extraClassPath": JAR,
        "spark.sql.session.timeZone": ZONE,
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(params=["the workers", "Comet"])
def reader(request, comet):
    """The reader of the files by default."""
    comet.conf.set(FEEDS_PYTHON, str(request.param == "Comet").lower())
    yield
    comet.conf.set(FEEDS_PYTHON, "true")


def number_rows():
    """Return the rows, by column, as Python has them."""
    ids = range(ROWS)
    return {
        "id": list(ids),
        "k": [n % KEYS for n in ids],
        "amount": [None if n % 11 == 0 else Decimal(n) / 4 for n in ids],
        "at": [START + dt.timedelta(seconds=7 * n) for n in ids],
        "day": [dt.date(1970, 1, 1) + dt.timedelta(days=n) for n in ids],
        "text": [None if n % 5 == 0 else f"Zürich {n}" for n in ids],
        "parts": [None if n % 7 == 0 else [n, None] for n in ids],
        "place": [{"x": n / 2, "at": START + dt.timedelta(days=n)} for n in ids],
    }


SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "k": pa.int64(),
        "amount": pa.decimal128(12, 2),
        "at": pa.timestamp("us", tz="UTC"),
        "day": pa.date32(),
        "text": pa.string(),
        "parts": pa.list_(pa.int64()),
        "place": pa.struct({"x": pa.float64(), "at": pa.timestamp("us", tz="UTC")}),
    }
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with three Parquet files of these rows."""
    folder = tmp_path_factory.mktemp("files")
    table = pa.table(number_rows(), schema=SCHEMA)
    for number in range(3):
        pq.write_table(table.slice(number * 1000, 1000), folder / f"{number}.parquet")
    return str(folder)


def as_python(table):
    """Return the rows of a table as texts, with times in UTC, sorted."""
    in_utc = [pa.field(field.name, SCHEMA.field(field.name).type) for field in table.schema]
    return sorted(map(repr, table.cast(pa.schema(in_utc)).to_pylist()))


EXPECTED = as_python(pa.table(number_rows(), schema=SCHEMA))


def same(batches):
    yield from batches


def plan_of(df):
    return df._jdf.queryExecution().executedPlan().toString()


FUNCTIONS = {
    "none": (),
    "map": ("map",),
    "reduce": ("reduce",),
    "both": ("map", "reduce"),
}


@pytest.mark.parametrize("names", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("mode", ["auto", "kept", "spark"])
@pytest.mark.usefixtures("reader")
def test_rows_and_their_places_are_those_of_spark(comet, files, mode, names):
    df = comet.read.parquet(files)
    options = dict.fromkeys(names, same) | ({"schema": df.schema} if names else {})
    out = exchange(df, by="k", num_partitions=4, mode=mode, **options)
    assert as_python(out.toArrow()) == EXPECTED
    assert places(out) == places_by_spark(comet, files)


def places(df):
    """Return the partition of each key."""
    rows = df.selectExpr("k", "spark_partition_id() AS place").distinct().collect()
    assert len(rows) == KEYS
    return dict(map(tuple, rows))


def places_by_spark(session, files):
    """Return the partition of each key by Spark's own shuffle."""
    session.conf.set("spark.comet.enabled", "false")
    try:
        return places(session.read.parquet(files).repartition(4, "k"))
    finally:
        session.conf.set("spark.comet.enabled", "true")


def test_a_producer_gets_the_batches_of_comets_scan(comet, files):
    df = comet.read.parquet(files)
    out = exchange(df, by="k", map=same, schema=df.schema, read="spark", mode="kept")
    out.collect()
    producers = plan_of(out).partition("Exchange")[2]
    assert "CometMapInBatch headgate" in producers or "CometMapInBatch" in producers
    assert "CometNativeScan" in producers
    assert "ColumnarToRow" not in producers


def test_comet_reads_if_it_feeds_python_and_the_workers_else(comet, files):
    df = comet.read.parquet(files).where("id >= 100").select("id", "k")
    for feeds in (True, False):
        comet.conf.set(FEEDS_PYTHON, str(feeds).lower())
        try:
            out = exchange(df, by="k", map=same, schema=df.schema)
            explained = " ".join(str(explain(out)).split())
            assert sorted(row.id for row in out.collect()) == list(range(100, ROWS))
        finally:
            comet.conf.set(FEEDS_PYTHON, "true")
        assert ("CometNativeScan" in plan_of(out)) == feeds
        assert ("Comet reads it" in explained) == feeds


def of_types(batches):
    for batch in batches:
        types = str([batch["at"].type, batch["place"].type])
        yield pa.record_batch({"k": batch["k"], "types": [types] * len(batch)})


@pytest.mark.parametrize("role", ["map", "reduce"])
@pytest.mark.parametrize("mode", ["kept", "spark"])
@pytest.mark.usefixtures("reader")
def test_functions_get_times_in_the_zone_of_the_session(comet, files, mode, role):
    df = comet.read.parquet(files).select("k", "at", "place")
    options = {role: of_types, "schema": "k long, types string"}
    rows = exchange(df, by="k", mode=mode, **options).collect()
    time = pa.timestamp("us", tz=ZONE)
    assert {row["types"] for row in rows} == {
        str([time, pa.struct({"x": pa.float64(), "at": time})])
    }


@pytest.mark.usefixtures("reader")
def test_a_chain_that_ends_in_files(comet, files, tmp_path):
    df = comet.read.parquet(files)
    first = exchange(df, by="k", map=same, schema=df.schema)
    second = exchange(first.where("id % 2 = 0"), by="id", reduce=same, schema=df.schema)
    write(second, FileSink(str(tmp_path / "rows"), format="parquet"))
    table = pq.read_table(tmp_path / "rows")
    assert sorted(table["id"].to_pylist()) == list(range(0, ROWS, 2))


def joined(rows, others):
    table = others.read_all()
    names = dict(zip(table["k"].to_pylist(), table["name"].to_pylist(), strict=True))
    for batch in rows:
        yield pa.record_batch(
            {"id": batch["id"], "name": [names[k] for k in batch["k"].to_pylist()]}
        )


@pytest.mark.parametrize("is_broadcast", [True, False])
@pytest.mark.usefixtures("reader")
def test_two_inputs(comet, files, is_broadcast):
    df = comet.read.parquet(files).select("id", "k")
    small = comet.range(KEYS).selectExpr("id AS k", "concat('n', id) AS name")
    other = Input(small, broadcast=True) if is_broadcast else small
    by = {} if is_broadcast else {"by": "k"}
    out = exchange([df, other], **by, reduce=joined, schema="id long, name string")
    assert sorted(map(tuple, out.collect())) == [(n, f"n{n % KEYS}") for n in range(ROWS)]


@in_executors
def test_rows_are_not_placed_by_their_order_where_no_shuffle_compares_them(comet, files):
    df = comet.read.parquet(files)
    for by in (None, lambda batch: [0] * batch.num_rows):
        with pytest.raises(NotBuiltError, match=r"spark\.shuffle\.manager"):
            exchange(df, by=by, mode="kept")
    in_turn = exchange(df, by=None, num_partitions=3, mode="auto")
    assert as_python(in_turn.toArrow()) == EXPECTED
