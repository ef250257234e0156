"""One Spark session in a process and an environment of its own, for the bench ``peers``; it answers orders line by line.

Its argument is JSON: which session, the folder of lineitem's Parquet files, and the jar of Comet. An order is a
line of JSON on stdin: ``headgate`` (True, or False for the session's own way), ``sides`` of the shuffle with
Python, and ``path`` if the rows are to be written there; else the job is timed. An answer is a line on stdout that
starts with ``ANSWER``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from benches import pipeline_functions
from benches.pipeline_functions import COLUMNS, MAPPED, revenue, totals, totals_of_rows
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

SLOTS = 2
COMET = {
    "spark.plugins": "org.apache.spark.CometPlugin",
    "spark.shuffle.manager": "org.apache.spark.sql.comet.execution.shuffle.CometShuffleManager",
    "spark.comet.exec.pyarrowUDF.enabled": "true",
    "spark.memory.offHeap.enabled": "true",
    "spark.memory.offHeap.size": "2g",
}


def main() -> None:
    given = json.loads(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Workers get the functions with the plan, also where they could import them.
    cloudpickle.register_pickle_by_value(pipeline_functions)
    session = on_sail if given["session"] == "sail" else on_spark
    with session(given) as spark:
        answer({"ready": spark.version})
        for line in sys.stdin:
            answer(carried_out(spark, given["folder"], json.loads(line)))


def answer(found: dict[str, Any]) -> None:
    print("ANSWER " + json.dumps(found), flush=True)


@contextmanager
def on_spark(given: dict[str, Any]) -> Iterator[SparkSession]:
    """Yield a session of Spark, with Comet if a jar is given."""
    builder = SparkSession.builder.appName("headgate bench").master(f"local[{SLOTS}]")
    builder = builder.config("spark.driver.memory", "3g").config("spark.log.level", "ERROR")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.ui.enabled", "false").config("spark.headgate.progress", "off")
    if jar := given.get("jar"):
        builder = builder.config("spark.jars", jar).config("spark.driver.extraClassPath", jar)
        for name, value in COMET.items():
            builder = builder.config(name, value)
    spark = builder.getOrCreate()
    yield spark
    spark.stop()


@contextmanager
def on_sail(_given: dict[str, Any]) -> Iterator[SparkSession]:
    """Yield a session of a Sail server in this process, with as many threads as the machine has cores."""
    from pysail.spark import SparkConnectServer

    # The server stops once nothing refers to it.
    server = SparkConnectServer(ip="127.0.0.1", port=0)
    server.start(background=True)
    host, port = server.listening_address
    spark = SparkSession.builder.remote(f"sc://{host}:{port}").getOrCreate()
    yield spark
    spark.stop()


def carried_out(spark: SparkSession, folder: str, order: dict[str, Any]) -> dict[str, Any]:
    """Write the rows to the path of an order, or time the plan into the noop sink; both with the planning."""
    started = time.perf_counter()
    plan = by_headgate if order["headgate"] else by_repartition
    df = plan(spark.read.parquet(folder).select(COLUMNS), order["sides"])
    if path := order.get("path"):
        table = df.toArrow()
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        return {"rows": table.num_rows}
    df.write.format("noop").mode("overwrite").save()
    return {"seconds": time.perf_counter() - started}


def by_repartition(df: DataFrame, sides: int) -> DataFrame:
    if sides == 1:
        return df.repartition(SLOTS, "l_suppkey").mapInArrow(totals_of_rows, MAPPED)
    mapped = df.mapInArrow(revenue, MAPPED)
    return mapped.repartition(SLOTS, "supplier").mapInArrow(totals, MAPPED)


def by_headgate(df: DataFrame, sides: int) -> DataFrame:
    from headgate.spark import exchange

    if sides == 1:
        return exchange(df, by="l_suppkey", reduce=totals_of_rows, schema=MAPPED)
    return exchange(df, by="supplier", map=revenue, map_schema=MAPPED, reduce=totals, schema=MAPPED)


if __name__ == "__main__":
    main()
