"""A run that waits for a lock or for slots fails and names what it waits for; slow input does not."""

import re
import sys
import time
from dataclasses import replace

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from headgate import explain
from headgate.spark import exchange
from headgate.spark.driver import application
from headgate.spark.driver.scheduler import jobs

# Workers cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

#: Seconds after which a run counts as stalled here. Slow input takes longer.
SHORT = 6.0
SLOW = 14.0


@pytest.fixture(autouse=True)
def soon(spark):
    stalls = application.of(spark.sparkContext)._server.coordinator.stalls
    before = stalls.timing
    stalls.timing = replace(before, stall=SHORT)
    yield
    stalls.timing = before


@pytest.fixture
def small(spark):
    return spark.range(0, 100, 1, 4).selectExpr("id", "id % 10 as k")


def slowly(batches):
    time.sleep(SLOW)
    yield from batches


def error_of(action):
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="cached_property has no lock")
def test_a_lock_that_another_thread_of_the_driver_holds_is_named(small, monkeypatch):
    monkeypatch.setattr(jobs, "rdd_of", lambda df: df.rdd)
    inner = exchange(small, by="k", num_partitions=2)
    text = error_of(exchange(inner.groupBy("k").count(), by="k", num_partitions=1).count)
    assert "[HG-2103]" in text
    assert "waits for Spark's driver to plan the input of its producers" in text
    assert "functools.py" in text


def test_a_stage_that_computes_before_the_producers_start_is_waited_for(small):
    slow = small.mapInArrow(slowly, "id long, k long").repartition(2)
    assert exchange(slow, by="k", num_partitions=1).count() == 100


def test_a_consumer_whose_rows_another_run_waits_for_is_waited_for(small):
    inner = exchange(small, by="k", num_partitions=2, reduce=slowly, schema=small.schema)
    out = exchange(inner.groupBy("k").count(), by="k", num_partitions=1)
    assert out.count() == 10


class SlowSource(DataSource):
    """A source that plans its partitions slowly, on the driver and without a task."""

    @classmethod
    def name(cls):
        return "slow"

    def schema(self):
        return "id long, k long"

    def reader(self, schema):
        return SlowReader()


class SlowReader(DataSourceReader):
    def partitions(self):
        time.sleep(SLOW)
        return [InputPartition(0)]

    def read(self, partition):
        yield (1, 1)


def test_a_driver_that_plans_for_long_is_waited_for(spark):
    spark.dataSource.register(SlowSource)
    table = spark.read.format("slow").load()
    assert exchange(table, by="k", num_partitions=1).count() == 1


@pytest.mark.usefixtures("whole_slots")
def test_the_example_of_the_error_page_fails_with_a_barrier_stage_that_does_not_fit(spark, numbers):
    (lines,) = re.findall(r"^```py\n(.*?)^```$", explain.page("HG-2103"), re.MULTILINE | re.DOTALL)
    with pytest.raises(PySparkException) as caught:
        exec(lines, {"__name__": "lines"})
    text = str(caught.value)
    assert "[HG-2103]" in text
    assert "of its producer job, a barrier stage: all 4 at once; 3 slots are free" in text
    assert exchange(numbers, by="k", num_partitions=1).count() == 20_000
