"""A failed run reports its first cause, once. Limits and cancels are not reported as errors.

After each test, conftest checks for leftovers.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from tests.spark.masters import in_executors

from headgate.spark import exchange, last_stats

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def message_of(action):
    """Run an action that must fail; return the text of its error."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's classes differ by mode
        action()
    return str(caught.value)


def raise_in_map(batches):
    for _ in batches:
        raise ValueError("the map is wrong")
        yield


def raise_in_reduce(batches):
    for batch in batches:
        if batch.num_rows:
            raise KeyError("the reduce is wrong")
        yield batch


def test_an_exception_in_map_is_the_cause_with_one_traceback(spark, numbers):
    text = message_of(exchange(numbers, by="k", map=raise_in_map, schema=numbers.schema).collect)
    cause = text.split("\n\nDriver stacktrace")[0]
    assert "HG-6001" in cause
    assert "map raised ValueError: the map is wrong" in cause
    assert "in raise_in_map" in cause
    assert cause.count("Traceback (most recent call last):\n  File") <= 2
    assert cause.count('raise ValueError("the map is wrong")') == 1
    assert stats_of_the_end().state == "failed"
    assert stats_of_the_end().error == "HG-6001"


def test_an_exception_in_reduce_is_the_cause(numbers):
    text = message_of(
        exchange(numbers, by="k", reduce=raise_in_reduce, schema=numbers.schema).collect
    )
    cause = text.split("\n\nDriver stacktrace")[0]
    assert "the reduce is wrong" in cause
    assert "in raise_in_reduce" in cause
    assert "Lost" not in cause.replace("Lost task", "")


def test_spark_retries_get_the_cause_without_new_producers(spark, numbers, tmp_path):
    def count_and_raise(batches):
        (tmp_path / f"{time.monotonic_ns()}-{os.getpid()}").touch()
        yield from raise_in_map(batches)

    message_of(exchange(numbers, by="k", map=count_and_raise, schema=numbers.schema).collect)
    # Two producers run at once, and their successors may have started. If Spark's second attempt
    # had started producers anew, there would be up to 8.
    assert 1 <= len(list(tmp_path.iterdir())) <= 4


@pytest.mark.soak
def test_a_map_that_returns_another_schema(numbers):
    def other(batches):
        for batch in batches:
            yield batch.rename_columns(["id", "wrong", "s"])

    text = message_of(exchange(numbers, by="k", map=other, schema=numbers.schema).collect)
    assert "HG-4003" in text
    assert "wrong" in text


@pytest.mark.soak
def test_a_selector_that_is_out_of_range(numbers):
    text = message_of(exchange(numbers, by=lambda b: [5] * b.num_rows).collect)
    assert "HG-4004" in text


def test_a_selector_that_raises_is_the_users_own_error(numbers):
    def choose(batch):
        raise KeyError(batch.num_rows)

    text = message_of(exchange(numbers, by=choose).collect)
    assert "in choose" in text
    assert stats_of_the_end().error == "HG-6001"


@pytest.mark.soak
def test_a_pool_that_is_too_small_is_an_error(numbers):
    out = exchange(numbers, by="k", memory="64k", segment_size="64k")
    text = message_of(out.collect)
    assert "HG-5001" in text
    assert "memory" in text


@pytest.mark.soak
def test_an_error_of_spark_below_the_producers_is_the_cause(spark):
    wrong = "if(id % 15000 = 14999, raise_error(concat('row ', id)), 'fine') as r"
    df = spark.range(0, 60_000, 1, 4).selectExpr("id", wrong)
    text = message_of(exchange(df, by="id").collect)
    assert stats_of_the_end().error == "HG-6002"
    assert "row " in text


@pytest.mark.soak
def test_an_error_of_spark_above_the_consumers_ends_the_producers(numbers):
    out = exchange(numbers, by="k").selectExpr("assert_true(id < 100, 'too large') as x")
    text = message_of(out.collect)
    assert "too large" in text


def stats_of_the_end():
    """Wait for the end of the last run, which may come after the action's; return its statistics."""
    deadline = time.monotonic() + 10
    while (stats := last_stats()).state == "running" and time.monotonic() < deadline:
        time.sleep(0.05)
    return stats


def kill_itself(batches):
    for batch in batches:
        yield batch
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.soak
@pytest.mark.parametrize("role", ["map", "reduce"])
def test_a_process_that_is_killed_each_time_fails_the_run_by_name(spark, numbers, role):
    text = message_of(
        exchange(numbers, by="k", schema=numbers.schema, **{role: kill_itself}).collect
    )
    stats = stats_of_the_end()
    assert stats.state == "failed"
    # A consumer may notice the loss first, when it connects.
    assert stats.error in {"HG-3001", "HG-3007"}
    assert "HG-300" in text or "exited unexpectedly" in text
    if stats.error == "HG-3001" and "HG-3001" in text:
        assert "without a goodbye" in text


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


def whole(batches):
    yield from list(batches)


def test_a_producer_that_is_killed_once_costs_time_and_no_rows(numbers, tmp_path):
    # On local[4] Spark retries no task, so the consumers must not have yielded any rows.
    kill = once(tmp_path, kill_this_process)
    assert_all_rows(exchange(numbers, by="k", map=kill, reduce=whole, schema=numbers.schema))
    assert (stats_of_the_end().state, stats_of_the_end().epoch) == ("done", 1)


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


def test_where_spark_tries_nothing_again_a_killed_consumer_fails_the_run_by_name(
    spark, numbers, tmp_path
):
    if not spark.sparkContext.master.startswith("local["):
        pytest.skip("this master retries tasks; the test above covers it")
    text = message_of(
        exchange(
            numbers, by="k", reduce=once(tmp_path, kill_this_process), schema=numbers.schema
        ).collect
    )
    assert "exited unexpectedly" in text
    summary = stats_of_the_end().error_summary
    assert "a consumer is gone without a goodbye: consumer of partition" in summary


@pytest.mark.soak
@in_executors
@pytest.mark.parametrize("role", ["map", "reduce"])
def test_an_executor_that_is_killed_costs_time_and_no_rows(spark, numbers, tmp_path, role):
    assert_all_rows(
        exchange(
            numbers, by="k", schema=numbers.schema, **{role: once(tmp_path, kill_the_executor)}
        )
    )


@pytest.mark.soak
@in_executors
def test_rows_placed_by_their_order_are_not_mixed_with_those_of_another_epoch(spark, tmp_path):
    # One partition is complete when the process of the other one is killed.
    unordered = spark.range(0, 20_000, 1, 7).selectExpr("id").repartition(5, "id")

    def last_one_dies(batches):
        rows = list(batches)
        yield from rows
        if any(0 in batch["id"].to_pylist() for batch in rows):
            time.sleep(3)
            try:
                (tmp_path / "done").touch(exist_ok=False)
            except FileExistsError:
                return
            kill_this_process()

    text = message_of(exchange(unordered, reduce=last_one_dies, schema=unordered.schema).collect)
    assert "HG-3005" in text
    assert "a new run could place rows differently" in text


def endless(batches):
    for batch in batches:
        while True:
            yield batch


@pytest.mark.soak
def test_a_limit_ends_endless_producers_as_a_success(numbers):
    out = exchange(numbers, by="k", map=endless, schema=numbers.schema)
    assert len(out.take(5)) == 5
    stats = stats_of_the_end()
    assert (stats.state, stats.error) == ("done", "")
    assert len(out.limit(100).collect()) == 100


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
        while len(list(tracker.getActiveJobsIds())) < 2:
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
    while len(list(tracker.getActiveJobsIds())) < 2:
        time.sleep(0.1)
    time.sleep(1)
    spark.sparkContext.cancelJobGroup("mine")
    thread.join(10)
    assert not thread.is_alive()
    assert "cancel" in texts[0].lower()


@pytest.mark.soak
@pytest.mark.usefixtures("whole_slots")
def test_consumers_that_can_never_get_a_producer_fail_with_the_slot_counts(spark, numbers):
    out = exchange(numbers, by="k")
    text = message_of(out.union(exchange(numbers, by="s")).collect)
    assert "HG-2102" in text
    assert "all 4 slots are held" in text


def test_an_exchange_works_after_one_that_failed(numbers):
    message_of(exchange(numbers, by="k", map=raise_in_map, schema=numbers.schema).collect)
    out = exchange(numbers, by="k", reduce=lambda it: it, schema=numbers.schema)
    assert out.count() == 20_000
    assert isinstance(out.toArrow(), pa.Table)
