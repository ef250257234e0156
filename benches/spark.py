"""A keyed exchange between Python workers of a Spark job, with functions that do nothing on both sides.

Every contestant starts from the same 10 M rows, made by Spark in 8 partitions, and ends in Spark's ``noop``
sink, so all rows come back from the workers:

- ``headgate``: ``exchange(df, by="key", map=..., reduce=..., mode="kept")``, with a partition per slot
- ``repartition``: ``mapInArrow`` -> ``repartition("key")`` to as many partitions as slots ->
  ``mapInArrow``, Spark's own path
- ``mapInArrow``: a single one and no exchange, the floor of anything that goes through Python once

It runs in one process of two slots and in two executors of one slot each. A run of 100,000 rows then shows the
cost of a run before its first row.

Nothing is cached. The first turn warms the JVM and the workers and is not counted.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from benches import harness
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from headgate.spark import exchange, last_stats

Function = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

ROWS = 10_000_000
SMALL_ROWS = 100_000
#: Turns of the small run, which is short and noisy.
SMALL_TURNS = 15
INPUTS = 8
#: Two longs, a double and a string of 17 characters with its 4-byte offset.
ROW_BYTES = 45
#: By master: its slots, and the suffix of its ratios.
MASTERS = {
    "local[2]": (2, ""),
    "local-cluster[2,1,2048]": (2, "_cluster"),
    "local[4]": (4, "_local4"),
}


def main(arguments: Sequence[str]) -> None:
    parser = harness.arguments(__doc__)
    parser.add_argument("--master", choices=MASTERS, help="by default the first two")
    options = parser.parse_args(arguments)
    for master in [options.master] if options.master else list(MASTERS)[:2]:
        spark = session(master)
        try:
            compare(spark, master, options)
        finally:
            spark.stop()


def compare(spark: SparkSession, master: str, options: Namespace) -> None:
    slots, suffix = MASTERS[master]
    rows = ROWS // 20 if options.quick else ROWS
    flow = rows_of(spark, rows)
    harness.compare(
        f"spark{suffix}",
        f"{rows:,} rows (long, long, double, string of 17) by key on {master}, "
        f"{INPUTS} inputs, to the noop sink",
        {
            "headgate": saving(lambda: by_headgate(flow, "kept")),
            "repartition": saving(lambda: by_repartition(flow, slots)),
            "mapInArrow": saving(lambda: flow.mapInArrow(same, flow.schema)),
        },
        [
            harness.Ratio(f"spark{suffix}", "repartition", "headgate", goal=2.2),
            harness.Ratio(f"spark_floor{suffix}", "mapInArrow", "headgate", goal=1.0),
        ],
        turns=options.turns,
        size=rows * ROW_BYTES,
        quick=options.quick,
    )
    print(f"  {last_stats()}")
    few = rows_of(spark, SMALL_ROWS)
    harness.compare(
        f"spark_small{suffix}",
        f"{SMALL_ROWS:,} of these rows on {master}",
        {
            "headgate": saving(lambda: by_headgate(few, "kept")),
            "repartition": saving(lambda: by_repartition(few, slots)),
        },
        [
            harness.Ratio(f"spark_small{suffix}", "repartition", "headgate", goal=1.3),
        ],
        turns=max(options.turns, SMALL_TURNS) if not options.quick else options.turns,
        size=SMALL_ROWS * ROW_BYTES,
        quick=options.quick,
    )


def rows_of(spark: SparkSession, rows: int, inputs: int = INPUTS) -> DataFrame:
    return spark.range(0, rows, 1, inputs).selectExpr(
        "id",
        "pmod(id * 2654435761, 1000003) AS key",
        "id * 0.5D AS x",
        "lpad(cast(id AS string), 17, '-') AS name",
    )


def session(master: str, **confs: str) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
    # The workers cannot import this folder.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    builder = SparkSession.builder.appName("headgate bench").master(master)
    builder = builder.config("spark.driver.memory", "3g").config("spark.log.level", "ERROR")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    return builder.config("spark.ui.enabled", "false").config(map=confs).getOrCreate()


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def by_headgate(
    df: DataFrame,
    mode: str,
    partitions: int | str | None = None,
    map: Function = same,  # noqa: A002 - named as in exchange()
    reduce: Function = same,
) -> DataFrame:
    return exchange(
        df,
        by="key",
        map=map,
        reduce=reduce,
        schema=df.schema,
        num_partitions=partitions,
        mode=mode,
        progress="off",
    )


def by_repartition(df: DataFrame, partitions: int, reduce: Function = same) -> DataFrame:
    mapped = df.mapInArrow(same, df.schema).repartition(partitions, "key")
    return mapped.mapInArrow(reduce, df.schema)


def answer(df: DataFrame) -> tuple[object, ...]:
    """Return the number of rows, the sum of the ids, and the sum of the hashes of all columns."""
    hashes = "sum(cast(xxhash64(*) AS decimal(20)))"
    return tuple(df.selectExpr("count(*)", "sum(id)", hashes).first())


def check(answers: dict[str, tuple[object, ...]]) -> None:
    if len(set(answers.values())) != 1:
        raise AssertionError(f"rows, sum of ids, sum of hashes: {answers}")


def saving(plan: Callable[[], DataFrame]) -> Callable[[], float]:
    """Return a function that runs a plan into the noop sink and returns its seconds, planning included."""

    def run() -> float:
        started = time.perf_counter()
        plan().write.format("noop").mode("overwrite").save()
        return time.perf_counter() - started

    return run
