"""The plan of ten exchanges in a row, the first of which reads 10,000 Parquet files, before any job runs.

The files have eight columns and ten rows each. The workers read them, so each plan looks at all footers, and
each ``exchange()`` takes the one before it for its producers:

- ``headgate``: from the DataFrame of the folder, ten times ``exchange()``, and Spark's physical plan of the last
- ``pyspark``: from the same DataFrame, ten times ``repartition`` and ``mapInArrow``, and its physical plan

The ratio is two seconds, which a plan may take at most, over the seconds of ``headgate``.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benches import harness
from benches.spark import same, session
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from headgate.spark import exchange

FILES = 10_000
EXCHANGES = 10
ALLOWED_SECONDS = 2.0


def main(arguments: Sequence[str]) -> None:
    parser = harness.arguments(__doc__)
    options = parser.parse_args(arguments)
    files = FILES // 100 if options.quick else FILES
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark = session("local[2]")
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder), files)
        try:
            contestants = {
                "headgate": lambda: seconds_of(spark, folder, by_headgate),
                "pyspark": lambda: seconds_of(spark, folder, by_pyspark),
            }
            seconds = harness.measure("chain_plan", contestants, turns=options.turns)
        finally:
            spark.stop()
    what = f"plans of {EXCHANGES} exchanges in a row over {files:,} files on local[2]"
    print(f"\nchain_plan: {what}")
    for name, times in seconds.items():
        print(f"  {name:<34}{statistics.median(times):>9.3f} s   {min(times):.3f}-{max(times):.3f}")
    median = ALLOWED_SECONDS / statistics.median(seconds["headgate"])
    print(f"{'TRIED' if options.quick else 'RATIO'} chain_plan {median:.2f} goal 1", flush=True)
    if not options.quick:
        ratio = {"name": "chain_plan", "goal": 1.0, "median": median}
        harness.store("chain_plan", what=what, seconds=seconds, ratios=[ratio])


def make_files(folder: Path, files: int) -> None:
    rng = np.random.default_rng(7)
    for number in range(files):
        columns = {f"c{column}": rng.integers(0, 1000, 10) for column in range(8)}
        pq.write_table(pa.table(columns), folder / f"part-{number:05}.parquet")


def seconds_of(spark: SparkSession, folder: str, plan: Callable[[DataFrame], DataFrame]) -> float:
    """Return the seconds of a plan over the DataFrame of a folder, whose listing by Spark is not counted."""
    df = spark.read.parquet(folder)
    started = time.perf_counter()
    plan(df)._jdf.queryExecution().executedPlan()
    return time.perf_counter() - started


def by_headgate(df: DataFrame) -> DataFrame:
    for number in range(EXCHANGES):
        df = exchange(
            df, by=f"c{number % 8}", map=same, reduce=same, schema=df.schema, progress="off"
        )
    return df


def by_pyspark(df: DataFrame) -> DataFrame:
    schema = df.schema
    df = df.mapInArrow(same, schema)
    for number in range(EXCHANGES):
        df = df.repartition(2, f"c{number % 8}").mapInArrow(same, schema)
    return df
