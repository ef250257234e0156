"""Sums by a key that three fifths of the rows have, on ``local[2]``, with Python before and after the exchange.

- ``headgate``: ``exchange(df, by="key", map=..., combine=..., reduce=...)``, so each producer sends a row for each key
- ``repartition``: ``mapInArrow(map)`` -> ``repartition("key")`` -> ``mapInArrow(reduce)``, with adaptive execution
- ``applyInArrow``: ``mapInArrow(map)`` -> ``groupBy("key").applyInArrow(...)``, also adaptive

A ``map`` that merges its rows by hand before it returns them would help both of these: ``combine`` is that step.
All start from rows that Spark makes, and end in its ``noop`` sink. ``--rows`` takes a smaller number.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from benches import harness
from benches.spark import saving, session
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

import headgate as hg
from headgate.spark import exchange, last_stats

SLOTS = 2
ROWS = 20_000_000
#: A long and two doubles.
ROW_BYTES = 24
SUMS = "key long, rows long, total double"


def main(arguments: Sequence[str]) -> None:
    parser = harness.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help=f"by default {ROWS:,}")
    options = parser.parse_args(arguments)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    rows = options.rows // (50 if options.quick else 1)
    spark = session(f"local[{SLOTS}]")
    try:
        df = hot(spark, rows)
        plans = {
            "headgate": lambda: by_headgate(df),
            "repartition": lambda: by_repartition(df),
            "applyInArrow": lambda: by_apply_in_arrow(df),
        }
        answers = {name: answer(plan()) for name, plan in plans.items()}
        if len(set(answers.values())) != 1:
            raise AssertionError(f"keys, rows, total: {answers}")
        harness.compare(
            "skew",
            f"sums of {rows:,} rows by a key that 60 % of them have, on local[{SLOTS}], to the noop sink",
            {name: saving(plan) for name, plan in plans.items()},
            [harness.Ratio("skew", ("repartition", "applyInArrow"), "headgate", goal=2.0)],
            turns=options.turns,
            size=rows * ROW_BYTES,
            quick=options.quick,
        )
        print(f"  {last_stats()}")
    finally:
        spark.stop()


def hot(spark: SparkSession, rows: int) -> DataFrame:
    cold = "pmod(id * 2654435761, 10007)"
    return spark.range(0, rows, 1, 8).selectExpr(
        f"if(id % 5 < 3, 0L, {cold}) AS key", "id * 0.5D AS x", "id * 0.25D AS y"
    )


def scored(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return a row with a count and a score for each row: some arithmetic, column by column."""
    for batch in batches:
        score = pc.add(pc.multiply(batch["x"], 2.0), batch["y"])
        ones = pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows)
        yield pa.RecordBatch.from_arrays([batch["key"], ones, score], ["key", "rows", "total"])


def grouped(table: pa.Table) -> pa.Table:
    table = table.group_by("key").aggregate([("rows", "sum"), ("total", "sum")])
    return table.rename_columns(["key", "rows", "total"])


def by_headgate(df: DataFrame) -> DataFrame:
    def merged(batches: hg.Batches) -> pa.Table:
        return grouped(batches.read_all())

    functions = {"map": scored, "combine": merged, "reduce": merged}
    return exchange(
        df, by="key", map_schema=SUMS, schema=SUMS, mode="kept", progress="off", **functions
    )


def by_repartition(df: DataFrame) -> DataFrame:
    def merged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        columns = {"key": pa.int64(), "rows": pa.int64(), "total": pa.float64()}
        yield from grouped(pa.Table.from_batches(batches, pa.schema(columns))).to_batches()

    return df.mapInArrow(scored, SUMS).repartition("key").mapInArrow(merged, SUMS)


def by_apply_in_arrow(df: DataFrame) -> DataFrame:
    return df.mapInArrow(scored, SUMS).groupBy("key").applyInArrow(grouped, SUMS)


def answer(df: DataFrame) -> tuple[object, ...]:
    keys, rows, total = df.selectExpr("count(*)", "sum(rows)", "sum(total)").first()
    return keys, rows, f"{total:.6g}"
