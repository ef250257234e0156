"""Three exchanges in a row, with a Python function after each, from files to files.

Of each row of TPC-H's lineitem (6 M rows at scale factor 1, in 7 files): its price over the mean price of its
supplier, over that of its part, and the share of the row in its order. A function sees all rows of its key, so
the rows are placed anew for each, on local[2]:

- ``headgate``: ``exchange()`` three times, then ``write()``: tasks that return the rows of
  one exchange send those of the next, and the last ones write the files
- ``pyspark``: ``spark.read.parquet``, three times ``repartition`` and ``mapInArrow`` with the same functions, then
  ``df.write.parquet``

The files of both are compared before anything is timed. ``tpchgen-cli`` makes the data once; the cache folder
keeps it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
from benches import harness, tpch
from benches.spark import session
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

import headgate as hg
from headgate.sink import FileSink
from headgate.spark import exchange, write

SLOTS = 2
PARTITIONS = 8
COLUMNS = ["l_suppkey", "l_partkey", "l_orderkey", "l_linenumber", "l_extendedprice"]
RENAMED = ("supplier", "part", "order", "line", "price")
SCHEMA = "supplier long, part long, `order` long, line int, price double"
#: Three longs, an int and a double, and a further double after each exchange: they are moved three times.
ROW_BYTES = 36 + 44 + 52

Function = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def main(arguments: Sequence[str]) -> None:
    parser = harness.arguments(__doc__)
    options = parser.parse_args(arguments)
    folder = tpch.lineitem(0.01 if options.quick else 1, parts=7)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark = session(f"local[{SLOTS}]")
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        try:
            contestants = {
                "headgate": lambda: by_headgate(table(spark, folder), Path(scratch, "headgate")),
                "pyspark": lambda: by_pyspark(table(spark, folder), Path(scratch, "pyspark")),
            }
            rows = check(contestants, Path(scratch))
            harness.compare(
                "chain",
                f"TPC-H lineitem, {rows:,} rows in 7 files: three exchanges with Python after each, "
                f"to files, local[{SLOTS}]",
                contestants,
                [harness.Ratio("chain", "pyspark", "headgate", goal=3)],
                turns=options.turns,
                size=rows * ROW_BYTES,
                quick=options.quick,
            )
        finally:
            spark.stop()


def table(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.parquet(str(folder)).select(COLUMNS)


def over_mean(key: str, column: str) -> Callable[[hg.Batches | pa.Table], pl.DataFrame]:
    """Return a function that adds each row's price over the mean price of its key."""

    def function(batches: hg.Batches | pa.Table) -> pl.DataFrame:
        rows = pl.DataFrame(batches)
        return rows.with_columns((pl.col("price") / pl.col("price").mean().over(key)).alias(column))

    return function


def renamed(batches: Iterator[pa.RecordBatch]) -> Iterator[pl.DataFrame]:
    for batch in batches:
        rows = pl.DataFrame(batch).rename(dict(zip(COLUMNS, RENAMED, strict=True)))
        yield rows.with_columns(pl.col("price").cast(pl.Float64))


#: For each exchange: its key, the column that is added, the schema after it.
STEPS = [
    (key, f"over_{key}", SCHEMA + "".join(f", over_{name} double" for name in keys))
    for key, keys in (
        ("supplier", ["supplier"]),
        ("part", ["supplier", "part"]),
        ("order", ["supplier", "part", "order"]),
    )
]


def by_headgate(df: DataFrame, path: Path) -> float:
    started = time.perf_counter()
    for number, (key, column, schema) in enumerate(STEPS):
        df = exchange(
            df,
            by=key,
            map=None if number else renamed,
            map_schema=None if number else SCHEMA,
            reduce=over_mean(key, column),
            schema=schema,
            num_partitions=PARTITIONS,
            progress="off",
        )
    write(df, FileSink(str(path), mode="overwrite"))
    return time.perf_counter() - started


def by_pyspark(df: DataFrame, path: Path) -> float:
    started = time.perf_counter()
    df = df.mapInArrow(as_batches(renamed), SCHEMA)
    for key, column, schema in STEPS:
        placed = df.repartition(PARTITIONS, key)
        df = placed.mapInArrow(of_a_partition(over_mean(key, column)), schema)
    df.write.mode("overwrite").parquet(str(path))
    return time.perf_counter() - started


def as_batches(function: Function) -> Function:
    """Return a function for Spark, which takes batches of the declared types only."""

    def batches_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for frame in function(batches):
            yield from frame.to_arrow().to_batches()

    return batches_of


def of_a_partition(function: Callable[[pa.Table], pl.DataFrame]) -> Function:
    """Return a function for Spark that gives another one all rows of a partition at once."""

    def batches_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = list(batches)
        if found:
            yield from function(pa.Table.from_batches(found)).to_arrow().to_batches()

    return batches_of


def check(contestants: dict[str, Callable[[], float]], scratch: Path) -> int:
    """Compare what both write; return the number of rows."""
    answers = []
    for name, run in contestants.items():
        run()
        with duckdb.connect() as connection:
            sums = ", ".join(f"round(sum({column}), 3)" for _, column, _ in STEPS)
            keys = 'sum(hash(supplier, part, "order", line))'
            query = f"SELECT count(*), {keys}, {sums} FROM '{scratch / name}/**/*.parquet'"
            answers.append(connection.execute(query).fetchone())
    if answers[0] != answers[1]:
        raise SystemExit(f"the files differ: {answers}")
    print(f"both write the same {answers[0][0]:,} rows")
    shutil.rmtree(scratch / "headgate")
    shutil.rmtree(scratch / "pyspark")
    return int(answers[0][0])
