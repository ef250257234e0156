"""Log lines on waiting runs; a circle of waiting runs is broken, and a queue is left alone."""

import logging

import pytest
from tests.driver.actors import EXCHANGE, OTHER, Theatre

from headgate.spark.driver.runs.formation import ExchangeFacts
from headgate.spark.driver.timing import Timing
from headgate.spark.driver.waits.waiting import (
    SlotFacts,
    Snapshot,
    StageTasks,
    Waiting,
)

PATIENCE = 20.0
CIRCLE, EVERY, WORRYING = Timing().deadlock, Timing().report, Timing().worrying


def say(theatre, **facts):
    """Set the facts of Spark's scheduler on slots."""
    slots = SlotFacts(**{"patience": PATIENCE, **facts})
    theatre.coordinator.slots = slots.there + slots.to_come
    theatre.coordinator.slot_facts = slots
    theatre.settle()


def tag(run):
    return f"headgate-{run.exchange_id.hex()}-{run.number}"


class Log:
    """Asks a theatre's coordinator, as the driver's thread does."""

    def __init__(self, theatre, *stages):
        self.theatre = theatre
        self.stages = list(stages)
        self.waiting = Waiting(Timing())

    def lines(self):
        """Return the lines that are due now."""
        coordinator = self.theatre.coordinator
        if not self.waiting.is_due(coordinator.live_runs, self.theatre.now):
            return []
        slots = coordinator.slot_facts or SlotFacts(coordinator.slots, coordinator.slots)
        runs, consumers = coordinator.live_runs, coordinator.consumers
        seen = Snapshot(runs, consumers, coordinator.blocked, slots, self.stages, _name)
        return self.waiting.lines(seen, self.theatre.now)

    def after(self, seconds):
        """Advance the clock and ask as often as the driver's thread does; return the lines."""
        found, step = [], 0.5
        for _ in range(int(seconds / step)):
            self.theatre.wait(step)
            found += self.lines()
        return found


def _name(run):
    return f"exchange {run.exchange_id.hex()[:4]} by=[k] -> 2"


def one_run(slots=4, **more):
    theatre = Theatre(slots=slots, **more)
    theatre.stage(1, 2)
    theatre.consumer(0)
    theatre.consumer(1)
    (run,) = theatre.submitted
    return theatre, run


def test_a_queue_behind_other_jobs_is_named_every_ten_seconds_with_its_numbers():
    theatre, run = one_run()
    say(theatre, there=4, busy=4)
    log = Log(theatre, StageTasks(1, 2), StageTasks(17, 2, "collect at report.py:3"))
    said = log.after(25)
    assert [text for _, text in said] == [
        f"run 1 (exchange {EXCHANGE.hex()[:4]} by=[k] -> 2) waits {seconds} s for a slot: 4 of 4 "
        "slots held: its own consumers 2, 2 tasks of other jobs (stage 17 'collect at report.py:3')"
        for seconds in (10, 20)
    ]
    assert not theatre.ended
    assert sorted(run.roster.consumers) == [0, 1]


def test_long_waiting_is_a_warning():
    theatre, _ = one_run()
    say(theatre, there=4, busy=4)
    log = Log(theatre, StageTasks(1, 2), StageTasks(17, 2))
    levels = [level for level, _ in log.after(WORRYING + 2 * EVERY)]
    assert levels[0] == logging.INFO
    assert levels[-1] == logging.WARNING
    assert len(levels) <= 5


def test_a_short_wait_is_not_worth_a_line():
    theatre, run = one_run()
    log = Log(theatre)
    say(theatre, there=4, busy=4)
    assert not log.after(EVERY - 1)
    theatre.producer(run, 0)
    assert not log.after(3 * EVERY)


def test_a_run_whose_job_computes_the_input_of_its_producers_waits_for_no_slot():
    theatre, run = one_run()
    say(theatre, there=4, busy=4)
    log = Log(theatre, StageTasks(1, 2), StageTasks(2, 2, tags=frozenset({tag(run)})))
    assert not log.after(3 * EVERY)
    # The tag of a job may have a suffix after the number of the run.
    log.stages[1] = StageTasks(2, 2, tags=frozenset({f"{tag(run)}-1"}))
    assert not log.after(3 * EVERY)
    log.stages[1] = StageTasks(2, 2, tags=frozenset({f"{tag(run)}1"}))
    assert log.after(3 * EVERY)


def test_in_a_chain_each_run_says_whom_it_waits_for():
    theatre, outer = one_run(slots=6)
    # The outer producers read an exchange themselves: its consumers are tasks of the outer job.
    theatre.stage(2, 2)
    theatre.consumer(0, stage=2, exchange=OTHER)
    theatre.consumer(1, stage=2, exchange=OTHER)
    say(theatre, there=6, busy=6)
    tags = frozenset({tag(outer)})
    log = Log(theatre, StageTasks(1, 2), StageTasks(2, 2, tags=tags), StageTasks(9, 2, "count"))
    first, second = (text for _, text in log.after(EVERY + 1))
    assert first.endswith("waits 10 s for run 2, whose rows its producers read")
    assert second.endswith(
        "waits 10 s for a slot: 6 of 6 slots held: run 1's consumers 2, its own consumers 2, "
        "2 tasks of other jobs (stage 9 'count')"
    )


def test_producers_of_other_runs_and_slots_that_may_come_are_named():
    theatre, first = one_run(slots=6)
    theatre.producer(first, 0)
    theatre.stage(3, 2)
    theatre.consumer(0, stage=3, exchange=OTHER)
    theatre.consumer(1, stage=3, exchange=OTHER)
    say(theatre, there=5, busy=5, to_come=4, words="3 executors x 3 cores at most")
    log = Log(theatre, StageTasks(9, 1, tags=frozenset({tag(first)})))
    ((_, text),) = log.after(EVERY + 1)
    assert (
        "5 of 5 slots held: run 1's consumers 2, its own consumers 2, run 1's producers 1" in text
    )
    assert text.endswith("; 4 more may come (3 executors x 3 cores at most)")


def test_a_slot_that_spark_leaves_free_is_said_to_be_free():
    theatre, _ = one_run()
    say(theatre, there=4, busy=3)
    ((_, text),) = Log(theatre, StageTasks(1, 2), StageTasks(5, 1)).after(EVERY + 1)
    assert "3 of 4 slots held" in text
    assert "does not use the other 1 yet" in text


def test_however_many_run_and_wait_the_log_stays_short():
    theatre = Theatre(slots=100, partitions=1)
    for stage in range(1, 21):
        theatre.stage(stage, 1)
        theatre.consumer(0, stage=stage)
    say(theatre, there=100, busy=100)
    stages = [StageTasks(n, 4, "x" * 500) for n in range(50, 70)]
    said = Log(theatre, *stages).after(EVERY + 1)
    assert len(said) == 4
    assert said[-1][1] == "17 more runs wait"
    assert all("and 17 more stages" in text for _, text in said[:3])
    assert max(len(text) for _, text in said) < 1000


def test_a_circle_is_broken_within_ten_seconds_by_failing_one_run_with_the_numbers():
    theatre = Theatre(slots=4)
    theatre.stage(1, 2)
    theatre.stage(2, 2)
    for stage, exchange in ((1, EXCHANGE), (2, OTHER)):
        for index in (0, 1):
            theatre.consumer(index, stage=stage, exchange=exchange)
    say(theatre, there=4, busy=4)
    began = theatre.now
    while not theatre.ended:
        theatre.wait(0.25)
        assert theatre.now - began < 10
    ((run, cause),) = theatre.ended
    assert run is theatre.submitted[-1]
    assert cause.code == "HG-2102"
    assert cause.summary == "all 4 slots are held by consumers that wait for a producer"
    assert "run 1's consumers 2, its own consumers 2" in cause.have
    assert "num_partitions" in cause.remedy


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_queue_is_never_broken(partitions):
    theatre = Theatre(slots=4, partitions=partitions)
    theatre.stage(1, partitions)
    for index in range(partitions):
        theatre.consumer(index)
    say(theatre, there=4, busy=4)  # other jobs hold the remaining slots
    theatre.wait(3600.0)
    assert not theatre.ended


def test_consumers_on_the_slots_that_are_left_are_a_circle_once_no_more_come():
    theatre, run = one_run()
    say(theatre, there=2, busy=2, to_come=2, words="2 executors x 2 cores asked for")
    theatre.wait(PATIENCE - 1)
    assert not theatre.ended
    theatre.wait(1 + CIRCLE)
    ((failed, cause),) = theatre.ended
    assert failed is run
    assert cause.summary.startswith("all 2 slots are held")
    assert "2 more may come (2 executors x 2 cores asked for)" in cause.have


@pytest.mark.parametrize("count", [4, 12])
def test_consumers_with_a_share_of_a_core_hold_no_slot(count):
    theatre = Theatre(slots=4, partitions=count, holds_slots=False)
    theatre.stage(1, count)
    for index in range(count):
        theatre.consumer(index)
    raw = SlotFacts(there=4, busy=count)
    seen = theatre.coordinator.snapshot(raw)
    assert (seen.slots.busy, seen.slots.free, seen.held) == (0, 4, 0)
    assert len(seen.residents) == count
    say(theatre, there=4, busy=seen.slots.busy)
    said = Log(theatre, StageTasks(1, count)).after(EVERY + 1)
    assert "0 of 4 slots held; Spark does not use the other 4 yet" in said[0][1]
    theatre.wait(3600.0)
    assert not theatre.ended


def test_consumers_of_both_kinds_are_told_apart():
    theatre = Theatre(slots=4)
    theatre.coordinator.exchanges[OTHER] = ExchangeFacts(2, holds_slots=False)
    for stage, exchange in ((1, EXCHANGE), (2, OTHER)):
        theatre.stage(stage, 2)
        for index in range(2):
            theatre.consumer(index, stage=stage, exchange=exchange)
    seen = theatre.coordinator.snapshot(SlotFacts(there=4, busy=4))
    assert (seen.slots.busy, seen.held) == (2, 2)


def test_slots_that_come_in_time_end_the_waiting():
    theatre, _ = one_run()
    say(theatre, there=2, busy=2, to_come=2)
    theatre.wait(PATIENCE - 1)
    say(theatre, there=4, busy=2)
    theatre.wait(3600.0)
    assert not theatre.ended


def test_each_new_slot_is_patiently_waited_for_again():
    theatre, _ = one_run(slots=8)
    theatre.consumer(0, stage=2, exchange=OTHER)
    say(theatre, there=2, busy=2, to_come=4)
    theatre.wait(PATIENCE - 1)
    say(theatre, there=3, busy=3, to_come=3)
    theatre.wait(PATIENCE - 1)
    assert not theatre.ended
    theatre.wait(2.0)
    assert theatre.ended


def test_an_application_that_has_lost_all_executors_waits_for_spark():
    theatre, run = one_run()
    for connection in (1, 2):
        theatre.hang_up(connection)
    say(theatre, there=0, busy=0, to_come=4)
    theatre.wait(PATIENCE * 3)
    assert not [cause for _, cause in theatre.ended if cause and cause.code == "HG-2102"]
    assert run.number == 1


def test_a_task_that_spark_knows_and_we_do_not_is_no_circle():
    theatre = Theatre(slots=2)
    theatre.stage(1, 2)
    theatre.consumer(0)
    theatre.consumer(1)
    # One of the three tasks runs on an executor that takes no new tasks: its slot is not usable.
    say(theatre, there=2, busy=3)
    theatre.wait(60.0)
    assert not theatre.ended
    say(theatre, there=2, busy=2)
    theatre.wait(CIRCLE + 1)
    assert theatre.ended
