"""Runs: consumers, producers in waves, one first cause. No sockets, no Spark, no real clock."""

import pytest
from tests.driver.actors import EXCHANGE, OTHER, PLACE, TOTALS, Theatre, started

from headgate.control.cause import CANCELLED, Cause
from headgate.errors import ProtocolError


@pytest.fixture
def theatre():
    return Theatre()


def test_consumers_are_started_by_the_first_producer_and_told_where_each_one_is(theatre):
    (first, second), run, _ = started(theatre)
    assert theatre.kinds(first) == theatre.kinds(second) == ["START", "PARTITION"]
    late = theatre.producer(run, 1)
    assert theatre.last(late)["wanted"] == [0, 1]
    theatre.say(late, "REGISTERED", {**PLACE, "port": 10}, run.number)
    assert theatre.last(first)["port"] == 10


def test_a_run_goes_well(theatre):
    consumers, run, producer = started(theatre)
    theatre.done(producer, run.number)
    assert theatre.kinds(producer) == ["GO", "OK"]
    theatre.job_ended(run, [0])
    assert theatre.last(consumers[0]).kind == "SEALED"
    assert theatre.last(consumers[0])["producers"] == 1
    for consumer in consumers:
        theatre.done(consumer, run.number)
    assert theatre.ended == [(run, None)]
    assert not theatre.cancelled
    theatre.wait(1.0)
    assert not theatre.coordinator.runs
    assert not theatre.coordinator.members


def test_no_producer_at_all_seals_too(theatre):
    theatre.stage(1, 2)
    consumers = [theatre.consumer(0), theatre.consumer(1)]
    theatre.job_ended(theatre.submitted[0], [])
    assert theatre.kinds(consumers[1]) == ["START", "SEALED"]


def test_a_result_without_a_proof_that_its_rows_were_taken_fails_the_run(theatre):
    consumers, run, _ = started(theatre)
    theatre.job_ended(run, [0, 1])
    assert theatre.last(consumers[0]).kind == "ABORT"
    assert theatre.last(consumers[0])["code"] == "HG-3005"


def test_only_the_partitions_of_this_run_are_wanted(theatre):
    theatre.stage(1, 1)
    theatre.consumer(1)
    producer = theatre.producer(theatre.submitted[0], 0)
    assert theatre.last(producer)["wanted"] == [1]


def test_a_second_attempt_of_a_producer_waits(theatre):
    _, run, producer = started(theatre)
    copy = theatre.producer(run, 0)
    assert theatre.kinds(copy) == ["WAIT"]
    theatre.done(producer, run.number)
    theatre.hang_up(copy)
    theatre.job_ended(run, [0])
    assert run.cause is None


def test_a_producer_run_again_after_its_rows_were_taken_ends_quietly(theatre):
    _, run, producer = started(theatre)
    theatre.done(producer, run.number)
    again = theatre.producer(run, 0)
    assert theatre.kinds(again) == ["FINISH"]
    theatre.hang_up(again)
    theatre.job_ended(run, [0])
    assert run.cause is None


def test_the_first_cause_ends_everybody_once_and_answers_retries(theatre):
    (first, second), run, producer = started(theatre)
    theatre.fail(producer, "HG-6001", run.number, "map raised ValueError: x")
    theatre.fail(second, "HG-6001", run.number, "another one")
    assert theatre.last(first).kind == "ABORT"
    assert theatre.last(first)["summary"] == "map raised ValueError: x"
    assert theatre.last(first)["text"] == "its traceback"
    assert theatre.kinds(first).count("ABORT") == 1
    assert theatre.cancelled == [run]
    retry = theatre.consumer(0)
    assert theatre.kinds(retry) == ["ABORT"]
    assert theatre.last(retry)["summary"] == "map raised ValueError: x"
    assert theatre.kinds(theatre.producer(run, 0)) == ["ABORT"]
    assert len(theatre.submitted) == 1


def test_cancelling_the_job_is_repeated_until_it_has_ended(theatre):
    _, run, producer = started(theatre)
    theatre.fail(producer, "HG-6001", run.number)
    theatre.wait(1.1)
    theatre.wait(1.1)
    assert theatre.cancelled == [run] * 3
    theatre.job_ended(run, error=CANCELLED)
    theatre.wait(1.1)
    assert theatre.cancelled == [run] * 3
    assert theatre.ended[0][1].code == "HG-6001"


def test_a_failed_job_without_a_word_of_a_worker_is_the_cause(theatre):
    (first, _), run, _ = started(theatre)
    theatre.job_ended(run, error=Cause("HG-6002", "the producer job failed: divide by zero"))
    assert theatre.last(first)["code"] == "HG-6002"


def test_a_cancelled_job_is_no_failure(theatre):
    (first, _), run, _ = started(theatre)
    theatre.job_ended(run, error=CANCELLED)
    assert theatre.last(first)["code"] == "HG-2301"
    assert run.cause.is_cancelled


def test_a_consumer_that_stops_early_releases_its_partition(theatre):
    (first, _), run, producer = started(theatre)
    theatre.say(first, "STOPPED", TOTALS, run.number)
    assert theatre.last(producer).kind == "CONSUMER_GONE"
    assert theatre.last(producer)["index"] == 0
    assert theatre.last(theatre.producer(run, 1))["wanted"] == [1]


def test_a_reduce_that_ends_before_its_input_does_counts_as_stopped(theatre):
    (first, _), run, producer = started(theatre)
    theatre.done(first, run.number)
    assert theatre.last(producer).kind == "CONSUMER_GONE"


def test_when_nobody_wants_more_producers_end_quietly(theatre):
    consumers, run, producer = started(theatre)
    for consumer in consumers:
        theatre.say(consumer, "STOPPED", TOTALS, run.number)
    assert theatre.last(producer).kind == "FINISH"
    assert theatre.kinds(theatre.producer(run, 1)) == ["FINISH"]
    theatre.hang_up(producer)
    theatre.job_ended(run, [0, 1])
    assert theatre.ended == [(run, None)]
    assert not theatre.asked
    assert not theatre.cancelled


def test_producers_that_do_not_end_quietly_are_cancelled_and_it_is_still_a_success(theatre):
    consumers, run, _ = started(theatre)
    for consumer in consumers:
        theatre.say(consumer, "STOPPED", TOTALS, run.number)
    theatre.wait(1.0)
    assert not theatre.cancelled
    theatre.wait(2.1)
    assert theatre.cancelled == [run]
    theatre.job_ended(run, error=CANCELLED)
    assert theatre.ended == [(run, None)]


@pytest.mark.parametrize(("status", "cause"), [("SUCCESS", None), ("KILLED", "HG-2301")])
def test_consumers_gone_without_a_goodbye_after_a_limit_or_a_cancel(theatre, status, cause):
    consumers, run, _ = started(theatre)
    for consumer in consumers:
        theatre.hang_up(consumer)
    while theatre.asked:
        theatre.verdict(status)
    theatre.wait(3.0)
    assert run.is_over
    assert (run.cause.code if run.cause else None) == cause


def test_a_cancelled_stage_ends_the_run_quietly(theatre):
    (first, second), run, producer = started(theatre)
    theatre.stage(1, 2, status="FAILED")
    for connection in (first, second, producer):
        assert theatre.last(connection)["code"] == "HG-2301"
    assert theatre.cancelled == [run]


def test_a_stage_that_ended_well_needs_no_more_rows(theatre):
    (_first, _), run, producer = started(theatre)
    theatre.stage(1, 2, completed=2, status="COMPLETE")
    assert theatre.last(producer).kind == "FINISH"
    theatre.job_ended(run, [])
    assert run.cause is None


def test_a_stop_is_quiet_where_spark_says_so(theatre):
    (first, second), run, _producer = started(theatre)
    theatre.say(first, "STOPPED", TOTALS, run.number)
    theatre.hang_up(first)
    (doubted,) = theatre.coordinator.outcomes.consumers.values()
    theatre.coordinator.task_ended(doubted, "SUCCESS", "", theatre.now)
    theatre.settle()
    assert not theatre.coordinator.outcomes.consumers
    assert run.cause is None
    assert theatre.kinds(second) == ["START", "PARTITION"]


def test_a_task_that_failed_above_its_consumer_fails_the_run_and_its_retries(theatre):
    (first, second), run, producer = started(theatre)
    theatre.say(first, "STOPPED", TOTALS, run.number)
    theatre.hang_up(first)
    retry = theatre.consumer(0)
    assert theatre.kinds(retry) == ["WAIT"]
    (doubted,) = theatre.coordinator.outcomes.consumers.values()
    theatre.coordinator.task_ended(doubted, "FAILED", "assertion failed: too large", theatre.now)
    theatre.settle()
    for connection in (second, producer, retry):
        assert theatre.last(connection)["text"] == "assertion failed: too large"
    assert theatre.kinds(theatre.consumer(0)) == ["ABORT"]


def test_a_second_attempt_whose_first_one_is_a_zombie_is_answered(theatre):
    (first, _), _run, _ = started(theatre)
    retry = theatre.consumer(0)
    assert theatre.kinds(retry) == ["WAIT"]
    (doubted,) = theatre.coordinator.outcomes.consumers.values()
    theatre.coordinator.task_ended(doubted, "FAILED", "boom", theatre.now)
    theatre.settle()
    assert theatre.kinds(retry) == ["WAIT", "ABORT"]
    assert theatre.last(first).kind == "ABORT"


def test_a_second_attempt_takes_over_when_the_first_was_killed(theatre):
    (first, _), run, _ = started(theatre)
    theatre.say(first, "STOPPED", TOTALS, run.number)
    copy = theatre.consumer(0)
    (doubted,) = theatre.coordinator.outcomes.consumers.values()
    theatre.coordinator.task_ended(doubted, "KILLED", "", theatre.now)
    theatre.wait(1.1)
    assert theatre.kinds(copy) == ["WAIT"]
    assert theatre.submitted[-1].roster.wanted == [0]


def test_closing_aborts_those_that_wait_and_those_that_run(theatre):
    (first, _), _, producer = started(theatre)
    waiting = theatre.consumer(0, stage=2)
    theatre.coordinator.close()
    theatre.settle()
    for connection in (first, producer, waiting):
        assert theatre.last(connection)["code"] == "HG-2301"


def test_a_producer_acts_only_on_a_run_of_its_own_exchange(theatre):
    _, run, _ = started(theatre)
    stranger = theatre.producer(run, 5, exchange=OTHER)
    assert theatre.last(stranger)["code"] == "HG-2301"
    assert 5 not in run.roster.producers


def test_unexpected_messages_are_refused(theatre):
    (first, _), run, producer = started(theatre)
    for connection, kind, fields, number in (
        (first, "REGISTERED", PLACE, run.number),
        (producer, "DONE", TOTALS, run.number + 1),
        (producer, "START", {"indexes": [0]}, run.number),
        (999, "DONE", TOTALS, 0),
    ):
        with pytest.raises(ProtocolError):
            theatre.say(connection, kind, fields, number)
    with pytest.raises(ProtocolError, match="subpartition 2, of 2"):
        theatre.consumer(2)
    assert run.exchange_id == EXCHANGE
