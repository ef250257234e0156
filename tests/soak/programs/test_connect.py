"""A client of a real Spark Connect server, in a process of its own, as it may have no classic session."""

import contextlib
import io
import json
import logging
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import headgate as hg
from headgate.errors import NotBuiltError, OptionError
from headgate.source import NumberSequenceSource, WatermarkStrategy
from headgate.spark import doctor, exchange, explain, last_stats, report

ROWS = 20_000


def same(batches):
    yield from batches


def count(batches):
    yield pa.RecordBatch.from_pydict({"n": [sum(batch.num_rows for batch in batches)]})


def thirds(batch):
    return pc.bit_wise_and(batch.column("id"), 1)


def placed(df):
    return sorted(map(tuple, df.selectExpr("spark_partition_id() as p", "*").collect()))


def refused(error, text, *arguments, **options):
    with pytest.raises(error, match=text):
        exchange(*arguments, **options)


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def main(master, folder):
    """Compare; print "all right" at the end."""
    log = Lines()
    logging.getLogger("headgate.spark").addHandler(log)
    logging.getLogger("headgate.spark").setLevel(logging.INFO)
    confs = {
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": folder,
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.remote(master)
    for name, value in confs.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    assert type(spark).__module__.startswith("pyspark.sql.connect")
    df = spark.range(0, ROWS, 1, 5).selectExpr("id", "id % 100 as k", "repeat('x', 300) as s")

    by_spark = placed(df.repartition(3, "k"))
    assert placed(exchange(df, "k", num_partitions=3)) == by_spark
    assert "Spark can place them" in log.lines[-1]
    assert placed(exchange(df, "k", map=same, num_partitions=3, schema=df.schema)) == by_spark
    assert "kept" in log.lines[-1], log.lines
    assert (
        placed(exchange(df, "k", map=same, num_partitions=3, mode="kept", schema=df.schema))
        == by_spark
    )
    assert "consumers map the files" in log.lines[-1]
    out = exchange(df, "k", map=same, reduce=count, map_schema=df.schema, schema="n long")
    assert out.groupBy().sum("n").first()[0] == ROWS
    assert len(out.collect()) == 2
    by_function = exchange(df, thirds, map=same, num_partitions=2, schema=df.schema)
    assert all(
        row.id % 2 == row.p
        for row in by_function.selectExpr("id", "spark_partition_id() p").collect()
    )
    assert exchange(df, None, map=same, num_partitions=2, schema=df.schema).count() == ROWS
    assert (
        exchange(df, hg.BroadcastSelector(), map=same, num_partitions=2, schema=df.schema).count()
        == 2 * ROWS
    )
    twice = exchange(
        exchange(df, "k", map=same, schema=df.schema),
        "id",
        map=same,
        num_partitions=4,
        schema=df.schema,
    )
    assert placed(twice) == placed(df.repartition(4, "id"))
    found = explain(twice.union(twice).filter("id > 3")).exchanges
    assert [(one.mode, one.through) for one in found] == [("kept", "files")] * 2
    assert [one.inputs[0].producers.number for one in found] == [None, None]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exchange(df, "k", num_partitions=3, explain=True)
    for words in (
        "mode         Spark's own repartition",
        "client of Spark Connect",
        "on the server",
    ):
        assert words in said.getvalue()
    with pytest.raises(OptionError, match=r"HG-1001.*finds no exchange"):
        explain(df)
    with pytest.raises(NotBuiltError, match=r"HG-2201.*doctor"):
        doctor(spark)

    spark.conf.set("spark.headgate.numPartitions", "7")
    assert (
        len(
            {
                row.p
                for row in exchange(df, "k", map=same, schema=df.schema)
                .selectExpr("spark_partition_id() p")
                .collect()
            }
        )
        == 7
    )
    spark.conf.unset("spark.headgate.numPartitions")

    refused(OptionError, "pipelined", df, "k", map=same, schema=df.schema, mode="pipelined")
    numbers = NumberSequenceSource(0, 1000, batch_size=10, splits=7)
    read = exchange(numbers, numbers.schema.names, num_partitions=3, spark=spark)
    assert placed(read) == placed(
        spark.range(1000).toDF(*read.columns).repartition(3, *read.columns)
    )
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    refused(OptionError, "watermarks", numbers, spark=spark, watermarks=strategy)
    refused(OptionError, "numpartitions", df, "k", numpartitions=3)
    assert last_stats() is None
    assert json.loads(report(Path(folder) / "run.json").read_text())["runs"] == []
    wrong = exchange(
        df, "k", map=lambda batches: (batch["no"] for batch in batches), schema=df.schema
    )
    with pytest.raises(PySparkException, match="KeyError"):
        wrong.collect()
    spark.stop()
    print("all right")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]"])
def test_exchanges_on_spark_connect(master, tmp_path):
    command = [sys.executable, __file__, master, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["all right"]), done.stderr


if __name__ == "__main__":
    main(*sys.argv[1:])
