"""A DataFrame as the input of a stream and as its result: against Python, run again, killed, changed and empty."""

import datetime as dt
import signal
import subprocess
import sys
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from scripts.page_blocks import ROOT, blocks
from tests.kit.waiting import wait_until

from headgate import errors
from headgate.sink import FileSink
from headgate.source import RateSource
from headgate.spark import calls
from headgate.spark.streams.records import Record
from headgate.stream import DataStream, stream
from headgate.testing import Service

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

COLUMNS = (
    "id long, name string, price decimal(10,2), at timestamp, day date, marks array<int>, "
    "tags map<string,double>, place struct<x:int,y:string>, raw binary"
)
NOON = dt.datetime(2024, 3, 31, 12, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30)))
VALUES = [
    (0, "a", Decimal("1.50"), NOON, dt.date(2024, 2, 29), [1, None], {"k": 0.5}, (1, "x"), b"\0"),
    (1, None, None, None, None, None, None, None, None),
    (2, "", Decimal("-0.01"), dt.datetime(2021, 1, 1, tzinfo=dt.UTC), None, [], {}, (None, None), b""),
]  # fmt: skip
NAMES = [column.split()[0] for column in COLUMNS.split(", ")]


class Noted:
    """A function of a row that leaves a file for each of its calls."""

    def __init__(self, folder):
        self.folder = folder / "calls"
        self.folder.mkdir(exist_ok=True)

    def __call__(self, row, context):
        (self.folder / context.call_id).touch()
        return doubled(row)

    def number(self):
        return len(list(self.folder.iterdir()))


def doubled(row):
    """Return a row with some new values, and all others as they came."""
    price, marks = row.get("price"), row.get("marks")
    return {
        **row,
        "id": 2 * row["id"],
        "price": price and price * 2,
        "marks": marks and [*marks, 7],
    }


def as_rows(values=VALUES):
    """Return what Python has for rows of Spark, as dicts."""
    rows = [dict(zip(NAMES, value, strict=True)) for value in values]
    for row in rows:
        row["place"] = row["place"] and dict(zip("xy", row["place"], strict=True))
        row["tags"] = row["tags"] if row["tags"] is None else list(row["tags"].items())
    return rows


def same(row):
    return row


def by_id(df):
    return sorted(df.toArrow().to_pylist(), key=lambda row: row["id"])


def written(spark, folder, values=VALUES):
    """Return a DataFrame that is a scan of Parquet files."""
    spark.createDataFrame(values, COLUMNS).coalesce(1).write.parquet(str(folder))
    return spark.read.parquet(str(folder))


@pytest.mark.parametrize("is_scan", [True, False])
@pytest.mark.parametrize("parallelism", [pytest.param(1, marks=pytest.mark.soak), 3])
def test_results_are_those_of_a_loop_in_python(spark, tmp_path, is_scan, parallelism):
    df = written(spark, tmp_path / "in") if is_scan else spark.createDataFrame(VALUES, COLUMNS)
    line = {"schema": df.schema, "checkpoint": str(tmp_path / "job"), "parallelism": parallelism}
    noted = Noted(tmp_path)
    results = calls(df, noted, **line)
    assert by_id(results) == [doubled(row) for row in as_rows()]
    assert [(f.name, f.dataType) for f in results.schema] == [
        (f.name, f.dataType) for f in df.schema
    ]
    assert (tmp_path / "job/frames/input-source-1").exists() is not is_scan
    again = calls(df, noted, **line)
    assert (by_id(again), noted.number()) == (by_id(results), len(VALUES))
    assert again.inputFiles() == results.inputFiles()


#: Types of streams that Spark has not, or under another name.
ODD = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.uint8()),
        ("large", pa.uint64()),
        ("half", pa.float16()),
        ("at", pa.timestamp("ns", "Europe/Berlin")),
        ("wall", pa.timestamp("s")),
        ("took", pa.duration("ms")),
        ("text", pa.large_string()),
        ("code", pa.dictionary(pa.int32(), pa.string())),
        ("parts", pa.struct([("n", pa.uint16()), ("at", pa.timestamp("ns"))])),
    ]
)


@pytest.mark.soak
def test_types_that_spark_lacks_become_those_that_it_reads(spark, tmp_path):
    row = {
        "id": 1,
        "small": 255,
        "large": 2**64 - 1,
        "half": 0.5,
        "at": NOON,
        "wall": dt.datetime(2024, 1, 1),  # noqa: DTZ001 - a wall clock
        "took": dt.timedelta(seconds=2),
        "text": "ü",
        "code": "x",
    }
    columns = pa.schema([field for field in ODD if field.name != "parts"])
    results = calls(
        spark.range(1), lambda _row: row, schema=columns, checkpoint=str(tmp_path / "job")
    )
    (have,) = results.toArrow().to_pylist()
    assert have == {**row, "large": Decimal(2**64 - 1)}
    with pytest.raises(errors.UnsupportedTypeError, match="parts"):
        calls(spark.range(1), doubled, schema=ODD, checkpoint=str(tmp_path / "other"))


EMPTY = {
    "no partition": lambda spark, _: spark.createDataFrame(spark.sparkContext.emptyRDD(), COLUMNS),
    "no row": lambda spark, _: spark.createDataFrame(VALUES, COLUMNS).where("id > 9"),
    "no row of a file": lambda spark, folder: written(spark, folder / "in").where("id > 9"),
    "a file without rows": lambda spark, folder: written(spark, folder / "in", []),
}


@pytest.mark.parametrize("kind", EMPTY)
def test_no_rows_are_no_calls(spark, tmp_path, kind):
    df = EMPTY[kind](spark, tmp_path)
    for _ in range(2):
        results = calls(df, doubled, schema=COLUMNS, checkpoint=str(tmp_path / "job"))
        assert (results.collect(), results.columns) == ([], NAMES)


def test_a_zone_of_the_session_changes_no_instant(spark, tmp_path):
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        for name in ("Asia/Kolkata", "America/New_York"):
            spark.conf.set("spark.sql.session.timeZone", name)
            df = spark.createDataFrame([(1, NOON)], "id long, at timestamp")
            results = calls(df, same, schema=df.schema, checkpoint=str(tmp_path / "job"))
            assert by_id(results) == [{"id": 1, "at": NOON}]
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


ROWS = 400
IN_FLIGHT = 8
#: The lines that the killed driver runs, and that run again here.
PROGRAM = """
from urllib.request import Request, urlopen

def ask(row):
    with urlopen(Request(URL, b"", {{"Idempotency-Key": str(row["id"])}})) as answer:
        answer.read()
    return {{"id": row["id"], "text": f"t{{row['id']}}"}}

URL = {url!r}
line = dict(schema="id long, text string", in_flight={in_flight}, interval=60, memo="id", checkpoint={job!r})
"""
DRIVER = """
from headgate.spark import calls
from tests.kit import sessions
from pathlib import Path
spark = sessions.builder("local[2]", "killed", Path({folder!r})).getOrCreate()
calls(spark.read.parquet({rows!r}), ask, **line)
"""


def test_a_killed_driver_pays_again_only_for_what_was_in_the_air(spark, tmp_path):
    spark.range(ROWS).write.parquet(str(tmp_path / "in"))
    facts = {
        "in_flight": IN_FLIGHT,
        "job": str(tmp_path / "job"),
        "rows": str(tmp_path / "in"),
        "folder": str(tmp_path),
    }
    with Service(latency=0.02) as service:
        program = PROGRAM.format(url=service.url, **facts)
        code = program + DRIVER.format(**facts)
        driver = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: service.ledger().num_rows > ROWS // 3, "a third is called", 120)
        finally:
            driver.send_signal(signal.SIGKILL)
            driver.wait()
        names = {"__name__": "__main__"}
        exec(program, names)
        df = spark.read.parquet(str(tmp_path / "in"))
        results = by_id(calls(df, names["ask"], **names["line"]))
        assert results == [{"id": at, "text": f"t{at}"} for at in range(ROWS)]
        paid = sum(service.ledger()["paid"].to_pylist())
        assert ROWS <= paid <= ROWS + IN_FLIGHT
        assert by_id(calls(df, names["ask"], **names["line"])) == results
        assert sum(service.ledger()["paid"].to_pylist()) == paid


def _with_a_file(spark, folder):
    written(spark, folder / "more", [(9, *VALUES[1][1:])])
    (file,) = (folder / "more").glob("*.parquet")
    file.rename(folder / "in" / file.name)
    return spark.read.parquet(str(folder / "in"))


def _with_a_new_file(spark, folder):
    (file,) = (folder / "in").glob("*.parquet")
    file.write_bytes(file.read_bytes())
    return spark.read.parquet(str(folder / "in"))


def _with_a_filter(spark, folder):
    return spark.read.parquet(str(folder / "in")).where("id < 2")


@pytest.mark.parametrize("change", [_with_a_file, _with_a_new_file, _with_a_filter])
@pytest.mark.parametrize("is_scan", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_another_input_is_refused(spark, tmp_path, change, is_scan):
    def line(df, **options):
        df = df if is_scan else df.repartition(1)
        checkpoint = str(tmp_path / "job")
        return calls(df, doubled, schema=df.schema, checkpoint=checkpoint, **options)

    first = by_id(line(written(spark, tmp_path / "in")))
    changed = change(spark, tmp_path)
    with pytest.raises(errors.CheckpointError, match="is not the one that the job of") as caught:
        line(changed)
    assert "another folder" in caught.value.remedy
    if not is_scan or change is _with_a_filter:
        assert "restore=" in caught.value.remedy
        assert by_id(line(changed, restore="latest")) == first
    else:
        with pytest.raises(errors.CheckpointError, match="its files are others"):
            line(changed, restore="latest")


def test_rows_of_the_program_are_compared(spark, tmp_path):
    def line(*rows, columns="id long"):
        df = spark.createDataFrame([(row,) for row in rows], columns)
        return calls(df, same, schema="id long", checkpoint=str(tmp_path / "job"))

    assert by_id(line(1, 2)) == by_id(line(2, 1))
    for rows in [(1,), (1, 3), (1, 2, 2)]:
        with pytest.raises(errors.CheckpointError, match="its rows are others"):
            line(*rows)
    with pytest.raises(errors.CheckpointError, match="it has other columns"):
        line(1, 2, columns="id int")


def test_results_with_other_columns_are_refused(spark, tmp_path):
    df, checkpoint = spark.range(2), str(tmp_path / "job")
    calls(df, same, schema="id long", checkpoint=checkpoint)
    with pytest.raises(errors.CheckpointError, match="have other columns"):
        calls(df, same, schema="id int", checkpoint=checkpoint)


def test_rows_that_were_not_written_to_the_end_do_not_count(spark, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    df, checkpoint = spark.range(5), str(tmp_path / "job")
    with monkeypatch.context() as patch:
        patch.setattr(Record, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            stream(df).to_dataframe(spark, checkpoint=checkpoint)
    with monkeypatch.context() as patch:
        # Another time the rows are there, and the record is not.
        writes = []
        patch.setattr(Record, "write", lambda *_: writes.append(1) if not writes else interrupted())
        with pytest.raises(KeyboardInterrupt):
            stream(df).to_dataframe(spark, checkpoint=checkpoint)
    assert by_id(stream(df).to_dataframe(spark, checkpoint=checkpoint)) == [
        {"id": n} for n in range(5)
    ]


class FailsAt:
    """A function that fails at a row until a file is there."""

    def __init__(self, at, file):
        self.at, self.file = at, file

    def __call__(self, row):
        if row["id"] == self.at and not self.file.exists():
            raise RuntimeError("the service is down")
        return row


def test_a_job_that_failed_runs_again_with_its_other_sinks(spark, tmp_path):
    numbers = stream(spark.range(50))
    sent = numbers.map_async(
        FailsAt(30, tmp_path / "never"), schema=numbers.schema, retries=0, on_error="side_output"
    )
    sent.side_output("errors").sink(FileSink(str(tmp_path / "errors")))
    checked = sent.map_async(FailsAt(40, tmp_path / "up"), schema=numbers.schema, retries=0)
    line = {"checkpoint": str(tmp_path / "job"), "restarts": 0}
    with pytest.raises(errors.HeadgateError, match="the service is down"):
        checked.to_dataframe(spark, **line)
    (tmp_path / "up").touch()
    rows = by_id(checked.to_dataframe(spark, **line))
    assert rows == [{"id": n} for n in range(50) if n != 30]
    assert pq.read_table(tmp_path / "errors")["id"].to_pylist() == [30]


def test_a_job_of_this_machine_reads_a_dataframe(spark, tmp_path):
    df = written(spark, tmp_path / "in")
    out = FileSink(str(tmp_path / "out"))
    stream(df).sink(out).run(workers=2)
    assert pq.read_table(tmp_path / "out").num_rows == len(VALUES)
    job = stream(spark.range(5)).sink(FileSink(str(tmp_path / "more")))
    with pytest.raises(errors.OptionError, match="written once, below the checkpoint"):
        job.run()
    job.run(checkpoint=str(tmp_path / "job"), workers=2)
    assert sorted(pq.read_table(tmp_path / "more")["id"].to_pylist()) == [*range(5)]


def test_a_folder_with_the_signs_of_patterns(spark, tmp_path):
    checkpoint = str(tmp_path / "a [b]* {c}?")
    assert by_id(stream(spark.range(2)).to_dataframe(spark, checkpoint=checkpoint)) == [
        {"id": 0},
        {"id": 1},
    ]


def test_the_program_of_the_page_prints_what_it_says(spark, tmp_path, monkeypatch, capsys):
    page = blocks((ROOT / "docs/stream-calls.md").read_text(encoding="utf-8"))
    (at,) = (n for n, block in enumerate(page) if "test_stream_frames.py runs it" in block.mark)
    monkeypatch.chdir(tmp_path)
    exec(page[at].code, {"__name__": "__main__", "spark": spark})
    assert capsys.readouterr().out == page[at + 1].code


SCHEMA = {"schema": "id long"}
WRONG = {
    "an option that is none": ({"in_fligth": 3}, "in_flight="),
    "an option of neither": ({"qqq": 3}, "leave qqq out"),
    "a side output": ({"on_error": "side_output"}, 'on_error="null"'),
    "a schema that is none": ({"schema": 3}, "schema="),
    "a rate": ({"rate": "fast"}, "500/s"),
    "a checkpoint": ({"checkpoint": 3}, "a folder or a URI"),
    "a parallelism": ({"parallelism": 0}, "a whole number from 1"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_bad_values(spark, tmp_path, kind):
    options, remedy = WRONG[kind]
    with pytest.raises(errors.OptionError) as caught:
        calls(spark.range(2), same, **{**SCHEMA, "checkpoint": str(tmp_path / "job"), **options})
    assert remedy in caught.value.remedy
    assert caught.value.code
    assert not (tmp_path / "job").exists()


def test_what_is_no_dataframe_that_ends(spark, tmp_path):
    checkpoint = str(tmp_path / "job")
    rates = spark.readStream.format("rate").load()
    with pytest.raises(errors.OptionError, match="is streaming"):
        stream(rates)
    with pytest.raises(errors.OptionError, match="source="):
        calls(pa.table({"id": [1]}), same, schema="id long", checkpoint=checkpoint)
    interval = spark.sql("select make_interval(1) as i")
    with pytest.raises(errors.UnsupportedTypeError, match="interval"):
        stream(interval)
    endless: DataStream = stream(RateSource(10))
    with pytest.raises(errors.StreamError, match="never ends"):
        endless.to_dataframe(spark, checkpoint=checkpoint)
    with pytest.raises(errors.OptionError, match="no option"):
        endless.to_dataframe(spark, checkpoint=checkpoint, in_flight=3)
    with pytest.raises(errors.OptionError, match="spark="):
        endless.to_dataframe(None, checkpoint=checkpoint)
    twice = stream(spark.range(2)).map(
        lambda b: b, schema=pa.schema([("a", "int64"), ("A", "int64")])
    )
    with pytest.raises(errors.StreamError, match="two columns"):
        twice.to_dataframe(spark, checkpoint=checkpoint)
