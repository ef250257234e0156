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

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from benches import harness, tpch
from benches.spark import saving, session
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from headgate.source import FileSource
from headgate.spark import exchange, last_stats

SLOTS = 4
COLUMNS = ["l_suppkey", "l_extendedprice", "l_discount", "l_shipdate"]
MAPPED = "supplier long, month int, revenue double"
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
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark = session(f"local[{SLOTS}]")
    try:
        plans = {
            "headgate": lambda: by_headgate(spark, folder),
            "mapInArrow": lambda: by_repartition(spark, folder),
            "spark sql": lambda: by_sql(spark, folder),
        }
        rows = check(plans, folder)
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


def revenue(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Map: supplier, month and revenue of each row."""
    for batch in batches:
        price = batch["l_extendedprice"].cast(pa.float64())
        discount = batch["l_discount"].cast(pa.float64())
        date = batch["l_shipdate"]
        month = pc.add(pc.multiply(pc.year(date), 100), pc.month(date)).cast(pa.int32())
        yield pa.record_batch(
            [batch["l_suppkey"], month, pc.multiply(price, pc.subtract(1.0, discount))],
            names=["supplier", "month", "revenue"],
        )


def totals(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Reduce: the revenue of each supplier and month; this partition has all rows of its suppliers."""
    found = list(batches)
    if not found:
        return
    sums = pa.Table.from_batches(found).group_by(["supplier", "month"], use_threads=False)
    grouped = sums.aggregate([("revenue", "sum")])
    names = ["supplier", "month", "revenue"]
    yield from (
        grouped.rename_columns([name.removesuffix("_sum") for name in grouped.column_names])
        .select(names)
        .to_batches()
    )


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


def check(plans: dict[str, Callable[[], DataFrame]], folder: Path) -> int:
    """Compare all answers with Spark SQL's; return the rows of the input."""
    answers = {name: exact(plan().toArrow()) for name, plan in plans.items()}
    answers["duckdb"] = exact(by_duckdb(folder)[1])
    expected = answers["spark sql"]
    for name, found in answers.items():
        if not found.equals(expected):
            raise SystemExit(f"{name} gives another answer than Spark SQL")
    print(f"all {len(answers)} answers agree to 1/100 of a cent in {expected.num_rows:,} groups")
    with duckdb.connect() as connection:
        counted = connection.execute(f"SELECT count(*) FROM '{folder}/*.parquet'").fetchone()
    return int(counted[0])


def exact(table: pa.Table) -> pa.Table:
    """Return supplier, month and revenue, sorted; revenue in units of 1/10,000, which makes it whole."""
    revenue = pc.round(pc.multiply(table["revenue"].cast(pa.float64()), 1e4)).cast(pa.int64())
    columns = [table["supplier"].cast(pa.int64()), table["month"].cast(pa.int64()), revenue]
    plain = pa.table(columns, names=["supplier", "month", "revenue"])
    return plain.sort_by([("supplier", "ascending"), ("month", "ascending")]).combine_chunks()
