"""Files in order of time through windows: none of their rows is late, and rows that really are late are counted."""

from __future__ import annotations

import random
from datetime import timedelta

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.sink import FunctionSink
from headgate.source import FileSource, WatermarkStrategy
from headgate.stream import Aggregate, TumblingWindow, stream

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


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_a_replay_of_files_in_order_of_time_has_no_late_row(folder, parallelism):
    found, late = [], []
    counted = windows(FileSource(folder, split_size=5000))
    counted.side_output("late").sink(FunctionSink(late.append))
    counted.sink(FunctionSink(found.append)).run(parallelism=parallelism)
    assert late == []
    wanted = duckdb.sql(
        f"""select user, date_trunc('minute', moment) as minute, count(*) as clicks
        from read_parquet('{folder}/*.parquet') group by all order by all"""
    ).fetchall()
    table = pa.Table.from_batches(found).select(["user", "window_start", "clicks"])
    assert sorted(zip(*table.to_pydict().values(), strict=True)) == wanted
