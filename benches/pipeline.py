"""A whole pipeline on TPC-H's lineitem: read Parquet, map, exchange by key, reduce.

Revenue by supplier and month over the 6 M rows of scale factor 1 in 7 files, with a Python ``map`` and a
Python ``reduce``, on local[4], into Spark's ``noop`` sink:

- ``headgate``: ``exchange(FileSource(...), by="supplier", map=..., reduce=...)``: the workers read
- ``mapInArrow``: ``spark.read.parquet`` -> ``mapInArrow(map)`` -> ``repartition("supplier")`` ->
  ``mapInArrow(reduce)``, with the same functions
- ``spark sql``: the same query in Spark SQL; nothing leaves the JVM
- ``duckdb``: the same query in DuckDB with 2 threads: one process, no Spark

All four answers are compared, to a hundredth of a cent, before anything is timed. ``tpchgen-cli`` makes the
data once; the cache folder keeps it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
from benches import harness, pipeline_functions, tpch
from benches.pipeline_functions import COLUMNS, MAPPED, exact, revenue, totals
from benches.spark import saving, session
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from headgate.source import FileSource
from headgate.spark import exchange, last_stats

SLOTS = 4
#: Bytes of a mapped row, which all contestants but the databases move between workers.
ROW_BYTES = 20
QUESTION = """
    SELECT l_suppkey AS supplier, year(l_shipdate) * 100 + month(l_shipdate) AS month,
           sum(l_extendedprice * (1 - l_discount)) AS revenue
    FROM {lineitem} GROUP BY 1, 2
"""


def main(arguments: Sequence[str]) -> None:
    parser = harness.arguments(__doc__)
    options = parser.parse_args(arguments)
    folder = tpch.lineitem(0.01 if options.quick else 1, parts=7)
    cloudpickle.register_pickle_by_value(pipeline_functions)
    spark = session(f"local[{SLOTS}]")
    try:
        plans = {
            "headgate": lambda: by_headgate(spark, folder),
            "mapInArrow": lambda: by_repartition(spark, folder),
            "spark sql": lambda: by_sql(spark, folder),
        }
        check(plans, folder)
        rows = rows_of(folder)
        harness.compare(
            "pipeline",
            f"TPC-H lineitem, {rows:,} rows in 7 files: revenue by supplier and month, local[4]",
            {name: saving(plan) for name, plan in plans.items()}
            | {"duckdb": lambda: by_duckdb(folder)[0]},
            [
                harness.Ratio("pipeline", "mapInArrow", "headgate", goal=6),
                harness.Ratio("pipeline_sql", "spark sql", "headgate", goal=5.5),
            ],
            turns=options.turns,
            size=rows * ROW_BYTES,
            quick=options.quick,
        )
        print(f"  {last_stats()}")
    finally:
        spark.stop()


def by_headgate(spark: SparkSession, folder: Path) -> DataFrame:
    source = FileSource(str(folder), format="parquet", columns=COLUMNS)
    return exchange(
        source,
        spark=spark,
        by="supplier",
        map=revenue,
        reduce=totals,
        schema=MAPPED,
        map_schema=MAPPED,
        progress="off",
    )


def by_repartition(spark: SparkSession, folder: Path) -> DataFrame:
    mapped = spark.read.parquet(str(folder)).select(COLUMNS).mapInArrow(revenue, MAPPED)
    return mapped.repartition(SLOTS, "supplier").mapInArrow(totals, MAPPED)


def by_sql(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.sql(QUESTION.format(lineitem=f"parquet.`{folder}`"))


def by_duckdb(folder: Path) -> tuple[float, pa.Table]:
    started = time.perf_counter()
    with duckdb.connect(config={"threads": 2}) as connection:
        files = f"read_parquet('{folder}/*.parquet')"
        table = connection.sql(QUESTION.format(lineitem=files)).to_arrow_table()
    return time.perf_counter() - started, table


def check(plans: dict[str, Callable[[], DataFrame]], folder: Path) -> None:
    """Compare all answers with Spark SQL's."""
    answers = {name: exact(plan().toArrow()) for name, plan in plans.items()}
    answers["duckdb"] = exact(by_duckdb(folder)[1])
    expected = answers["spark sql"]
    for name, found in answers.items():
        if not found.equals(expected):
            raise SystemExit(f"{name} gives another answer than Spark SQL")
    print(f"all {len(answers)} answers agree to 1/100 of a cent in {expected.num_rows:,} groups")


def rows_of(folder: Path) -> int:
    """Return the number of rows of the table."""
    with duckdb.connect() as connection:
        counted = connection.execute(f"SELECT count(*) FROM '{folder}/*.parquet'").fetchone()
    return int(counted[0])
