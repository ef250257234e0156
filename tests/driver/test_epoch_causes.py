"""The cause of a run's end: the first one, from the best source. No sockets, no Spark."""

import pytest
from tests.driver.actors import Theatre, flows, job_over, ready, started

from headgate.control.cause import Cause
from headgate.errors import ProtocolError
from headgate.spark.driver.runs.epoch_causes import Retries
from headgate.spark.driver.timing import Timing

GRACE, PATIENCE = Timing().better_cause, Timing().keep_job

GONE = "Python worker exited unexpectedly (crashed)"
#: As in local[n].
FINAL = Retries(tasks=1, epochs=4)


@pytest.fixture
def theatre():
    return Theatre()


def test_a_run_is_given_up_after_four_epochs_with_the_first_cause(theatre):
    (first, second), run, _ = started(theatre)
    for turn in range(4):
        theatre.fail(first, "HG-3005", run.number, f"damage {turn}", epoch=run.epoch)
        ready(theatre, run, first, second)
        job_over(theatre, run)
        theatre.settle()
        if turn < 3:
            theatre.producer(run, 0)
    assert not run.is_over, "a better cause may still arrive"
    theatre.wait(0.1)
    theatre.wait(GRACE)
    assert run.cause.summary == "damage 0"
    assert "given up after 4 epochs" in run.cause.have
    assert "damage 3" in run.cause.have
    assert len(theatre.submitted) == 4


def test_a_member_whose_bytes_were_altered_is_not_called_gone():
    theatre = Theatre(retries=Retries(tasks=1, epochs=1))
    _, run, producer = started(theatre)
    theatre.hang_up(producer, ProtocolError("a control frame was altered"))
    theatre.verdict("FAILED", "[HG-3008] the coordinator hung up")
    theatre.settle()
    assert run.cause.code == ProtocolError.code
    assert run.cause.summary.startswith("a control frame was altered: producer of partition 0")


def test_what_a_task_says_of_its_connection_is_read_in_the_words_of_spark():
    theatre = Theatre(retries=Retries(tasks=1, epochs=1))
    (first, _), run, _ = started(theatre)
    theatre.hang_up(first)
    theatre.verdict(
        "FAILED", "Traceback ...\nProtocolError: [HG-3004] a control frame was altered\n"
    )
    theatre.settle()
    assert run.cause.code == ProtocolError.code
    assert run.cause.summary.startswith("a control frame was altered: consumer of partition 0")


def test_the_tasks_that_spark_kills_after_the_last_try_do_not_hide_its_cause(theatre):
    (first, second), run, _ = started(theatre)
    for _ in range(3):
        theatre.hang_up(first)
        theatre.verdict("FAILED", GONE)
        ready(theatre, run, second)
        job_over(theatre, run)
        first = theatre.consumer(0)
        theatre.producer(run, 0)
    theatre.hang_up(first)
    theatre.hang_up(second)
    theatre.verdict("FAILED", GONE)
    theatre.verdict("KILLED", "Stage cancelled: Job aborted due to stage failure")
    theatre.settle()
    assert run.cause.code == "HG-3001"
    assert "given up after 4 epochs" in run.cause.have


def test_first_hand_words_replace_hearsay_of_the_same_epoch():
    theatre = Theatre(retries=Retries(tasks=1, epochs=1))
    (first, _second), run, producer = started(theatre)
    theatre.fail(first, "HG-3001", run.number, "connection reset")
    theatre.hang_up(producer)
    theatre.wait(GRACE + 1)
    assert not run.is_over, "Spark is asked about the producer"
    theatre.verdict("FAILED", GONE)
    theatre.settle()
    assert "a producer is gone without a goodbye" in run.cause.summary


def test_a_producer_that_ends_because_its_epoch_has_ended_is_no_cause():
    theatre = Theatre(retries=Retries(tasks=1, epochs=1))
    (first, _second), run, producer = started(theatre)
    theatre.fail(first, "HG-3005", run.number, "a page is damaged")
    theatre.say(producer, "READY", run=run.number)
    theatre.hang_up(producer)
    theatre.wait(0.1)
    theatre.wait(GRACE)
    assert run.cause.summary == "a page is damaged"


def test_a_producer_that_was_gone_before_its_job_was_cancelled_is_the_cause():
    theatre = Theatre(retries=Retries(tasks=1, epochs=1))
    (first, _second), run, producer = started(theatre)
    theatre.fail(first, "HG-3007", run.number, "nobody listens there")
    assert theatre.cancelled == [], "Spark's text for tasks it killed itself would hide the loss"
    theatre.hang_up(producer)
    theatre.wait(PATIENCE)
    assert theatre.cancelled == [run]
    theatre.verdict(
        "KILLED", f"Job 3 cancelled as part of cancelled job tags headgate-{run.number}"
    )
    theatre.settle()
    assert "a producer is gone without a goodbye" in run.cause.summary


def test_a_producer_that_ends_after_its_job_was_cancelled_says_nothing_of_the_cause():
    theatre = Theatre(retries=Retries(tasks=1, epochs=1))
    (first, _second), run, producer = started(theatre)
    theatre.fail(first, "HG-3005", run.number, "a page is damaged")
    theatre.wait(PATIENCE)
    theatre.hang_up(producer)  # its function held the GIL, so it never read EPOCH_ENDED
    theatre.verdict(
        "KILLED", f"Job 3 cancelled as part of cancelled job tags headgate-{run.number}"
    )
    theatre.wait(GRACE)
    assert run.cause.summary == "a page is damaged"


def test_a_first_hand_error_of_the_user_ends_the_run_whatever_the_epoch(theatre):
    (first, second), run, producer = started(theatre)
    theatre.fail(first, "HG-6002", run.number, "the producer failed")
    theatre.fail(producer, "HG-6001", run.number, "map raised ValueError: x")
    assert run.is_over
    assert run.cause.summary == "map raised ValueError: x"
    assert theatre.last(second).kind == "ABORT"


def test_where_spark_tries_nothing_again_a_consumer_that_has_yielded_is_final():
    theatre = Theatre(retries=FINAL)
    (first, second), run, producer = started(theatre)
    theatre.hang_up(producer)
    ready(theatre, run, second)
    theatre.say(first, "YIELDED", run=run.number)
    theatre.verdict("FAILED", GONE)
    theatre.settle()
    assert run.cause.code == "HG-3001"
    assert "crashed" in run.cause.text
    assert theatre.last(first).kind == theatre.last(second).kind == "ABORT"


def test_where_spark_tries_nothing_again_a_lost_producer_is_tried_by_us():
    theatre = Theatre(retries=FINAL)
    (first, second), run, producer = started(theatre)
    theatre.hang_up(producer)
    ready(theatre, run, first, second)
    theatre.verdict("FAILED", GONE)
    theatre.job_ended(run, error=Cause("HG-3001", "gone", text=GONE), epoch=0)
    theatre.settle()
    flows(theatre, run)


def test_where_spark_tries_nothing_again_a_lost_consumer_is_final():
    theatre = Theatre(retries=FINAL)
    (_, second), run, _ = started(theatre)
    theatre.hang_up(second)
    theatre.verdict("FAILED", GONE)
    assert run.cause.code == "HG-3001"


def test_where_spark_tries_nothing_again_an_error_of_its_own_is_final():
    theatre = Theatre(retries=FINAL)
    (_first, _), run, producer = started(theatre)
    theatre.hang_up(producer)
    theatre.verdict("FAILED", "org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO]")
    theatre.job_ended(run, error=Cause("HG-6002", "divide by zero"), epoch=0)
    assert run.cause.code == "HG-6002"


def test_a_killed_producer_cancels_the_run_unless_a_reason_comes_to_be_known(theatre):
    (_first, _), run, producer = started(theatre)
    theatre.hang_up(producer)
    theatre.verdict("KILLED")
    assert not run.is_over
    theatre.wait(0.1)
    theatre.wait(GRACE)
    assert run.cause.is_cancelled


def test_a_stage_that_spark_gave_up_fails_the_run_with_what_ended_the_epoch(theatre):
    _, run, producer = started(theatre)
    theatre.hang_up(producer)
    theatre.verdict("FAILED", GONE)
    theatre.stage(1, 2, status="FAILED")
    assert run.cause.code == "HG-3001"
