"""A failed run reports its first cause, once. Cancels are not reported as errors.

After each test, conftest checks for leftovers.
"""

import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from pyspark import cloudpickle
from tests.kit.masters import compares_rows, in_executors

from headgate.spark import exchange

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def message_of(action):
    """Run an action that must fail; return the text of its error."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's classes differ by mode
        action()
    return str(caught.value)


def wrong(batches):
    for batch in batches:
        if batch.num_rows:
            raise ValueError("the ledger is wrong")
        yield batch


@pytest.mark.parametrize("role", ["map", "reduce"])
def test_an_exception_is_the_cause_with_one_traceback_and_the_next_exchange_works(numbers, role):
    one, job = numbers.coalesce(1), {"by": "k", "schema": numbers.schema, "num_partitions": 1}
    cause = message_of(exchange(one, **job, **{role: wrong}).collect).split("\n\nDriver stack")[0]
    assert "ValueError: the ledger is wrong" in cause
    assert "in wrong" in cause
    assert cause.count("Traceback (most recent call last):\n  File") == 1
    assert cause.count('raise ValueError("the ledger is wrong")') == 1
    assert "Lost" not in cause.replace("Lost task", "")
    assert exchange(one, **job, **{role: iter}).toArrow().num_rows == 20_000


@pytest.mark.soak
@compares_rows
def test_a_selector_that_is_out_of_range(numbers):
    text = message_of(exchange(numbers, by=lambda b: [5] * b.num_rows).collect)
    assert "HG-4004" in text


@pytest.mark.soak
def test_an_error_of_spark_below_the_producers_is_the_cause(spark):
    wrong = "if(id % 15000 = 14999, raise_error(concat('row ', id)), 'fine') as r"
    df = spark.range(0, 60_000, 1, 4).selectExpr("id", wrong)
    text = message_of(exchange(df, by="id").collect)
    assert re.search("row (14|29|44|59)999", text)


@pytest.mark.soak
def test_an_error_of_spark_above_the_consumers_ends_the_producers(numbers):
    out = exchange(numbers, by="k").selectExpr("assert_true(id < 100, 'too large') as x")
    text = message_of(out.collect)
    assert "too large" in text


def once(folder, call):
    """Return a function of batches that calls ``call`` once, in the first process that gets rows."""

    def function(batches):
        for batch in batches:
            yield batch
            if batch.num_rows:
                try:
                    (folder / "done").touch(exist_ok=False)
                except FileExistsError:
                    continue
                call()

    return function


def kill_this_process():
    os.kill(os.getpid(), signal.SIGKILL)


def kill_the_executor():
    # The daemon that forked this worker is a child of the executor's JVM.
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    parent = next(x for x in status.splitlines() if x.startswith("PPid")).split()[1]
    # If the JVM has ended already, its id may belong to another process.
    command = Path(f"/proc/{parent}/cmdline").read_bytes()
    if b"CoarseGrainedExecutorBackend" in command:
        os.kill(int(parent), signal.SIGKILL)
    time.sleep(60)


def assert_all_rows(out):
    assert sorted(out.toArrow()["id"].to_pylist()) == list(range(20_000))


@in_executors
def test_a_producer_that_is_killed_once_costs_time_and_no_rows(numbers, tmp_path):
    kill = once(tmp_path, kill_this_process)
    assert_all_rows(exchange(numbers, by="k", map=kill, schema=numbers.schema))
    assert (tmp_path / "done").exists()


@pytest.mark.soak
@in_executors
@pytest.mark.parametrize("when", ["it has yielded", "it has yielded nothing"])
def test_a_consumer_that_is_killed_once_costs_time_and_no_rows(spark, numbers, tmp_path, when):
    kill = once(tmp_path, kill_this_process)

    def late(batches):
        yield from list(kill(batches))

    assert_all_rows(
        exchange(
            numbers,
            by="k",
            reduce=kill if when == "it has yielded" else late,
            schema=numbers.schema,
        )
    )


@pytest.mark.soak
@in_executors
@pytest.mark.parametrize("role", ["map", "reduce"])
def test_an_executor_that_is_killed_costs_time_and_no_rows(spark, numbers, tmp_path, role):
    assert_all_rows(
        exchange(
            numbers, by="k", schema=numbers.schema, **{role: once(tmp_path, kill_the_executor)}
        )
    )


#: Seconds that the function sleeps per batch.
SLEEP = 60.0


def sleep_long(batches):
    for batch in batches:
        time.sleep(SLEEP)
        yield batch


@pytest.mark.soak
@pytest.mark.parametrize("role", ["map", "reduce"])
def test_cancelled_jobs_do_not_wait_for_their_functions(spark, numbers, role):
    out = exchange(numbers, by="k", schema=numbers.schema, **{role: sleep_long})
    tracker = spark.sparkContext.statusTracker()
    cancelled = []

    def cancel():
        while not list(tracker.getActiveJobsIds()):
            time.sleep(0.1)
        time.sleep(1.5)
        cancelled.append(time.monotonic())
        spark.sparkContext.cancelAllJobs()

    thread = threading.Thread(target=cancel)
    thread.start()
    text = message_of(out.collect)
    thread.join()
    assert "cancel" in text.lower()
    assert "HG-" not in text
    while list(tracker.getActiveJobsIds()):
        assert time.monotonic() - cancelled[0] < SLEEP / 2
        time.sleep(0.05)
    assert exchange(numbers, by="k").count() == 20_000


def test_a_cancelled_group_takes_the_producers_with_it(spark, numbers):
    out = exchange(numbers, by="k", map=sleep_long, schema=numbers.schema)
    tracker = spark.sparkContext.statusTracker()
    texts = []

    def act():
        spark.sparkContext.setJobGroup("mine", "to be cancelled")
        texts.append(message_of(out.collect))

    from pyspark import InheritableThread

    thread = InheritableThread(target=act)
    thread.start()
    while not list(tracker.getActiveJobsIds()):
        time.sleep(0.1)
    time.sleep(1)
    spark.sparkContext.cancelJobGroup("mine")
    thread.join(10)
    assert not thread.is_alive()
    assert "cancel" in texts[0].lower()
