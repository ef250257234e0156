"""Consumers of a pipelined exchange that take shares of a core leave all slots to producers."""

import sys
import time

import pytest
from pyspark import cloudpickle
from tests.spark.masters import HAS_SHARES

from headgate.spark import exchange

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.skipif(
    not HAS_SHARES, reason="needs Spark 4.3, and executors with two slots"
)

SLOTS = 4
ROWS = 20_000


def same(batches):
    yield from batches


def pipelined(df, partitions, **functions):
    functions = functions or {"reduce": same}
    return exchange(
        df,
        by="k",
        num_partitions=partitions,
        schema=df.schema,
        mode="pipelined",
        **functions,
    )


def test_by_default_there_is_a_consumer_for_each_slot(numbers):
    assert pipelined(numbers, None).rdd.getNumPartitions() == SLOTS


def test_producers_run_on_all_slots_beside_more_consumers_than_slots(spark, tmp_path):
    folder = str(tmp_path)

    def together(batches):
        """Go on once a producer runs on each slot."""
        from pathlib import Path

        from pyspark import TaskContext

        Path(folder, str(TaskContext.get().partitionId())).touch()
        end = time.monotonic() + 60
        while len(list(Path(folder).iterdir())) < SLOTS:
            if time.monotonic() > end:
                raise TimeoutError("not all producers run at the same time")
            time.sleep(0.05)
        yield from batches

    df = spark.range(0, ROWS, 1, SLOTS).selectExpr("id", "id % 100 AS k")
    out = pipelined(df, SLOTS + 1, map=together)
    assert out.selectExpr("count(*)", "sum(id)").first()[:] == (ROWS, ROWS * (ROWS - 1) // 2)


@pytest.mark.soak
def test_unions_joins_and_chains_of_pipelined_exchanges_simply_work(numbers):
    one, other = pipelined(numbers, 2), pipelined(numbers, 2)
    assert one.union(other).count() == 2 * ROWS
    assert one.join(other, "id").count() == ROWS
    assert pipelined(pipelined(one, 2), 2).count() == ROWS
    grouped = one.groupBy("k").count()
    assert pipelined(grouped, 2).selectExpr("sum(count)").first()[0] == ROWS
