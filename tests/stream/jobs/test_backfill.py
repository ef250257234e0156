"""Files in order of time through windows: none of their rows is late, and rows that really are late are counted."""

from __future__ import annotations

import itertools
import random
import threading
from datetime import timedelta

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.kit import stream_jobs

from headgate.observe.metrics import samples
from headgate.observe.runs import RUNS
from headgate.observe.view import view
from headgate.sink import FileSink, FunctionSink
from headgate.source import FileSource, NumberSequenceSource, WatermarkStrategy, read
from headgate.stream import Aggregate, ProcessFunction, TumblingWindow, stream

MINUTE = 60_000
FILES = 60
#: A watermark with each batch: a periodic one, five times a second, would hide much of what is late.
TIMES = WatermarkStrategy.for_punctuated(lambda _, latest: latest - 1).with_timestamp_assigner(
    "moment"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """60 files of a minute each, named by their numbers; their sizes say nothing of their order."""
    folder = tmp_path_factory.mktemp("backfill")
    chance = random.Random(7)
    for number in range(FILES):
        count = chance.randrange(50, 4000)
        at = sorted(chance.randrange(number * MINUTE, (number + 1) * MINUTE) for _ in range(count))
        user = [chance.randrange(5) for _ in range(count)]
        table = pa.table({"user": user, "moment": pa.array(at, pa.timestamp("ms"))})
        pq.write_table(table, folder / f"clicks-{number}.parquet", row_group_size=1000)
    return folder


def windows(source, watermarks=TIMES, lateness=0):
    return (
        stream(source, watermarks=watermarks)
        .key_by("user")
        .window(
            TumblingWindow(timedelta(minutes=1)),
            time="moment",
            aggregates=[Aggregate("count", name="clicks")],
            allowed_lateness=timedelta(milliseconds=lateness),
            name="minutes",
        )
    )


def by_duckdb(folder):
    """Return each user's clicks of each minute."""
    return duckdb.sql(
        f"""select user, date_trunc('minute', moment), count(*)
        from read_parquet('{folder}/*.parquet') group by all order by all"""
    ).fetchall()


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_a_replay_of_files_in_order_of_time_has_no_late_row(folder, parallelism):
    found, late = [], []
    counted = windows(FileSource(folder, split_size=5000))
    counted.side_output("late").sink(FunctionSink(late.append))
    counted.sink(FunctionSink(found.append)).run(parallelism=parallelism)
    assert late == []
    table = pa.Table.from_batches(found).select(["user", "window_start", "clicks"])
    assert sorted(zip(*table.to_pydict().values(), strict=True)) == by_duckdb(folder)


def by_size(folder):
    """Return a source of ten files in the order of their sizes; more of them would be handed out while others are planned."""
    return FileSource(folder / "clicks-?.parquet", split_size=5000, order="size")


def late_by_a_model(source, lateness):
    """Return the number of late rows, batch by batch, if one reader has them all."""
    latest, late = 0, 0
    with read(source, parallelism=1) as batches:
        for batch in batches:
            moments = batch["moment"].cast(pa.int64()).to_pylist()
            ends = [moment // MINUTE * MINUTE + MINUTE for moment in moments]
            late += sum(end - 1 + lateness <= latest - 1 for end in ends)
            latest = max(latest, *moments)
    return late


@pytest.mark.parametrize("lateness", [0, 2 * MINUTE])
def test_late_rows_are_counted_everywhere_and_logged_once(folder, lateness, caplog):
    source = by_size(folder)
    found = []
    job = windows(source, lateness=lateness).sink(FunctionSink(found.append))
    with caplog.at_level("INFO", "headgate.stream"):
        query = job.start(name=f"late-{lateness}")
        query.await_termination()
    wanted = late_by_a_model(source, lateness)
    assert wanted > 1000
    status = query.status
    assert status.dropped == {"minutes": {"numLateRecordsDropped": wanted}}
    assert [f"minutes: {wanted:,} rows came too late" in one for one in status.notices] == [True]
    (logged,) = [one for one in caplog.records if "too late" in one.message]
    assert logged.levelname == "WARNING"
    assert "allowed_lateness=" in logged.message
    (run,) = [run for run in RUNS.state()["runs"] if run["name"] == f"late-{lateness}"]
    causes = view({"runs": [run]})["run"]["causes"]
    assert any(f"{wanted:,} rows came too late" in cause for cause in causes)
    series = samples({"runs": [{**run, "state": "running"}]})
    labels = (f"late-{lateness}", "minutes")
    assert series["headgate_num_late_records_dropped_total"] == [(labels, wanted)]


def test_rows_that_a_side_output_takes_are_not_dropped(folder):
    taken, found = [], []
    counted = windows(by_size(folder))
    counted.side_output("late").sink(FunctionSink(taken.append))
    query = counted.sink(FunctionSink(found.append)).start()
    query.await_termination()
    assert sum(batch.num_rows for batch in taken) == late_by_a_model(by_size(folder), 0)
    assert query.status.dropped == {}


class Both(ProcessFunction):
    def process(self, batch, context):
        context.emit(batch, output="unread")
        context.emit(batch, output="read")
        return batch


def test_rows_of_an_output_that_nothing_reads_are_counted():
    numbers = stream(NumberSequenceSource(0, 1000))
    outputs = {"unread": numbers.schema, "read": numbers.schema}
    both = numbers.process(Both, schema=numbers.schema, side_outputs=outputs, name="both")
    found = []
    query = both.side_output("read").sink(FunctionSink(found.append)).start()
    query.await_termination()
    assert sum(batch.num_rows for batch in found) == 1000
    assert query.status.dropped == {"both": {"numUnreadRecords": 2000}}


def test_a_replay_that_is_stopped_and_goes_on_with_other_readers_has_no_late_row(folder, tmp_path):
    checkpoint, out = str(tmp_path / "checkpoints"), tmp_path / "out"
    at_rest = threading.Event()
    passed = itertools.count(1)

    def slowly(batch):
        # Few batches pass soon; the others last until the job is told to stop, so that a part of them is left.
        at_rest.wait(0.002 if next(passed) <= 15 else 0.1)
        return batch

    for parallelism in (3, 1, 5, 2):
        rows = stream(FileSource(folder, split_size=5000), watermarks=TIMES, name="clicks")
        counted = (
            rows.map(slowly, name="slowly")
            .key_by("user")
            .window(
                TumblingWindow(timedelta(minutes=1)),
                time="moment",
                aggregates=[Aggregate("count", name="clicks")],
                name="minutes",
            )
        )
        job = counted.sink(FileSink(str(out), mode="append"), name="files")
        passed = itertools.count(1)
        if parallelism == 2:
            at_rest.set()
        query = job.start(checkpoint=checkpoint, interval="20ms", parallelism=parallelism)
        if parallelism != 2:
            stream_jobs.wait_for_a_checkpoint(query)
            query.stop()
        query.await_termination()
        assert query.status.dropped == {}
    found = stream_jobs.rows_of(out).select(["user", "window_start", "clicks"])
    assert sorted(zip(*found.to_pydict().values(), strict=True)) == by_duckdb(folder)
