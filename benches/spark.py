"""A keyed exchange between Python workers of a Spark job, functions that do nothing on both sides.

Every contestant starts from the same 10 M rows, made by Spark in 8 partitions, and ends in Spark's
``noop`` sink, so that all rows come back from the workers:

- ``headgate``: ``exchange(df, by="key", map=..., reduce=...)``, half the slots as consumers
- ``repartition``: ``mapInArrow`` -> ``repartition("key")`` to as many partitions as slots ->
  ``mapInArrow``, Spark's own path
- ``mapInArrow``: a single one and no exchange at all, the floor of whatever goes through Python once
- ``hand-rolled``: ``benches/hand_rolled.py``, with as many consumers as headgate

Nothing is cached. The first turn warms the JVM and the workers and is not counted.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from benches import hand_rolled, harness
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from headgate.spark import exchange, last_stats

ROWS = 10_000_000
INPUTS = 8
#: Two longs, a double and a string of 17 characters with its 4-byte offset.
ROW_BYTES = 45


def main(arguments: Sequence[str]) -> None:
    parser = harness.arguments(__doc__)
    parser.add_argument("--slots", type=int, default=4, help="of the local master, by default 4")
    options = parser.parse_args(arguments)
    slots = options.slots
    rows = ROWS // 20 if options.quick else ROWS
    spark = session(slots)
    try:
        flow = spark.range(0, rows, 1, INPUTS).selectExpr(
            "id",
            "pmod(id * 2654435761, 1000003) AS key",
            "id * 0.5D AS x",
            "lpad(cast(id AS string), 17, '-') AS name",
        )
        harness.compare(
            "spark" if slots == 4 else f"spark_local{slots}",
            f"{rows:,} rows (long, long, double, string of 17) by key on local[{slots}], "
            f"{INPUTS} inputs, to the noop sink",
            {
                "headgate": saving(lambda: by_headgate(flow)),
                "repartition": saving(lambda: by_repartition(flow, slots)),
                "mapInArrow": saving(lambda: flow.mapInArrow(same, flow.schema)),
                "hand-rolled": saving(
                    lambda: hand_rolled.exchange(flow, "key", slots // 2, INPUTS)
                ),
            },
            [
                harness.Ratio("spark", "repartition", "headgate", goal=2.0),
                harness.Ratio("spark_floor", "mapInArrow", "headgate", goal=0.95),
                harness.Ratio("spark_handrolled", "hand-rolled", "headgate", goal=1.0),
            ],
            turns=options.turns,
            size=rows * ROW_BYTES,
            quick=options.quick,
        )
        print(f"  {last_stats()}")
    finally:
        spark.stop()


def session(slots: int) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
    # The workers do not have this folder.
    for module in (hand_rolled, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(module)
    builder = SparkSession.builder.appName("headgate bench").master(f"local[{slots}]")
    builder = builder.config("spark.driver.memory", "3g").config("spark.log.level", "ERROR")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    return builder.config("spark.ui.enabled", "false").getOrCreate()


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def by_headgate(df: DataFrame) -> DataFrame:
    return exchange(df, by="key", map=same, reduce=same, progress="off")


def by_repartition(df: DataFrame, partitions: int) -> DataFrame:
    mapped = df.mapInArrow(same, df.schema).repartition(partitions, "key")
    return mapped.mapInArrow(same, df.schema)


def saving(plan: Callable[[], DataFrame]) -> Callable[[], float]:
    """Return what runs a plan to the noop sink and returns its seconds, planning included."""

    def run() -> float:
        started = time.perf_counter()
        plan().write.format("noop").mode("overwrite").save()
        return time.perf_counter() - started

    return run
