"""Producer jobs have the pool, job group and tags of the action."""

import sys
import time

import pytest

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from tests.spark.actions import Action, eventually, producer_jobs

from headgate.spark import exchange

# Workers cannot import what this file imports.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS = 20_000


def sleep_long(batches):
    for batch in batches:
        time.sleep(600)
        yield batch


def test_producers_keep_the_pool_the_group_and_the_tags_of_the_action(spark, numbers):
    def prepare(context):
        context.setLocalProperty("spark.scheduler.pool", "gold")
        context.setJobGroup("reports", "words of the user", interruptOnCancel=True)
        context.addJobTag("nightly")

    out = exchange(numbers, by="k", map=sleep_long, schema=numbers.schema)
    action = Action(spark, prepare, out.count)
    store = spark.sparkContext._jsc.sc().statusStore()
    (job,) = action.producer_jobs()
    data = store.job(job)
    (stage,) = spark.sparkContext.statusTracker().getJobInfo(job).stageIds
    # Until the stage runs, Spark shows the default pool.
    eventually(lambda: str(store.lastStageAttempt(stage).status()) == "ACTIVE")
    pool = store.lastStageAttempt(stage).schedulingPool()
    spark.sparkContext.cancelJobGroup("reports")
    action.join()
    assert data.jobGroup().get() == "reports"
    assert data.jobTags().mkString(",").count("nightly") == 1
    assert pool == "gold"
    assert "cancel" in action.error.lower()
    assert "HG-" not in action.error
    eventually(lambda: not producer_jobs(spark))


def test_a_cancelled_tag_takes_the_producers_with_it_and_no_other_action(spark, numbers):
    slow = exchange(numbers, by="k", num_partitions=1, map=sleep_long, schema=numbers.schema)
    action = Action(spark, lambda context: context.addJobTag("doomed"), slow.count)
    action.producer_jobs()
    spark.sparkContext.cancelJobsWithTag("doomed")
    action.join()
    assert "cancel" in action.error.lower()
    eventually(lambda: not producer_jobs(spark))
    assert exchange(numbers, by="k", num_partitions=1).count() == ROWS


def test_actions_run_in_two_pools_at_once(spark, numbers):
    def prepare(name):
        return lambda context: context.setLocalProperty("spark.scheduler.pool", name)

    actions = [
        Action(spark, prepare(name), exchange(numbers, by="k", num_partitions=1).count)
        for name in ("gold", "silver")
    ]
    for action in actions:
        action.join()
    assert [(action.error, action.rows) for action in actions] == [(None, ROWS)] * 2


def test_both_jobs_of_nested_exchanges_keep_the_group_and_their_tags(spark, numbers):
    inner = exchange(numbers, by="s", num_partitions=1, map=sleep_long, schema=numbers.schema)
    out = exchange(inner, by="k", num_partitions=1)
    action = Action(spark, lambda context: context.setJobGroup("both", "two exchanges"), out.count)
    jobs = action.producer_jobs(2)
    store = spark.sparkContext._jsc.sc().statusStore()
    groups = [store.job(job).jobGroup().get() for job in jobs]
    own = [
        [tag for tag in store.job(job).jobTags().mkString(",").split(",") if "headgate" in tag]
        for job in jobs
    ]
    spark.sparkContext.cancelJobGroup("both")
    action.join()
    assert groups == ["both", "both"]
    assert [len(tags) for tags in own] == [1, 1]
    eventually(lambda: not producer_jobs(spark))
