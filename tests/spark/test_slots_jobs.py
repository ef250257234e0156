"""Producers count as jobs of the action: its pool, its group, its tags; and a queue of real jobs."""

import logging
import sys
import threading
import time

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JJavaError
from pyspark import InheritableThread, cloudpickle
from pyspark.errors import PySparkException

from headgate.spark import exchange

# Workers cannot import what this file imports.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


ROWS = 20_000
#: Seconds for what takes one on a machine that has nothing else to do.
LONG = 120.0


def sleep_long(batches):
    for batch in batches:
        time.sleep(600)
        yield batch


def producer_jobs(spark):
    """The ids of the active jobs of producers."""
    tracker = spark.sparkContext.statusTracker()
    store = spark.sparkContext._jsc.sc().statusStore()
    described = {}
    for job in tracker.getActiveJobsIds():
        said = store.job(job).description()
        described[job] = said.get() if said.isDefined() else ""
    return [job for job, text in described.items() if text.startswith("headgate ")]


def eventually(condition, seconds=LONG):
    """Return the first true value of a condition."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return found


class Action:
    """Runs an action in a thread of its own, with local properties of its own."""

    def __init__(self, spark, prepare, action):
        self.error = None
        self.rows = None
        self._spark, self._context = spark, spark.sparkContext
        self._prepare, self._action = prepare, action
        self._thread = InheritableThread(target=self._act)
        self._thread.start()

    def _act(self):
        self._prepare(self._context)
        try:
            self.rows = self._action()
        except (Py4JJavaError, PySparkException) as error:
            self.error = str(error)

    def join(self):
        self._thread.join(LONG)
        assert not self._thread.is_alive()

    def producer_jobs(self, count=1):
        """Wait for so many producer jobs while the action goes on."""

        def found():
            jobs = producer_jobs(self._spark)
            assert len(jobs) >= count or self._thread.is_alive(), f"over: {self.error or self.rows}"
            return len(jobs) >= count and jobs

        return eventually(found)


def test_producers_keep_the_pool_the_group_and_the_tags_of_the_action(spark, numbers):
    def prepare(context):
        context.setLocalProperty("spark.scheduler.pool", "gold")
        context.setJobGroup("reports", "words of the user", interruptOnCancel=True)
        context.addJobTag("nightly")

    out = exchange(numbers, by="k", map=sleep_long)
    action = Action(spark, prepare, out.count)
    store = spark.sparkContext._jsc.sc().statusStore()
    (job,) = action.producer_jobs()
    data = store.job(job)
    (stage,) = spark.sparkContext.statusTracker().getJobInfo(job).stageIds
    pool = eventually(lambda: store.lastStageAttempt(stage)).schedulingPool()
    spark.sparkContext.cancelJobGroup("reports")
    action.join()
    assert data.jobGroup().get() == "reports"
    assert data.jobTags().mkString(",").count("nightly") == 1
    assert pool == "gold"
    assert "cancel" in action.error.lower()
    assert "HG-" not in action.error
    eventually(lambda: not producer_jobs(spark))


def test_a_cancelled_tag_takes_the_producers_with_it_and_no_other_action(spark, numbers):
    slow = exchange(numbers, by="k", num_partitions=1, map=sleep_long)
    action = Action(spark, lambda context: context.addJobTag("doomed"), slow.count)
    action.producer_jobs()
    spark.sparkContext.cancelJobsWithTag("doomed")
    action.join()
    assert "cancel" in action.error.lower()
    eventually(lambda: not producer_jobs(spark))
    assert exchange(numbers, by="k", num_partitions=1).count() == ROWS


def test_actions_in_two_pools_at_once(spark, numbers):
    def prepare(name):
        return lambda context: context.setLocalProperty("spark.scheduler.pool", name)

    actions = [
        Action(spark, prepare(name), exchange(numbers, by="k", num_partitions=1).count)
        for name in ("gold", "silver")
    ]
    for action in actions:
        action.join()
    assert [(action.error, action.rows) for action in actions] == [(None, ROWS)] * 2


def test_an_exchange_of_an_exchange_keeps_them_at_both_floors(spark, numbers):
    inner = exchange(numbers, by="s", num_partitions=1, map=sleep_long)
    out = exchange(inner, by="k", num_partitions=1)
    action = Action(spark, lambda context: context.setJobGroup("both", "two floors"), out.count)
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


def test_a_run_behind_tasks_of_another_job_waits_says_so_and_goes_on(spark, numbers, caplog):
    release = threading.Event()
    context = spark.sparkContext
    caplog.set_level(logging.INFO, "headgate.spark")

    def hold(rows):
        time.sleep(600)
        return rows

    def occupy():
        context.setJobGroup("others", "other people's work", interruptOnCancel=True)
        try:
            context.parallelize(range(3), 3).mapPartitions(hold).count()
        except (Py4JJavaError, PySparkException):
            release.set()  # cancelled below

    others = InheritableThread(target=occupy)
    others.start()
    scheduler = context._jsc.sc().taskScheduler()
    eventually(lambda: scheduler.rootPool().runningTasks() == 3)
    out = exchange(numbers, by="k", num_partitions=1, on_no_slots="error")
    action = Action(spark, lambda _: None, out.count)
    said = eventually(lambda: [r.getMessage() for r in caplog.records if "waits" in r.getMessage()])
    context.cancelJobGroup("others")
    action.join()
    others.join(LONG)
    assert release.is_set()
    assert (action.error, action.rows) == (None, ROWS)
    assert "by=[k] -> 1) waits 1" in said[0]
    assert "4 of 4 slots held: its own consumers 1, 3 tasks of other jobs" in said[0]
    assert "other people's work" in said[0]


@pytest.mark.parametrize("depth", [4])
def test_a_chain_of_as_many_exchanges_as_slots_is_told_the_numbers(spark, numbers, depth):
    out = numbers
    for _ in range(depth):
        out = exchange(out, by="k", num_partitions=1, on_no_slots="error")
    action = Action(spark, lambda _: None, out.count)
    action.join()
    assert "HG-2102" in action.error
    assert "all 4 slots are held" in action.error
    assert "run" in action.error
    assert exchange(numbers, by="k", num_partitions=1).count() == ROWS
