"""A streaming query over a growing folder, stopped and started again: each row exactly once."""

import json
import random
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs Spark 4.2")

from pyspark.errors import StreamingQueryException
from tests.spark.outcomes import rounds

#: Rows of each file.
ROWS = 50


class Folder:
    """A folder to which complete files of 50 consecutive numbers are added."""

    def __init__(self, path):
        self.path = path
        self.files = 0
        path.mkdir()

    def add(self):
        ids = range(self.files * ROWS, (self.files + 1) * ROWS)
        staged = self.path / f"_{self.files}.tmp"
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), staged)
        staged.rename(self.path / f"{self.files:04}.parquet")
        self.files += 1


def stream(spark, folder, **options):
    reader = spark.readStream.format("headgate").option("discoveryInterval", "100ms")
    reader = reader.option("maxPartitions", "4")
    return reader.options(**options).load(str(folder.path))


def sunk(spark, sink):
    return sorted(row.id for row in spark.read.parquet(str(sink)).collect())


def wait_until(condition, what, query=None, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if query is not None and query.exception() is not None:
            raise query.exception()
        assert time.monotonic() < end, what
        time.sleep(0.02)


@pytest.mark.timeout(400)  # each start of the query starts four Python processes
@pytest.mark.parametrize("sink", ["parquet", "headgate"])
def test_restarts_at_random_points_lose_and_repeat_nothing(spark, tmp_path, sink):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    folder = Folder(tmp_path / "in")
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    stop = threading.Event()

    def keep_adding():
        while not stop.wait(0.1):
            folder.add()

    def start(splits, **trigger):
        writer = stream(spark, folder, maxSplitsPerTrigger=splits).writeStream.format(sink)
        writer = writer.option("checkpointLocation", str(checkpoint)).option("path", str(out))
        return writer.trigger(**trigger).start()

    folder.add()
    adding = threading.Thread(target=keep_adding)
    adding.start()
    try:
        for _ in range(rounds(4, 10)):
            query = start("3", processingTime="0 seconds")
            before = len(list((checkpoint / "commits").glob("[0-9]*")))
            done = before + dice.randrange(3)
            wait_until(
                lambda: len(list((checkpoint / "commits").glob("[0-9]*"))) >= done,  # noqa: B023
                "a batch is committed",
                query,
            )
            time.sleep(dice.random() * 0.3)
            query.stop()
    finally:
        stop.set()
        adding.join()
    # Read the backlog, which may be hundreds of files.
    query = start("1000", availableNow=True)
    assert query.awaitTermination(60)
    assert sunk(spark, out) == list(range(folder.files * ROWS))


def test_max_splits_per_trigger_limits_each_batch(spark, tmp_path):
    folder = Folder(tmp_path / "in")
    for _ in range(5):
        folder.add()
    query = (
        stream(spark, folder, maxSplitsPerTrigger="2")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    assert query.awaitTermination(60)
    counts = [p["numInputRows"] for p in map(json.loads, map(str_of, query.recentProgress))]
    assert [count for count in counts if count] == [2 * ROWS, 2 * ROWS, ROWS]
    assert sunk(spark, tmp_path / "out") == list(range(5 * ROWS))


def str_of(progress):
    return progress.json if hasattr(progress, "json") else json.dumps(progress)


def test_a_bounded_source_is_read_once(spark, tmp_path):
    reader = spark.readStream.format("headgate").option("source", "numbers")
    query = (
        reader.options(start="0", end="1000")
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    assert query.awaitTermination(60)
    assert sunk(spark, tmp_path / "out") == list(range(1000))


def test_a_checkpoint_of_another_version_is_refused(spark, tmp_path):
    folder = Folder(tmp_path / "in")
    folder.add()

    def run():
        query = (
            stream(spark, folder)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        return query.awaitTermination(60)

    assert run()
    offset = max(Path(tmp_path / "checkpoint" / "offsets").glob("[0-9]*"))
    lines = offset.read_text().splitlines()
    offset.write_text("\n".join([*lines[:-1], json.dumps({"version": 9})]))
    (offset.parent / f".{offset.name}.crc").unlink()
    folder.add()
    with pytest.raises(StreamingQueryException, match="HG-4006"):
        run()


@pytest.mark.parametrize("limit", ["0", "-1", "many"])
def test_an_invalid_limit_is_refused(spark, tmp_path, limit):
    folder = Folder(tmp_path / "in")
    folder.add()
    query = (
        stream(spark, folder, maxSplitsPerTrigger=limit)
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    with pytest.raises(StreamingQueryException, match=r"HG-1001[\s\S]*maxSplitsPerTrigger"):
        query.start().awaitTermination(60)
