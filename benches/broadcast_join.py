"""20 M rows of Parquet files joined with 10,000, and a function of Python after the join, on ``local[2]``.

- ``headgate``: ``exchange([df, Input(small, broadcast=True)], reduce=...)``, whose tasks read the files and join in Python
- ``measured``: the same with ``broadcast="auto"``, so that the call runs the small input once to measure it
- ``jvm``: the same as ``headgate`` with ``read="spark"``, so that Spark reads the files
- ``pyspark``: ``df.join(broadcast(small), "k")`` -> ``mapInArrow(...)``

All end in Spark's ``noop`` sink. ``--rows`` takes a smaller number.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from benches import harness
from benches.spark import saving, session
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.functions import broadcast

import headgate as hg
from headgate.spark import Input, exchange, last_stats

SLOTS = 2
ROWS = 20_000_000
SMALL = 10_000
#: Two longs and a double.
ROW_BYTES = 24
RESULT = "id long, amount double"


def main(arguments: Sequence[str]) -> None:
    parser = harness.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help=f"by default {ROWS:,}")
    options = parser.parse_args(arguments)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    rows = options.rows // (50 if options.quick else 1)
    spark = session(f"local[{SLOTS}]")
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        try:
            made = spark.range(0, rows, 1, 8).selectExpr(
                "id", f"pmod(id * 2654435761, {SMALL}) AS k", "id * 0.5D AS x"
            )
            made.write.parquet(folder, mode="overwrite")
            df = spark.read.parquet(folder)
            small = spark.range(SMALL).selectExpr("id AS k", "id * 0.01D AS rate")
            plans = {
                "headgate": lambda: by_headgate(df, Input(small, broadcast=True)),
                "measured": lambda: by_headgate(df, Input(small, broadcast="auto"), by="k"),
                "jvm": lambda: by_headgate(df, Input(small, broadcast=True), read="spark"),
                "pyspark": lambda: by_pyspark(df, small),
            }
            answers = {name: answer(plan()) for name, plan in plans.items()}
            if len(set(answers.values())) != 1:
                raise AssertionError(f"rows, ids, amounts: {answers}")
            harness.compare(
                "broadcast_join",
                f"{rows:,} rows joined with {SMALL:,}, then Python, on local[{SLOTS}], to the noop sink",
                {name: saving(plan) for name, plan in plans.items()},
                [
                    harness.Ratio("broadcast_join", "pyspark", "headgate", goal=1.3),
                    harness.Ratio("broadcast_measured", "pyspark", "measured", goal=1.3),
                    harness.Ratio("broadcast_join_jvm", "pyspark", "jvm"),
                ],
                turns=options.turns,
                size=rows * ROW_BYTES,
                quick=options.quick,
            )
            print(f"  {last_stats()}")
        finally:
            spark.stop()


def amounts(ids: pa.Array, x: pa.Array, rates: pa.Array) -> pa.RecordBatch:
    """Return the result of a few rows: some arithmetic, column by column."""
    return pa.RecordBatch.from_arrays([ids, pc.multiply(x, pc.add(rates, 1.0))], ["id", "amount"])


def by_headgate(df: DataFrame, small: Input, **options: str) -> DataFrame:
    def joined(rows: hg.Batches, others: hg.Batches) -> Iterator[pa.RecordBatch]:
        table = others.read_all().combine_chunks()
        keys, rates = table["k"].chunk(0), table["rate"].chunk(0)
        for batch in rows:
            places = pc.index_in(batch["k"], keys)
            yield amounts(batch["id"], batch["x"], rates.take(places))

    return exchange([df, small], reduce=joined, schema=RESULT, progress="off", **options)


def by_pyspark(df: DataFrame, small: DataFrame) -> DataFrame:
    def scored(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield amounts(batch["id"], batch["x"], batch["rate"])

    return df.join(broadcast(small), "k").select("id", "x", "rate").mapInArrow(scored, RESULT)


def answer(df: DataFrame) -> tuple[object, ...]:
    rows, ids, total = df.selectExpr("count(*)", "sum(id)", "sum(amount)").first()
    return rows, ids, f"{total:.6g}"
