"""A streaming query over a growing folder: its limits, its offsets and its bad options."""

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs Spark 4.2")

from pyspark.errors import StreamingQueryException
from tests.kit.number_stream import ROWS, Folder, stream, sunk


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


@pytest.mark.soak
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


@pytest.mark.soak
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
