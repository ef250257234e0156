"""Producer jobs have the pool, job group and tags of the action, and wait behind other jobs."""

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
#: Limit in seconds for a step that takes one second on an idle machine.
LONG = 120.0


def sleep_long(batches):
    for batch in batches:
        time.sleep(600)
        yield batch


def producer_jobs(spark):
    """Return the ids of the active producer jobs."""
    tracker = spark.sparkContext.statusTracker()
    store = spark.sparkContext._jsc.sc().statusStore()
    described = {}
    for job in tracker.getActiveJobsIds():
        said = store.job(job).description()
        described[job] = said.get() if said.isDefined() else ""
    return [job for job, text in described.items() if text.startswith("headgate ")]


def eventually(condition, seconds=LONG):
    """Poll a condition until it is true; return its value."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return found


class Action:
    """Runs an action in a new thread, with its own local properties of Spark."""

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
        """Wait until the action has ``count`` producer jobs; return their ids."""

        def found():
            jobs = producer_jobs(self._spark)
            assert len(jobs) >= count or self._thread.is_alive(), (
                f"it ended: {self.error or self.rows}"
            )
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
    inner = exchange(numbers, by="s", num_partitions=1, map=sleep_long)
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


def test_a_run_waits_for_tasks_of_another_job_and_logs_it(spark, numbers, caplog):
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
def test_a_chain_of_as_many_exchanges_as_slots_fails_with_the_slot_counts(spark, numbers, depth):
    out = numbers
    for _ in range(depth):
        out = exchange(out, by="k", num_partitions=1, on_no_slots="error")
    action = Action(spark, lambda _: None, out.count)
    action.join()
    assert "HG-2102" in action.error
    assert "all 4 slots are held" in action.error
    assert "run" in action.error
    assert exchange(numbers, by="k", num_partitions=1).count() == ROWS
