"""Kept exchanges on ``local[2]`` where the bench ``spark`` does not look: heavy functions, one row, many partitions.

All start from the rows of the bench ``spark`` and end in Spark's ``noop`` sink. The rows of all contestants are
compared before anything is timed.

- ``spark_heavy``: ``map`` takes about a microsecond of Python a row. A lone ``mapInArrow`` of it shows how much the
  exchange adds to such work.
- ``spark_binary``: functions that do nothing, against ``benches/binary_pages.py``, which sends Arrow pages
  through Spark's own shuffle
- ``fixed``: one row, against ``mapInArrow`` -> ``repartition("key")`` -> ``mapInArrow``
- ``wide_auto``: 2,000 producers, 45 MB, and as many partitions as the sizes ask for: ``num_partitions="auto"`` against
  Spark's 200 default partitions, which its adaptive execution joins
- ``spark_wide`` and ``spark_wide_450``: 1,000 producers and 1,000 partitions, with 45 MB and 450 MB, against the same
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from benches import binary_pages, harness
from benches.spark import (
    INPUTS,
    ROW_BYTES,
    ROWS,
    SMALL_TURNS,
    answer,
    by_headgate,
    by_repartition,
    check,
    rows_of,
    same,
    saving,
    session,
)
from pyspark import cloudpickle
from pyspark.sql import DataFrame

SLOTS = 2
#: Producers and partitions of the wide exchanges.
WIDE = 1_000


def main(arguments: Sequence[str]) -> None:
    parser = harness.arguments(__doc__)
    parser.add_argument("--only", choices=BENCHES, help="by default all")
    options = parser.parse_args(arguments)
    for module in (binary_pages, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(module)
    spark = session(f"local[{SLOTS}]")

    def flow(rows: int, inputs: int) -> DataFrame:
        return rows_of(spark, rows, inputs)

    try:
        for name, bench in BENCHES.items():
            if options.only in (None, name):
                bench(name, flow, options)
    finally:
        spark.stop()


def heavy(name: str, flow: Callable[[int, int], DataFrame], options: Namespace) -> None:
    rows = ROWS // (50 if options.quick else 1)
    df = flow(rows, INPUTS)
    compare(
        name,
        f"{rows:,} rows, a map in Python",
        {
            "headgate": lambda: by_headgate(df, "kept", map=digits),
            "mapInArrow": lambda: df.mapInArrow(digits, df.schema),
        },
        0.95,
        rows,
        options,
    )


def binary(name: str, flow: Callable[[int, int], DataFrame], options: Namespace) -> None:
    rows = ROWS // (50 if options.quick else 1)
    df = flow(rows, INPUTS)
    compare(
        name,
        f"{rows:,} rows, functions that do nothing",
        {
            "headgate": lambda: by_headgate(df, "kept"),
            "binary pages": lambda: binary_pages.exchange(df, "key", SLOTS, same, same),
        },
        1.4,
        rows,
        options,
    )


def fixed(name: str, flow: Callable[[int, int], DataFrame], options: Namespace) -> None:
    df = flow(1, 1)
    turns = options.turns if options.quick else max(options.turns, SMALL_TURNS)
    compare(
        name,
        "one row",
        {
            "headgate": lambda: by_headgate(df, "kept"),
            "repartition": lambda: by_repartition(df, SLOTS),
        },
        0.9,
        1,
        Namespace(turns=turns, quick=options.quick),
    )


def wide(name: str, flow: Callable[[int, int], DataFrame], options: Namespace) -> None:
    less = 50 if options.quick else 1
    rows, width = (ROWS if name.endswith("450") else ROWS // 10) // less, WIDE // less
    df = flow(rows, width)
    compare(
        name,
        f"{rows:,} rows from {width:,} producers to {width:,} partitions",
        {
            "headgate": lambda: by_headgate(df, "kept", width),
            "repartition": lambda: by_repartition(df, width),
        },
        1.5,
        rows,
        options,
    )


def wide_auto(name: str, flow: Callable[[int, int], DataFrame], options: Namespace) -> None:
    less = 50 if options.quick else 1
    rows, width = ROWS // 10 // less, 2 * WIDE // less
    df = flow(rows, width)
    compare(
        name,
        f"{rows:,} rows from {width:,} producers to partitions by size",
        {
            "headgate": lambda: by_headgate(df, "kept", "auto"),
            "repartition": lambda: (
                df.mapInArrow(same, df.schema).repartition("key").mapInArrow(same, df.schema)
            ),
        },
        1.5,
        rows,
        options,
    )


BENCHES = {
    "spark_heavy": heavy,
    "spark_binary": binary,
    "fixed": fixed,
    "wide_auto": wide_auto,
    "spark_wide": wide,
    "spark_wide_450": wide,
}


def compare(
    name: str,
    what: str,
    plans: dict[str, Callable[[], DataFrame]],
    goal: float,
    rows: int,
    options: Namespace,
) -> None:
    """Compare the first plan, which is ours, with the second."""
    check({plan: answer(run()) for plan, run in plans.items()})
    ours, theirs = plans
    harness.compare(
        name,
        f"{what}, on local[{SLOTS}], to the noop sink",
        {plan: saving(run) for plan, run in plans.items()},
        [harness.Ratio(name, theirs, ours, goal=goal)],
        turns=options.turns,
        size=rows * ROW_BYTES,
        quick=options.quick,
    )


def digits(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put the sum of the key's digits into ``x``, row by row: about a microsecond for each."""
    for batch in batches:
        sums = [float(sum(map(int, str(key)))) for key in batch["key"].to_pylist()]
        yield batch.set_column(batch.schema.get_field_index("x"), "x", pa.array(sums))
