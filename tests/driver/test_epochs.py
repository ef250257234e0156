"""Epochs: a loss ends one for all, the next begins when all are back. No sockets, no Spark."""

import pytest
from tests.driver.actors import EXCHANGE, PLACE, TOTALS, Theatre, flows, job_over, ready, started

from headgate.spark.driver.runs.epoch_causes import Retries
from headgate.spark.driver.runs.epochs import RunState

GONE = "Python worker exited unexpectedly (crashed)"
#: As in local[n].
FINAL = Retries(tasks=1, epochs=4)


@pytest.fixture
def theatre():
    return Theatre()


def test_a_lost_producer_ends_the_epoch_at_once_for_all_and_the_next_one_works(theatre):
    (first, second), run, producer = started(theatre)
    other = theatre.producer(run, 1)
    theatre.hang_up(producer)
    for connection in (first, second, other):
        assert theatre.last(connection).kind == "EPOCH_ENDED"
        assert theatre.last(connection).epoch == 0
        assert "gone without a goodbye" in theatre.last(connection)["summary"]
    assert theatre.cancelled == [run]
    assert [(r, e) for r, e, _ in theatre.epochs] == [(run, 0)]
    ready(theatre, run, first, second)
    theatre.verdict("FAILED", GONE)
    assert len(theatre.submitted) == 1, "the old job has not ended"
    job_over(theatre, run)
    theatre.settle()
    assert theatre.submitted == [run, run]
    late = theatre.producer(run, 0)
    assert theatre.last(first).kind == "START"
    assert theatre.last(first).epoch == 1
    theatre.hang_up(late)
    theatre.verdict("FAILED", GONE)
    ready(theatre, run, first, second)
    job_over(theatre, run)
    theatre.settle()
    flows(theatre, run)


def test_nothing_of_an_old_epoch_gets_in(theatre):
    (first, second), run, producer = started(theatre)
    other = theatre.producer(run, 1)
    theatre.hang_up(producer)
    # Sent before it received the end of the epoch.
    theatre.say(other, "REGISTERED", PLACE, run.number)
    theatre.say(other, "DONE", TOTALS, run.number)
    assert theatre.kinds(first)[-1] == "EPOCH_ENDED"
    zombie = theatre.producer(run, 2, epoch=0)
    assert theatre.last(zombie)["code"] == "HG-2301"
    ready(theatre, run, first, second)
    theatre.verdict("FAILED", GONE)
    # The end of the old job does not count as the end of the new one.
    theatre.job_ended(run, [0, 1], epoch=0)
    theatre.settle()
    assert run.state is RunState.FORMING
    flows(theatre, run)


def test_consumers_that_have_yielded_fail_their_tasks_and_come_back_as_further_attempts(theatre):
    (first, second), run, producer = started(theatre)
    theatre.hang_up(producer)
    theatre.say(first, "YIELDED", run=run.number)
    ready(theatre, run, second)
    theatre.verdict("FAILED", GONE)
    job_over(theatre, run)
    theatre.settle()
    assert theatre.last(first).kind == "ABORT"
    assert "gone without a goodbye" in theatre.last(first)["summary"]
    theatre.hang_up(first)
    theatre.wait(5)
    assert len(theatre.submitted) == 1, "the first consumer is not back"
    back = theatre.consumer(0)
    theatre.settle()
    assert theatre.submitted == [run, run]
    theatre.producer(run, 0)
    assert theatre.last(back).kind == "START"
    assert theatre.last(second).epoch == 1


def test_a_lost_consumer_ends_the_epoch_and_its_next_attempt_takes_its_place(theatre):
    (first, second), run, producer = started(theatre)
    theatre.hang_up(second)
    theatre.verdict("FAILED", GONE)
    assert theatre.last(first).kind == theatre.last(producer).kind == "EPOCH_ENDED"
    assert "a consumer is gone without a goodbye" in theatre.last(first)["summary"]
    job_over(theatre, run)
    ready(theatre, run, first)
    assert len(theatre.submitted) == 1
    theatre.consumer(1)
    theatre.settle()
    assert theatre.submitted == [run, run]
    flows(theatre, run)


def test_the_next_attempt_of_a_consumer_says_what_became_of_the_first_one(theatre):
    (_first, second), run, _producer = started(theatre)
    theatre.hang_up(second)
    assert theatre.asked
    theatre.consumer(1)
    assert run.state is RunState.RECOVERING
    theatre.verdict("RUNNING")
    assert run.roster.consumers[1].is_present


def test_a_consumer_lost_after_the_seal_costs_the_others_nothing(theatre):
    (first, second), run, producer = started(theatre)
    theatre.done(producer, run.number)
    theatre.job_ended(run, [0])
    theatre.hang_up(second)
    theatre.verdict("FAILED", GONE)
    assert theatre.kinds(first)[-1] == "SEALED"
    theatre.consumer(1)
    theatre.wait(1.1)
    again = theatre.submitted[-1]
    assert again is not run
    assert again.roster.wanted == [1]
    theatre.done(first, run.number)
    assert run.cause is None
    flows(theatre, again)


def test_a_consumer_that_has_finished_is_not_asked_for_again(theatre):
    (first, second), run, producer = started(theatre)
    theatre.say(second, "STOPPED", TOTALS, run.number)
    theatre.hang_up(producer)
    theatre.verdict("FAILED", GONE)
    ready(theatre, run, first)
    job_over(theatre, run)
    theatre.settle()
    assert theatre.last(theatre.producer(run, 0))["wanted"] == [0]


def test_what_is_heard_from_a_peer_ends_the_epoch_too(theatre):
    (first, second), run, producer = started(theatre)
    theatre.fail(first, "HG-3005", run.number, "a page is damaged")
    for connection in (first, second, producer):
        assert theatre.last(connection).kind == "EPOCH_ENDED"
    ready(theatre, run, first, second)
    job_over(theatre, run)
    theatre.settle()
    flows(theatre, run)


def test_a_silent_consumer_ends_the_epoch_and_is_killed(theatre):
    (first, second), run, _ = started(theatre)
    theatre.coordinator.silent(second, "host", 10.0)
    theatre.settle()
    assert [member.index for member in theatre.killed] == [1]
    assert "no heartbeat for 10 s" in theatre.last(first)["summary"]
    ready(theatre, run, first)
    job_over(theatre, run)
    theatre.consumer(1)
    theatre.settle()
    flows(theatre, run)


def test_a_loss_before_any_producer_came_leaves_consumers_where_they_are(theatre):
    theatre.stage(1, 2)
    first, second = theatre.consumer(0), theatre.consumer(1)
    (run,) = theatre.submitted
    theatre.hang_up(second)
    theatre.verdict("FAILED", GONE)
    assert theatre.kinds(first) == [], "the consumer has not been started"
    job_over(theatre, run)
    theatre.consumer(1)
    theatre.settle()
    assert len(theatre.submitted) == 2
    flows(theatre, run)


def test_when_the_last_consumer_stops_between_two_epochs_the_run_is_done(theatre):
    (first, second), run, producer = started(theatre)
    theatre.hang_up(producer)
    theatre.verdict("FAILED", GONE)
    ready(theatre, run, first)
    theatre.say(second, "STOPPED", TOTALS, run.number)
    theatre.say(first, "STOPPED", TOTALS, run.number)
    job_over(theatre, run)
    theatre.settle()
    assert run.is_over
    assert run.cause is None


def test_rows_whose_place_depends_on_timing_are_never_mixed(theatre):
    theatre.coordinator.indeterminate.add(EXCHANGE)
    (first, second), run, producer = started(theatre)
    theatre.done(producer, run.number)
    theatre.job_ended(run, [0])
    theatre.done(first, run.number)
    theatre.hang_up(second)
    theatre.verdict("FAILED", GONE)
    again = theatre.consumer(1)
    theatre.wait(1.1)
    assert theatre.last(again)["code"] == "HG-3005"
    assert "could place rows differently" in theatre.last(again)["summary"]
    assert len(theatre.submitted) == 1


def test_rows_whose_place_depends_on_timing_may_all_begin_again(theatre):
    theatre.coordinator.indeterminate.add(EXCHANGE)
    (first, second), run, producer = started(theatre)
    theatre.hang_up(producer)
    theatre.verdict("FAILED", GONE)
    ready(theatre, run, first, second)
    job_over(theatre, run)
    theatre.settle()
    flows(theatre, run)


def test_a_job_that_is_submitted_while_it_is_being_cancelled_is_cancelled_again(theatre):
    (first, second), run, producer = started(theatre)
    theatre.hang_up(producer)
    theatre.verdict("FAILED", GONE)
    ready(theatre, run, first, second)
    theatre.wait(1.1)
    theatre.wait(1.1)
    assert theatre.cancelled == [run] * 3
    job_over(theatre, run)
    theatre.wait(1.1)
    assert theatre.cancelled == [run] * 3
