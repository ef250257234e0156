"""A run that waits for the slots of others says so, and one that can never run fails."""

import logging
import sys
import threading
import time

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JJavaError
from pyspark import InheritableThread, cloudpickle
from pyspark.errors import PySparkException
from tests.spark.actions import LONG, Action, eventually

from headgate.spark import exchange

# Workers cannot import what this file imports.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS = 20_000


@pytest.mark.usefixtures("whole_slots")
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
    out = exchange(numbers, by="k", num_partitions=1)
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


@pytest.mark.usefixtures("whole_slots")
def test_a_chain_of_as_many_exchanges_as_slots_fails_with_the_slot_counts(spark, numbers):
    out = numbers
    for _ in range(4):
        out = exchange(out, by="k", num_partitions=1)
    action = Action(spark, lambda _: None, out.count)
    action.join()
    assert "HG-2102" in action.error
    assert "all 4 slots are held" in action.error
    assert "run" in action.error
    assert exchange(numbers, by="k", num_partitions=1).count() == ROWS
