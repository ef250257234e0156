"""A worker acts on the tasks of its own exchange only, whatever it names: Spark says which those are."""

import logging
import threading
from types import SimpleNamespace

import pytest
from tests.driver.actors import EXCHANGE, OTHER, PLACE, TOTALS, Theatre, started
from tests.faults.patience import wait_until

from headgate.errors import ProtocolError
from headgate.spark.driver.runs.formation import ExchangeFacts, StageFacts
from headgate.spark.driver.waits.waiting import SlotFacts

pytest.importorskip("pyspark")

from headgate.spark.driver.scheduler import jobs as module
from headgate.spark.driver.scheduler.jobs import Jobs, Plan, tag
from headgate.spark.driver.timing import Timing

#: The RDDs that the consumers of both exchanges compute.
RDDS = {EXCHANGE: 70, OTHER: 80}


class Spark:
    """Spark's stages and tasks; records what it is asked to do."""

    def __init__(self, context=None):
        self.known = {}
        self.tags = {}
        self.tasks = {}
        self.killed = []

    def stages(self, stages, running_of):
        return {stage: self.known[stage] for stage in stages if stage in self.known}

    def stages_with_tag(self, tag):
        return {stage for stage, tags in self.tags.items() if tag in tags}

    def task(self, stage, attempt):
        return self.tasks.get((stage, attempt), ("", ""))

    def kill(self, attempt, reason):
        self.killed.append(attempt)

    def slots(self):
        return SlotFacts(50, 2)

    def blocked(self, stages):
        return 0


@pytest.fixture
def theatre():
    return Theatre(slots=50)


@pytest.fixture
def produced():
    return []


@pytest.fixture
def jobs(monkeypatch, theatre, produced):
    """The Spark side of the theatre's coordinator; requests run at once, in this thread."""
    monkeypatch.setattr(module, "SparkFacts", Spark)
    monkeypatch.setattr(module, "is_gone", lambda context: False)
    timing = Timing(verdict=0.2)
    server = SimpleNamespace(
        post=lambda action: action(), timing=timing, coordinator=theatre.coordinator
    )
    plans = {
        exchange: Plan(lambda *run: produced.append(run), "headgate x", "off", rdd)
        for exchange, rdd in RDDS.items()
    }
    nothing = module._nothing
    jobs = Jobs(server, SimpleNamespace(), plans, nothing, nothing, nothing)
    jobs._facts.known = {
        1: StageFacts("ACTIVE", 2, 0, frozenset({69, 70, 71}), frozenset({1, 2})),
        9: StageFacts("ACTIVE", 1, 0, frozenset({80}), frozenset({33})),
    }
    return jobs


def look(jobs, theatre):
    """Let the watching thread look at Spark once."""
    jobs.tick(theatre.coordinator)
    jobs._look()
    theatre.settle()


def silent(jobs, theatre, connection):
    """Let a worker fall silent, and carry out what the coordinator wants to be killed."""
    theatre.coordinator.silent(connection, "h", 10.0)
    theatre.settle()
    jobs.kill(theatre.killed.pop(), "silent")
    jobs._asked.get()()
    return jobs._facts.killed


def test_a_silent_consumer_is_killed(jobs, theatre):
    consumers, _, _ = started(theatre)
    jobs._facts.tasks[1, 1] = ("RUNNING", "")
    assert silent(jobs, theatre, consumers[0]) == [1]


@pytest.mark.parametrize("stage", [1, 9, 5], ids=["its stage", "another's stage", "no stage"])
def test_a_task_that_a_consumer_only_named_is_not_killed(jobs, theatre, stage, caplog):
    connection = theatre.consumer(0, stage=stage, attempt=33)
    jobs._facts.tasks[9, 33] = ("RUNNING", "")
    assert silent(jobs, theatre, connection) == []
    assert "task 33 of stage" in caplog.text
    assert f"no such task of exchange {EXCHANGE.hex()[:4]}" in caplog.text


def test_a_silent_producer_is_killed_if_its_stage_is_of_the_job_that_it_named(jobs, theatre):
    _, run, _ = started(theatre)
    jobs._facts.tasks = {(50, 8): ("RUNNING", ""), (60, 9): ("RUNNING", "")}
    jobs._facts.tags = {50: {tag(EXCHANGE, run.number, 0)}, 60: {tag(OTHER, run.number, 0)}}
    assert silent(jobs, theatre, theatre.producer(run, 1, attempt=8, stage=50)) == [8]
    assert silent(jobs, theatre, theatre.producer(run, 2, attempt=9, stage=60)) == [8]
    stale = theatre.producer(run, 3, attempt=8, stage=50, epoch=4)
    assert silent(jobs, theatre, stale) == [8]


def test_spark_is_asked_about_tasks_of_the_exchange_only(jobs, theatre):
    consumers, run, _ = started(theatre)
    foreign = theatre.producer(run, 1, attempt=33, stage=9)
    jobs._facts.tasks = {(9, 33): ("FAILED", "its secret text"), (1, 1): ("FAILED", "crashed")}
    for connection in (foreign, consumers[0]):
        member = theatre.coordinator.members[connection]
        jobs.ask_verdict(member)
        jobs._asked.get()()
    theatre.hang_up(foreign)
    theatre.hang_up(consumers[0])
    jobs._answer_verdicts()
    assert [member.attempt for member, _ in jobs._verdicts] == [33]


def test_a_consumer_that_names_a_stage_of_another_exchange_is_turned_away(jobs, theatre):
    connection = theatre.consumer(0, stage=9, attempt=33)
    look(jobs, theatre)
    message = theatre.last(connection)
    assert (message.kind, message["code"]) == ("ABORT", "HG-3004")
    assert "named stage 9" in message["summary"]
    theatre.wait(5.0)
    assert not theatre.submitted
    assert not theatre.coordinator.stages
    again = theatre.consumer(1, stage=9, attempt=34)
    assert theatre.last(again).kind == "ABORT"


def test_only_consumers_that_spark_runs_count_as_holders_of_slots(jobs, theatre):
    theatre.confirms = False
    for number in range(60):
        theatre.consumer(0, stage=1, partition=number, attempt=100 + number)
    real = theatre.consumer(1, stage=1, attempt=2)
    look(jobs, theatre)
    assert [c.attempt for c in theatre.coordinator.counted] == [2]
    assert theatre.coordinator.snapshot(SlotFacts(50, 2)).held == 1
    assert theatre.coordinator.members[real].is_confirmed


def test_another_exchange_delays_no_run(theatre):
    """Consumers that only name the stage of another exchange came again and again."""
    theatre.known[1] = StageFacts("ACTIVE", 9, 0)
    theatre.facts = lambda: {(OTHER, 1): theatre.known[1]}
    theatre.consumer(0, exchange=OTHER)
    for number in range(12):
        theatre.wait(0.1)
        theatre.consumer(0, partition=number)
    assert [run.exchange_id for run in theatre.submitted] == [OTHER]


def test_another_exchange_takes_no_outcome_away(theatre):
    """The same attempt under another exchange replaced the consumer that Spark was asked about."""
    consumers, run, _ = started(theatre)
    theatre.say(consumers[0], "STOPPED", TOTALS, run.number)
    thief = theatre.consumer(0, stage=7, exchange=OTHER, attempt=1)
    theatre.wait(1.1)
    theatre.say(thief, "STOPPED", TOTALS, theatre.submitted[-1].number, OTHER)
    asked = theatre.coordinator.outcomes.consumers
    assert set(asked) == {(EXCHANGE, 1), (OTHER, 1)}
    theatre.coordinator.task_ended(asked[EXCHANGE, 1], "FAILED", "ValueError: x", theatre.now)
    theatre.settle()
    assert run.cause is not None


def test_a_message_names_its_own_run_only(theatre):
    consumers, run, _ = started(theatre)
    stranger = theatre.consumer(0, stage=7, exchange=OTHER)
    for connection, exchange in ((stranger, OTHER), (consumers[0], EXCHANGE)):
        with pytest.raises(ProtocolError, match="of another run"):
            theatre.say(connection, "DONE", TOTALS, run.number + (exchange == EXCHANGE), exchange)
    producer = theatre.producer(run, 0, OTHER)
    assert theatre.last(producer)["code"] == "HG-2301"
    with pytest.raises(ProtocolError, match="of another run"):
        theatre.say(producer, "REGISTERED", PLACE, run.number, OTHER)


def test_a_kept_exchange_has_no_producers_or_consumers_that_connect(theatre):
    theatre.coordinator.exchanges[OTHER] = ExchangeFacts(0)
    with pytest.raises(ProtocolError, match="kept exchange"):
        theatre.say(1, "PRODUCER", {"stage": 1, "partition": 0, "attempt": 1}, exchange=OTHER)
    with pytest.raises(ProtocolError, match="subpartition 0, of 0"):
        theatre.consumer(0, exchange=OTHER)
    assert not theatre.coordinator.members


def submitted(jobs, theatre, run):
    """Start the producer job of a run, and wait until its thread has ended."""
    jobs.submit(run)
    name = f"headgate-job-{run.number}"
    wait_until(lambda: name not in {t.name for t in threading.enumerate()}, "the end of the job")
    theatre.settle()


def test_producers_that_no_action_asked_for_are_not_started(jobs, theatre, produced, caplog):
    caplog.set_level(logging.INFO, "headgate.spark")
    theatre.consumer(0, stage=1, attempt=77)  # in the right stage, which does not run it
    theatre.wait(1.1)
    (run,) = theatre.submitted
    submitted(jobs, theatre, run)
    assert produced == []
    ((_, epoch, cause),) = theatre.epochs
    assert (epoch, cause.code) == (0, "HG-3004")
    assert "no action asked for the producers" in cause.summary


def test_producers_of_a_consumer_that_spark_runs_are_started(jobs, theatre, produced):
    theatre.stage(1, 1)
    theatre.consumer(0, stage=1, attempt=2)
    (run,) = theatre.submitted
    jobs._join_action = lambda run: None
    jobs._context = SimpleNamespace(setJobDescription=str, addJobTag=str)
    submitted(jobs, theatre, run)
    assert produced == [(run.number, 0)]
