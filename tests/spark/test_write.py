"""write() and df.write make all rows visible or none, also if tasks fail or are killed."""

import os
import signal
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark import cloudpickle
from pyspark.sql.types import StructType
from tests.kit.masters import compares_rows

from headgate.errors import OptionError, SinkError, UnknownColumnError
from headgate.sink import FileSink
from headgate.spark import write
from headgate.spark.datasource.writer import batch_writer

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class SinkThatKills(FileSink):
    """The first writer of task 1 kills its process after a batch; later attempts do not."""

    def create_writer(self, context, schema=None, **options):
        writer = super().create_writer(context, schema, **options)
        real, flag = writer.write, f"{self.path}.killed"

        def once(batch):
            real(batch)
            if context.index == 1 and _first(flag):
                os.kill(os.getpid(), signal.SIGKILL)

        writer.write = once
        return writer


def _first(flag):
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


@pytest.fixture
def numbers(spark):
    """2,000 rows in 3 partitions: id, a key of 10 values, a string."""
    return spark.range(0, 2_000, 1, 3).selectExpr("id", "id % 10 as k", "concat('row ', id) as s")


def read(spark, path):
    return sorted(tuple(row) for row in spark.read.parquet(str(path)).collect())


def rows_of(df):
    return sorted(tuple(row) for row in df.collect())


def hidden(path):
    """Return the staged files that are left."""
    return [file for file in path.rglob("_*") if file.name != "_SUCCESS"]


def is_local(spark):
    return spark.sparkContext.master.startswith("local[")


def test_a_dataframe_is_written_by_its_tasks(spark, numbers, tmp_path):
    wide = numbers.selectExpr("*", "array(id, k) as a", "timestamp_millis(id) as t", "null as v")
    wide = wide.withColumn("v", wide.v.cast("decimal(9,2)"))
    result = write(wide, FileSink(tmp_path / "out"))
    assert (result.rows, len(result.files)) == (2_000, 3)
    assert spark.read.parquet(str(tmp_path / "out")).dtypes == wide.dtypes
    assert read(spark, tmp_path / "out") == rows_of(wide)
    assert hidden(tmp_path) == []


HALVED = "k long, id long"


def halve(batches):
    for batch in batches:
        yield batch.slice(0, batch.num_rows // 2).select(["k", "id"])


def halved_by_spark(df):
    return df.mapInArrow(halve, HALVED)


def test_an_exchange_is_written_by_its_consumers(spark, numbers, tmp_path):
    result = write(numbers, FileSink(tmp_path / "by"), by="k", num_partitions=2)
    assert (result.rows, len(result.files)) == (2_000, 2)
    assert read(spark, tmp_path / "by") == rows_of(numbers)
    keys = [set(parquet.read_table(tmp_path / "by" / f)["k"].to_pylist()) for f in result.files]
    assert not keys[0] & keys[1]

    def count(batches):
        # int32, which is cast to the long of the schema.
        yield pa.record_batch({"n": pa.array([sum(b.num_rows for b in batches)], pa.int32())})

    options = {"map_schema": HALVED, "schema": "n long", "num_partitions": 3}
    sink = FileSink(tmp_path / "both", format="arrow")
    result = write(numbers, sink, by="k", map=halve, reduce=count, **options)
    assert result.rows == 3
    tables = [pa.ipc.open_file(tmp_path / "both" / f).read_all() for f in result.files]
    assert tables[0].schema == pa.schema([("n", pa.int64())])
    assert sum(t["n"][0].as_py() for t in tables) == halved_by_spark(numbers).count()
    assert hidden(tmp_path) == []


@compares_rows
def test_an_exchange_without_keys_is_written_by_its_consumers(spark, numbers, tmp_path):
    write(numbers, FileSink(tmp_path), map=halve, schema=HALVED, num_partitions=2)
    assert read(spark, tmp_path) == rows_of(halved_by_spark(numbers))
    assert hidden(tmp_path) == []


@compares_rows
def test_a_source_is_written_without_a_dataframe(spark, tmp_path):
    from headgate.source import NumberSequenceSource

    source = NumberSequenceSource(0, 1000)
    result = write(source, FileSink(tmp_path / "out"), spark=spark, num_partitions=2)
    assert result.rows == 1000
    assert [row[0] for row in read(spark, tmp_path / "out")] == list(range(1000))


def test_an_empty_result_keeps_its_columns(spark, numbers, tmp_path):
    for name, df, more in (
        ("limit", numbers.limit(0), {}),
        ("where", numbers.where("id < 0"), {}),
        ("exchange", numbers.where("id < 0"), {"by": "k", "num_partitions": 2}),
    ):
        result = write(df, FileSink(tmp_path / name), **more)
        assert (result.rows, len(result.files)) == (0, 1)
        assert spark.read.parquet(str(tmp_path / name)).dtypes == numbers.dtypes


def test_modes(spark, numbers, tmp_path):
    out = tmp_path / "out"
    few = numbers.where("id < 10")
    write(few, FileSink(out))
    jobs = len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))
    with pytest.raises(SinkError, match="holds data already"):
        write(few, FileSink(out))
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(None)) == jobs
    write(few, FileSink(out, mode="append"), by="k", num_partitions=1)
    assert read(spark, out) == sorted(rows_of(few) * 2)
    write(numbers, FileSink(out, mode="overwrite"))
    assert read(spark, out) == rows_of(numbers)
    assert hidden(tmp_path) == []


@pytest.mark.parametrize("way", ["reduce", "alone"])
def test_a_failing_function_leaves_nothing(spark, numbers, tmp_path, way):
    def fail(batches):
        yield from batches
        raise KeyError("not today")

    sink = FileSink(tmp_path / "deep" / "out", max_rows_per_file=100)
    df, how = numbers, {"by": "k", "num_partitions": 2, way: fail, "schema": numbers.schema}
    if way == "alone":
        df, how = numbers.mapInArrow(fail, numbers.schema), {}
    with pytest.raises(Exception, match="not today") as caught:
        write(df, sink, **how)
    assert type(caught.value).__module__.startswith("pyspark"), "the action's own error"
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_sink_in_a_task_reaches_the_action(spark, numbers, tmp_path):
    def strings(batches):
        yield pa.record_batch({"n": ["no number"] * sum(b.num_rows for b in batches)})

    sink = FileSink(tmp_path / "out")
    with pytest.raises(Exception, match="which is declared int64"):
        write(numbers, sink, by="k", reduce=strings, schema="n long", num_partitions=2)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_writer_is_retried_or_the_job_leaves_nothing(spark, numbers, tmp_path):
    sink = SinkThatKills(tmp_path / "out")
    if is_local(spark):
        with pytest.raises(Exception, match="Python worker"):
            write(numbers, sink)
        assert [p.name for p in tmp_path.iterdir()] == ["out.killed"]
    else:
        assert write(numbers, sink).rows == 2_000
        assert read(spark, tmp_path / "out") == rows_of(numbers)
        assert (tmp_path / "out.killed").exists()
    assert hidden(tmp_path) == []


def test_a_killed_consumer_is_retried_or_the_job_leaves_nothing(spark, numbers, tmp_path):
    sink = SinkThatKills(tmp_path / "out")
    if is_local(spark):
        with pytest.raises(Exception, match=r"HG-3001|Python worker"):
            write(numbers, sink, by="k", num_partitions=2)
        assert [p.name for p in tmp_path.iterdir()] == ["out.killed"]
    else:
        assert write(numbers, sink, by="k", num_partitions=2).rows == 2_000
        assert read(spark, tmp_path / "out") == rows_of(numbers)
    assert hidden(tmp_path) == []


def test_bad_arguments_are_refused_before_a_job_starts(spark, numbers, tmp_path):
    sink = FileSink(tmp_path / "out")
    with pytest.raises(OptionError, match="memroy"):
        write(numbers, sink, memroy="1m")
    with pytest.raises(OptionError, match="parallelism"):
        write(numbers, sink, parallelism=2)
    with pytest.raises(UnknownColumnError, match="kk"):
        write(numbers, sink, by="kk")
    with pytest.raises(OptionError, match="not a DataFrame of Spark or a source"):
        write([1, 2], sink, spark=spark)
    with pytest.raises(OptionError, match="another session"):
        write(numbers, sink, spark=spark.newSession())
    assert write(numbers.limit(3), sink, spark=spark).rows == 3


@pytest.mark.soak
def test_the_format_headgate_appends_and_overwrites(spark, numbers, tmp_path):
    out = tmp_path / "out"
    few = numbers.where("id < 500")
    few.write.format("headgate").mode("append").option("maxRowsPerFile", "50").save(str(out))
    assert len(list(out.glob("part-*.parquet"))) == 10
    numbers.write.format("headgate").mode("append").save(str(out))
    assert read(spark, out) == sorted(rows_of(few) + rows_of(numbers))
    few.limit(0).write.format("headgate").mode("overwrite").save(str(out))
    assert spark.read.parquet(str(out)).dtypes == few.dtypes
    assert read(spark, out) == []
    assert hidden(tmp_path) == []


def test_the_format_headgate_leaves_nothing_of_a_failed_job(spark, numbers, tmp_path):
    def fail(batches):
        yield from batches
        raise KeyError("not today")

    failing = numbers.mapInArrow(fail, numbers.schema)
    with pytest.raises(Exception, match="not today"):
        failing.write.format("headgate").mode("append").save(str(tmp_path / "deep" / "out"))
    assert list(tmp_path.iterdir()) == []
    writer = numbers.write.format("headgate").mode("append").option("fromat", "parquet")
    with pytest.raises(Exception, match=r"HG-1001[\s\S]*'fromat' is no option"):
        writer.save(str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "needs a path"),
        ({"path": "/tmp/x", "max_rows_per_file": "many"}, "takes a whole number"),
        ({"path": "/tmp/x", "format": "avro"}, "format='avro'"),
        ({"path": "/tmp/x", "format": "csv", "header": "1"}, "header='1'"),
        ({"path": "/tmp/x", "format": "csv", "sep": ""}, "delimiter=''"),
        ({"path": "/tmp/x", "partitionOverwriteMode": "dynamic"}, "partitionOverwriteMode"),
    ],
)
def test_bad_options_of_the_format_are_named(options, said):
    with pytest.raises(OptionError, match=said):
        batch_writer(options, None, overwrite=False)


def test_the_driver_owns_the_files_that_the_format_stages(tmp_path):
    # This process has no JVM as parent, so only the age of the files shows that the owner is gone.
    batch_writer({"path": str(tmp_path / "out")}, StructType().add("n", "integer"), overwrite=False)
    (facts,) = Path(tmp_path).rglob("_job.json")
    assert '"owner"' in facts.read_text()
    assert FileSink(tmp_path / "out", stale_after=0).recover().removed == ()
