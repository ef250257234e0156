"""writeStream.format("headgate") writes each row once, also if batches repeat and commits die."""

import json
import sys

import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import DataSource

# The Python processes of Spark cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS = 20


class Writing(DataSource):
    """A data source with only Headgate's stream writer."""

    @classmethod
    def name(cls):
        return "headgate_writing"

    def streamWriter(self, schema, overwrite):  # noqa: N802 - Spark's name
        from headgate.spark.datasource.writer import stream_writer

        return stream_writer(self.options, schema, overwrite)


class Dying(Writing):
    """The process that commits batch 1 dies once, at the step that the path's name gives."""

    @classmethod
    def name(cls):
        return "headgate_dying"

    def streamWriter(self, schema, overwrite):  # noqa: N802 - Spark's name
        import os
        from pathlib import Path

        writer = super().streamWriter(schema, overwrite)
        path = self.options["path"]
        commit = writer.commit

        def die(*args, **kwargs):
            os._exit(9)

        def dying(messages, batchId):  # noqa: N803 - Spark's name
            from headgate.sink import journal, stream_committer
            from headgate.sink.storage import Storage

            flag = f"{path}.died"
            if batchId == 1 and not Path(flag).exists():
                os.close(os.open(flag, os.O_CREAT))
                step = Path(path).name
                if step == "before-the-journal":
                    journal.write = die
                elif step == "after-the-journal":
                    Storage.move_new = _after(Storage.move_new, "_commit.json", die)
                elif step == "between-the-files":
                    Storage.move = _after(Storage.move, ".parquet", die)
                elif step == "before-the-cleaning":
                    stream_committer.StreamCommitter._clean = die
                else:
                    real, writer.commit = commit, die
                    real(messages, batchId)
                    die()
            commit(messages, batchId)

        if path != "fine":
            writer.commit = dying
        return writer


def _after(real, ending, die):
    def move(self, source, target):
        real(self, source, target)
        if target.endswith(ending):
            die()

    return move


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    return tmp_path


def add(folder, number):
    lines = (json.dumps({"n": n}) for n in range(number * ROWS, (number + 1) * ROWS))
    (folder / "in" / f"{number}.json").write_text("\n".join(lines))


def start(spark, folder, kind, out, **options):
    files = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1)
    df = files.json(str(folder / "in")).repartition(2)
    writer = df.writeStream.format(kind).options(**options)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(availableNow=True).start(str(out))


def found(spark, out):
    return sorted(row.n for row in spark.read.parquet(str(out)).collect())


def staged(out):
    return [p for p in out.rglob("*") if "_staging" in p.parts or p.suffix == ".partial"]


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


@pytest.mark.parametrize(
    "step",
    [
        "before-the-journal",
        "after-the-journal",
        "between-the-files",
        "before-the-cleaning",
        "after-the-commit",
    ],
)
def test_a_commit_that_dies_is_completed_or_repeated(spark, folder, step):
    spark.dataSource.register(Dying)
    out = folder / step
    for number in range(3):
        add(folder, number)
    query = start(spark, folder, "headgate_dying", out)
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(60)
    assert (folder / f"{step}.died").exists()
    start(spark, folder, "headgate_dying", out).awaitTermination(60)
    assert found(spark, out) == list(range(3 * ROWS))
    assert staged(out) == []


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
