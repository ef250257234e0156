"""The driver forgets exchanges whose DataFrames are garbage."""

import gc
import sys
import time

import pytest
from pyspark import cloudpickle
from tests.kit.hosts import served
from tests.kit.masters import in_executors
from tests.kit.waiting import wait_until

from headgate.spark import exchange
from headgate.spark.driver import application, kept_watch, plan_lifetimes

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

MANY = 60


def same(batches):
    yield from batches


class Tables:
    """The numbers of exchanges in the driver's tables, beyond those that earlier tests left for ever.

    Spark keeps the plan of each `toLocalIterator()` until the session ends.
    """

    def __init__(self, spark, owner):
        self.spark, self.owner = spark, owner
        self._left, alike, end = [], 0, time.monotonic() + 60
        while alike < 4:
            assert time.monotonic() < end, "the tables do not settle"
            time.sleep(0.4)
            self.collect_garbage()
            keys = self._keys()
            alike = alike + 1 if keys == self._left else 0
            self._left = keys

    def _keys(self):
        owner = self.owner
        drawn = [key for watch in kept_watch._watches.values() for key in watch._progress]
        watched = range(len(owner._lifetimes))
        return [
            set(table)
            for table in (owner._host_lookup._keys, owner._host_lookup._exchanges, watched, drawn)
        ]

    def now(self):
        """Return the numbers of keys and places that this test added."""
        return self._added()[:2]

    def progress(self):
        """Return the number of kept exchanges whose progress is watched."""
        return self._added()[-1]

    def _added(self):
        return [len(keys - left) for keys, left in zip(self._keys(), self._left, strict=True)]

    def collect_garbage(self):
        # Spark's listeners hold the last plan until the next action.
        self.spark.range(1).count()
        gc.collect()
        self.spark.sparkContext._jvm.System.gc()

    def wait_for(self, condition, what):
        wait_until(lambda: self.collect_garbage() or condition(), what, 60)

    def become_empty(self):
        self.wait_for(lambda: not any(self._added()), "empty tables")


@pytest.fixture
def owner(spark, monkeypatch):
    monkeypatch.setattr(plan_lifetimes, "_PERIOD", 0.1)
    return application.of(spark.sparkContext)


@pytest.fixture
def tables(spark, owner):
    return Tables(spark, owner)


@pytest.fixture(autouse=True)
def on_several_hosts(monkeypatch):
    """Let exchanges register with the driver, as on a cluster of several hosts. No host starts before an action."""
    monkeypatch.setattr("headgate.spark.plan.facts.shares_files", lambda master: False)


def kept(df, **options):
    return exchange(df, by="k", map=same, schema=df.schema, mode="kept", **options)


def test_dozens_of_exchanges_leave_the_drivers_tables_empty(numbers, tables):
    captured = b"x" * 100_000

    def holding(batches):
        assert captured
        yield from batches

    made = [
        exchange(numbers, by="k", map=holding, schema=numbers.schema, mode="kept")
        for _ in range(MANY)
    ]
    assert tables.now() == [MANY, MANY]
    last = made[-1].where("k < 10").groupBy("k").count()
    del made
    tables.wait_for(lambda: tables.now() == [1, 1], "all but one are forgotten")
    del last
    tables.become_empty()


@in_executors
@pytest.mark.parametrize("how", ["rdd", "cache", "view"])
def test_what_was_made_of_a_result_keeps_its_exchange(spark, numbers, tables, how, monkeypatch):
    with served(spark, monkeypatch):
        out = kept(numbers, num_partitions=2)
        if how == "rdd":
            made = out.rdd.map(lambda row: row.id)
            count = made.count
        elif how == "cache":
            made = out.cache()
            count = made.count
        else:
            out.createOrReplaceTempView("made")
            count = spark.table("made").count
        del out
        for _ in range(3):
            tables.collect_garbage()
        assert count() == 20_000
        assert tables.now() == [1, 1]
    if how == "cache":
        made.unpersist(blocking=True)
    spark.catalog.dropTempView("made")
    made = count = None
    tables.become_empty()


def test_an_exchange_of_an_exchange_is_forgotten_with_it(numbers, tables):
    out = kept(kept(numbers, num_partitions=2), num_partitions=1)
    tables.collect_garbage()
    assert tables.now() == [2, 2]
    del out
    tables.become_empty()


def test_exchanges_of_several_inputs_are_forgotten_too(numbers, tables):
    job = {
        "by": "k",
        "progress": "log",
        "map": same,
        "schema": numbers.schema,
        "map_schema": numbers.schema,
    }
    made = [exchange(numbers, reduce=same, mode="kept", **job) for _ in range(20)]
    both = {"reduce": lambda one, other: same(one), "schema": numbers.schema, "mode": "kept"}
    made.append(exchange([numbers, numbers], "k", progress="log", **both))
    assert tables.now() == [22, 22]
    assert tables.progress() >= 21
    del made
    tables.become_empty()
