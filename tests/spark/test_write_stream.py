"""writeStream.format("headgate") writes each row once, also if batches repeat."""

import json
import sys

import pytest
from pyspark import cloudpickle
from tests.kit.json_stream import ROWS, Writing, add, found, staged, start

# The Python processes of Spark cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    return tmp_path


@pytest.mark.soak
def test_a_restarted_query_writes_each_row_once(spark, folder):
    spark.dataSource.register(Writing)
    out = folder / "out"
    for last in (1, 3):
        for number in range(last - 1, last + 1):
            add(folder, number)
        start(spark, folder, "headgate_writing", out, maxRowsPerFile="7").awaitTermination(60)
        assert found(spark, out) == list(range((last + 1) * ROWS))
        assert staged(out) == []
    # Simulate a crash of the driver: the sink has the last batch, but Spark's log does not.
    for file in (folder / "checkpoint" / "commits").glob("*3*"):
        file.unlink()
    add(folder, 4)
    start(spark, folder, "headgate_writing", out).awaitTermination(60)
    assert found(spark, out) == list(range(5 * ROWS))
    assert staged(out) == []
    (query,) = (out / "_headgate" / "commits").iterdir()
    assert query.name == json.loads((folder / "checkpoint" / "metadata").read_text())["id"]


def test_a_new_checkpoint_is_a_new_query(spark, folder):
    spark.dataSource.register(Writing)
    add(folder, 0)
    for times in (1, 2):
        start(spark, folder, "headgate_writing", folder / "out").awaitTermination(60)
        assert found(spark, folder / "out") == sorted(list(range(ROWS)) * times)
        (folder / "checkpoint").rename(folder / f"old-{times}")


def test_a_failed_batch_leaves_nothing_and_is_repeated(spark, folder):
    spark.dataSource.register(Writing)
    add(folder, 0)
    flag = folder / "fail"
    flag.touch()

    def fail_once(batches):
        yield from batches
        if flag.exists():
            raise KeyError("not today")

    def run():
        df = spark.readStream.schema("n long").json(str(folder / "in"))
        writer = df.mapInArrow(fail_once, "n long").writeStream.format("headgate_writing")
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        writer.trigger(availableNow=True).start(str(folder / "out")).awaitTermination(60)

    with pytest.raises(Exception, match="not today"):
        run()
    assert staged(folder / "out") == []
    flag.unlink()
    run()
    assert found(spark, folder / "out") == list(range(ROWS))


def test_complete_mode_replaces_everything(spark, folder):
    spark.dataSource.register(Writing)
    for number in range(3):
        add(folder, number)
        df = spark.readStream.schema("n long").json(str(folder / "in"))
        writer = df.groupBy().count().writeStream.format("headgate_writing").outputMode("complete")
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        writer.trigger(availableNow=True).start(str(folder / "out")).awaitTermination(60)
        (row,) = spark.read.parquet(str(folder / "out")).collect()
        assert row["count"] == (number + 1) * ROWS
