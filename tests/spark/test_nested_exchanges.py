"""Shuffles, broadcasts and unions between two exchanges.

With adaptive execution, Spark runs the stages below a shuffle before it has a plan for the outer
producers. The consumers of the inner exchange are tasks of those stages, so the inner exchange runs
while the outer one is planned.
"""

import threading

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions

from headgate.spark import exchange

ROWS = 100

#: Limit in seconds for an action, which takes about two.
LIMIT = 100.0


@pytest.fixture
def small(spark):
    return spark.range(0, ROWS, 1, 2).selectExpr("id", "id % 10 as k")


def within(spark, action, limit=LIMIT):
    """Return the result of an action; if it exceeds the limit, cancel all jobs and fail the test."""
    outcome = []

    def act():
        try:
            outcome.append(action())
        except PySparkException as error:
            outcome.append(error)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(limit)
    if thread.is_alive():
        spark.sparkContext.cancelAllJobs()
        thread.join(30)
        pytest.fail(f"no end within {limit:.0f} s")
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


def one(df):
    """Return an exchange with one consumer. Three of them and one producer fit four slots."""
    return exchange(df, by="k", num_partitions=1)


def two(df):
    """Return an exchange with a shuffle after it, which Spark omits for a single partition."""
    return one(df).repartition(2, "k")


def rows_of(df):
    """Return the rows through ``df.rdd``, which runs the stages below the shuffle."""
    return df.rdd.collect()


def counts(rows):
    return {row["k"]: row["count"] for row in rows}


def test_a_group_by_between_two_exchanges(spark, small):
    inner = two(small)
    out = one(inner.groupBy("k").count())
    assert counts(within(spark, out.collect)) == dict.fromkeys(range(10), 10)


@pytest.mark.parametrize("hint", ["broadcast", "merge", "shuffle_hash"])
def test_a_join_between_exchanges(spark, small, hint):
    left, right = two(small), two(small.where("id < 10").withColumnRenamed("id", "name"))
    out = one(left.join(right.hint(hint), "k"))
    found = within(spark, out.collect)
    assert sorted((row["id"], row["name"]) for row in found) == [(n, n % 10) for n in range(ROWS)]


def test_a_union_with_a_shuffle_between_two_exchanges(spark, small):
    inner = two(small)
    out = one(inner.groupBy("k").count().union(inner.groupBy("k").count()))
    found = within(spark, out.collect)
    assert sorted(row["k"] for row in found) == sorted([*range(10), *range(10)])
    assert {row["count"] for row in found} == {10}


def test_a_sort_and_a_window_between_two_exchanges(spark, small):
    out = one(two(small).orderBy("id").selectExpr("k", "sum(id) over (partition by k) as total"))
    found = within(spark, out.collect)
    assert {(row["k"], row["total"]) for row in found} == {(k, 450 + 10 * k) for k in range(10)}


def test_a_chain_of_exchanges_with_a_shuffle_after_each(spark, small):
    out = small
    for _ in range(3):
        out = two(out).groupBy("k").agg(functions.count("*").alias("count"))
    assert counts(within(spark, out.collect)) == dict.fromkeys(range(10), 1)


def test_the_rdd_of_the_users_own_thread_does_not_block_an_exchange(spark, small):
    # Spark plans the RDD in the user's thread, which waits for the stage that reads the exchange.
    out = two(small).groupBy("k").count()
    assert counts(within(spark, lambda: rows_of(out))) == dict.fromkeys(range(10), 10)


def test_two_threads_of_the_user_that_each_want_an_rdd_above_an_exchange(spark, small):
    outs = [two(small).groupBy("k").count() for _ in range(2)]
    found = [None, None]

    def act(number):
        found[number] = counts(within(spark, lambda: rows_of(outs[number])))

    threads = [threading.Thread(target=act, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [dict.fromkeys(range(10), 10)] * 2


def test_an_exchange_below_two_shuffles_of_the_users_own_rdd(spark, small):
    out = (
        two(two(small).groupBy("k").count()).groupBy("count").agg(functions.sum("k").alias("keys"))
    )
    assert within(spark, lambda: out.rdd.map(tuple).collect()) == [(10, 45)]
