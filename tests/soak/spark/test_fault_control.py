"""Messages between workers and the coordinator that are late, duplicated, cut off or damaged."""

import contextlib
import time

import pytest
from tests.driver.actors import PLACE, TOTALS, Theatre
from tests.faults.fault import Fault
from tests.faults.fault_proxy import FaultProxy
from tests.spark.masters import in_executors
from tests.spark.outcomes import outcome_of, rounds, wait_for, wait_for_executors

from headgate.control.cause import Cause
from headgate.errors import ProtocolError
from headgate.spark import exchange, last_stats
from headgate.spark.driver import application
from headgate.spark.driver.scheduler.jobs import tag
from headgate.spark.driver.timing import Timing

#: Minimum bytes on a task's control connection: to the coordinator, and back.
CONNECTION = (600, 600)


@pytest.fixture(autouse=True)
def all_slots(request):
    """Start each test with all slots, even after a lost executor."""
    if "spark" in request.fixturenames:
        wait_for_executors(request.getfixturevalue("spark"))


def said_twice(theatre, connection, kind, fields, run):
    """Send a message twice. The coordinator may refuse the second one and close the connection."""
    theatre.say(connection, kind, fields, run)
    try:
        theatre.say(connection, kind, fields, run)
    except ProtocolError:
        theatre.hang_up(connection)


def test_what_is_said_twice_counts_once_in_a_run_that_goes_well():
    theatre = Theatre()
    theatre.stage(1, 2)
    consumers = [theatre.consumer(index) for index in range(2)]
    (run,) = theatre.submitted
    producers = [theatre.producer(run, number) for number in range(2)]
    for producer in producers:
        said_twice(theatre, producer, "REGISTERED", PLACE, run.number)
        said_twice(theatre, producer, "PROGRESS", {"rows": 1, "bytes": 1}, run.number)
        said_twice(theatre, producer, "DONE", TOTALS, run.number)
        theatre.hang_up(producer)
        theatre.hang_up(producer)
    theatre.job_ended(run, [0, 1])
    assert [theatre.kinds(consumer).count("SEALED") for consumer in consumers] == [1, 1]
    for consumer in consumers:
        said_twice(theatre, consumer, "DONE", TOTALS, run.number)
        theatre.hang_up(consumer)
        theatre.hang_up(consumer)
    theatre.stage(1, 2, completed=2, status="COMPLETE")
    assert theatre.ended == [(run, None)]
    assert len(theatre.submitted) == 1
    assert not theatre.cancelled
    assert not theatre.asked
    theatre.wait(1.0)
    assert not theatre.coordinator.runs
    assert not theatre.coordinator.members


def test_what_is_said_twice_counts_once_in_a_run_that_fails():
    theatre = Theatre()
    theatre.stage(1, 2)
    consumers = [theatre.consumer(index) for index in range(2)]
    (run,) = theatre.submitted
    producer = theatre.producer(run, 0)
    said_twice(theatre, producer, "REGISTERED", PLACE, run.number)
    cause = Cause("HG-6001", "map raised ValueError: x", text="its traceback")
    said_twice(theatre, producer, "FAILED", cause.fields(), run.number)
    later = Cause("HG-6001", "a late one")
    for consumer in consumers:
        said_twice(theatre, consumer, "FAILED", later.fields(), run.number)
    theatre.job_ended(run, error=Cause("HG-6002", "the producer job failed"))
    aborts = [m for c in consumers for m in theatre.sent[c] if m.kind == "ABORT"]
    assert {message["summary"] for message in aborts} == {cause.summary}
    assert len(aborts) == 2
    assert [(r, c.summary) for r, c in theatre.ended] == [(run, cause.summary)]


def test_a_verdict_that_comes_late_or_twice_changes_nothing():
    theatre = Theatre()
    theatre.stage(1, 2)
    first, _ = (theatre.consumer(index) for index in range(2))
    (run,) = theatre.submitted
    producer = theatre.producer(run, 0)
    theatre.hang_up(producer)
    theatre.asked *= 3
    theatre.fail(first, "HG-6001", run.number, "reduce raised ValueError: x")
    while theatre.asked:
        theatre.verdict("FAILED", "exited unexpectedly")
    assert [cause.code for _, cause in theatre.ended] == ["HG-6001"]
    assert theatre.kinds(first).count("ABORT") <= 1


def test_a_job_that_is_cancelled_as_its_epoch_is_over_cancels_no_run():
    theatre = Theatre()
    theatre.stage(1, 2)
    for index in range(2):
        theatre.consumer(index)
    (run,) = theatre.submitted
    theatre.hang_up(theatre.producer(run, 0))
    text = f"Stage cancelled: Job 1 cancelled part of cancelled job tags {tag(run.exchange_id, run.number, 0)}"
    theatre.verdict("KILLED", text)
    theatre.wait(2 * Timing().better_cause)
    assert not run.is_over
    assert not run.roster.asks_spark


@pytest.fixture
def between(spark, monkeypatch):
    """Return a function that puts a proxy between the next exchange's workers and the coordinator."""
    owner = application.of(spark.sparkContext)
    with contextlib.ExitStack() as stack:

        def between(fault):
            proxy = stack.enter_context(FaultProxy(owner.host, owner._server.port, fault))
            monkeypatch.setattr(owner, "port", proxy.port)
            return proxy

        yield between


@in_executors
def test_a_coordinator_whose_answers_are_late(spark, numbers, between):
    proxy = between(None)
    proxy.delay(0.15)
    assert outcome_of(exchange(numbers, by="k", num_partitions=2)) == "rows"
    assert min(proxy.passed) > 1000


@in_executors
@pytest.mark.parametrize("turn", range(rounds(3, 200)))
@pytest.mark.timeout(180)
def test_a_connection_that_breaks_anywhere(spark, numbers, between, turn):
    seed = 3100 + turn
    fault = Fault.random(seed, [("cut", "reset", "flip")[turn % 3]], CONNECTION)
    proxy = between(fault)
    result = exchange(
        numbers, by="k", num_partitions=2, consumer_timeout="20s", heartbeat_timeout="3s"
    )
    started = time.monotonic()
    print(f"seed {seed}: {fault}")
    assert outcome_of(result) == "rows"
    print(f"it took {time.monotonic() - started:.1f} s")
    assert wait_for(lambda: last_stats().state != "running", 20)
    assert proxy.struck
