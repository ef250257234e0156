"""Cancelled jobs, with and without an interrupt, between good jobs in the same reused workers."""

import os
import sys
import threading
import time

import pytest
from pyspark import InheritableThread, cloudpickle
from tests.spark.masters import in_executors
from tests.spark.outcomes import outcome_of, rounds, wait_for, wait_for_executors

from headgate.spark import exchange, last_stats
from headgate.spark.driver.scheduler.jobs import Jobs

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = [
    in_executors,
]

#: Seconds within which all tasks of a cancelled job must end.
ENDS = 10.0


@pytest.fixture(autouse=True)
def all_slots(request):
    """Start each test with all slots, even after a lost executor."""
    if "spark" in request.fixturenames:
        wait_for_executors(request.getfixturevalue("spark"))


@pytest.fixture
def causes(monkeypatch):
    """Return the list of the causes of the runs that end, in order."""
    seen, ended_of = [], Jobs.ended

    def ended(self, run, cause):
        seen.append(cause)
        ended_of(self, run, cause)

    monkeypatch.setattr(Jobs, "ended", ended)
    return seen


def sleeping(folder):
    def sleep(batches):
        for batch in batches:
            (folder / f"{time.monotonic_ns()}").touch()
            time.sleep(120)
            yield batch

    return sleep


def streaming(folder):
    def stream(batches):
        (folder / f"{time.monotonic_ns()}").touch()
        for batch in batches:
            while True:
                yield batch

    return stream


def signed(folder):
    def sign(batches):
        (folder / str(os.getpid())).touch()
        yield from batches

    return sign


KINDS = [("map", sleeping), ("reduce", sleeping), ("map", streaming)]


def cancel_one(spark, result, group, interrupt, begun):
    """Start an action and cancel it once ``begun`` is true.

    Returns the text of its error, and its seconds after the cancellation.
    """
    texts = []

    def act():
        spark.sparkContext.setJobGroup(group, "to be cancelled", interruptOnCancel=interrupt)
        try:
            result.write.format("noop").mode("overwrite").save()
        except Exception as error:  # noqa: BLE001 - Spark's classes differ by mode
            texts.append(str(error))

    action = InheritableThread(target=act)
    action.start()
    assert wait_for(begun, 60)
    started = time.monotonic()
    spark.sparkContext.cancelJobGroup(group)
    action.join(ENDS)
    tracker = spark.sparkContext.statusTracker()
    assert wait_for(lambda: not list(tracker.getActiveJobsIds()), ENDS)
    assert not action.is_alive()
    return texts[0], time.monotonic() - started


@pytest.mark.timeout(1800)
def test_cancelled_jobs_between_good_ones(spark, numbers, tmp_path, causes):
    took, workers = [], set()
    for turn in range(rounds(2 * len(KINDS), 60)):
        role, kind = KINDS[turn % len(KINDS)]
        interrupt = turn // len(KINDS) % 2 == 1
        folder = tmp_path / f"{turn}"
        folder.mkdir()
        result = exchange(
            numbers, by="k", num_partitions=2, schema=numbers.schema, **{role: kind(folder)}
        )
        del causes[:]
        text, seconds = cancel_one(
            spark, result, f"group {turn}", interrupt, lambda f=folder: any(f.iterdir())
        )
        took.append(seconds)
        assert "cancel" in text.lower()
        assert "HG-" not in text
        assert all(cause is None or cause.is_cancelled for cause in causes)
        assert wait_for(lambda: last_stats().state != "running", ENDS)
        # A run whose consumers were all interrupted is done, as no consumer wants its rows.
        assert (last_stats().state, last_stats().error) in {("cancelled", "HG-2301"), ("done", "")}
        good = tmp_path / f"{turn} good"
        good.mkdir()
        assert (
            outcome_of(exchange(numbers, by="k", map=signed(good), schema=numbers.schema)) == "rows"
        )
        workers |= {path.name for path in good.iterdir()}
    took.sort()
    print(f"{len(took)} cancels: median {took[len(took) // 2]:.1f} s, longest {took[-1]:.1f} s")
    print(f"{len(workers)} worker processes ran the good jobs")


def test_a_cancelled_job_does_not_touch_its_neighbour(spark, numbers, tmp_path):
    slow = exchange(
        numbers.coalesce(1), by="k", num_partitions=1, map=sleeping(tmp_path), schema=numbers.schema
    )
    outcomes = []

    def neighbour():
        result = exchange(numbers.coalesce(1), by="k", num_partitions=1)
        outcomes.extend(outcome_of(result) for _ in range(2))

    thread = threading.Thread(target=neighbour)
    thread.start()
    cancel_one(spark, slow, "the slow one", False, lambda: any(tmp_path.iterdir()))
    thread.join(60)
    assert outcomes == ["rows", "rows"]
