"""One slow task among four: splits on request move to the others.

There are 200 splits, each worth 75 ms of work; one of the four tasks takes 200 ms longer for each. Work is
sleeping, so the machine's own load matters little.

- ``headgate``: ``exchange(source, parallelism=4, ...)``: a reader asks for its next split when it has
  read the one before, so the slow one takes fewer
- ``fixed shares``: the same work on ``spark.range(...)`` in four partitions, 50 parts each
- ``ideal``: computed, not measured: all four work until everything is done, and nothing else takes time. The
  ratio is this over ours; the goal is 1 / 1.3.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
from benches import harness
from benches.spark import saving, session
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame, SparkSession

from headgate.source import NumberSequenceSource
from headgate.spark import exchange, last_stats

TASKS = 4
CONSUMERS = 2
SPLITS = 200
WORK = 0.075
DELAY = 0.2


def main(arguments: Sequence[str]) -> None:
    options = harness.arguments(__doc__).parse_args(arguments)
    splits = SPLITS // 10 if options.quick else SPLITS
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark = session(f"local[{TASKS + CONSUMERS}]")
    try:
        harness.compare(
            "straggler",
            f"{splits} splits of {WORK * 1000:.0f} ms, one of {TASKS} tasks {DELAY * 1000:.0f} ms "
            "slower for each",
            {
                "headgate": saving(lambda: by_headgate(spark, splits)),
                "fixed shares": saving(lambda: by_fixed_shares(spark, splits)),
                "ideal": lambda: ideal(splits),
            },
            [harness.Ratio("straggler", "ideal", "headgate", goal=0.77)],
            turns=options.turns,
            size=splits * 8,
            quick=options.quick,
        )
        print(f"  {last_stats()}")
    finally:
        spark.stop()


def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Work on one single-row batch at a time, slowly in the first task."""
    slow = TaskContext.get().partitionId() == 0
    for batch in batches:
        for row in range(batch.num_rows):
            time.sleep(WORK + (DELAY if slow else 0.0))
            yield batch.slice(row, 1)


def by_headgate(spark: SparkSession, splits: int) -> DataFrame:
    source = NumberSequenceSource(0, splits, splits=splits)
    return exchange(
        source,
        spark=spark,
        parallelism=TASKS,
        by="id",
        map=work,
        schema="id long",
        num_partitions=CONSUMERS,
        progress="off",
    )


def by_fixed_shares(spark: SparkSession, splits: int) -> DataFrame:
    shares = spark.range(0, splits, 1, TASKS).mapInArrow(work, "id long")
    return shares.repartition(CONSUMERS, "id")


def ideal(splits: int) -> float:
    """Return the seconds that tasks of these speeds need at least for the work."""
    return splits / ((TASKS - 1) / WORK + 1 / (WORK + DELAY))
