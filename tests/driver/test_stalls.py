"""A run that waits while slots are free and nothing moves fails, and names the cause."""

from dataclasses import replace

import pytest
from tests.driver.actors import EXCHANGE, OTHER, PLACE, Theatre, job_over, started

from headgate.spark.driver.timing import Timing
from headgate.spark.driver.waits.stalls import Evidence, JobThread
from headgate.spark.driver.waits.waiting import SlotFacts, Snapshot, StageTasks

STALLED = Timing().stall

LOOK = 0.5
PLANNING = {1: JobThread("Spark's driver to plan the input of its producers", "  in __get__")}


def tag(run):
    return f"headgate-{run.exchange_id.hex()}-{run.number}-{run.epoch}"


class Watch:
    """Polls a simulated Spark, as the driver's thread polls Spark.

    Args:
        theatre: theatre with the coordinator.
        there: number of slots.
        busy: number of running tasks, by default that of the consumers.
        stages: stages of Spark's scheduler.
    """

    def __init__(self, theatre, there=4, busy=None, stages=(), **facts):
        self.theatre = theatre
        self.there, self.busy, self.facts = there, busy, facts
        self.stages = list(stages)
        self.stacks, self.computes, self.jobs, self.excluded = "Thread-1: waits", False, {}, ()
        self.samples = 0

    def look(self):
        coordinator = self.theatre.coordinator
        residents = len([c for c in coordinator.consumers if c.is_present])
        busy = residents if self.busy is None else self.busy
        slots = SlotFacts(self.there, busy, **self.facts)
        coordinator.slots, coordinator.slot_facts = slots.there + slots.to_come, slots
        seen = Snapshot(
            coordinator.live_runs,
            coordinator.consumers,
            coordinator.blocked,
            slots,
            self.stages,
            lambda run: f"exchange {run.exchange_id.hex()[:4]}",
            self.excluded,
        )
        if coordinator.stalls.look(seen, self.theatre.now):
            self.samples += 1
            coordinator.stalls.judge(Evidence(seen, self.computes, self.stacks, self.jobs))
        self.theatre.settle()

    def after(self, seconds, at_each=None):
        """Advance the clock; return the causes of the runs that ended."""
        before = len(self.theatre.ended)
        for number in range(int(seconds / LOOK)):
            self.theatre.now += LOOK
            if at_each is not None:
                at_each(number)
            self.look()
        return [cause for _, cause in self.theatre.ended[before:]]


def one_run(partitions=2, slots=4, **more):
    theatre = Theatre(slots=slots, partitions=partitions, **more)
    theatre.stage(1, partitions)
    for index in range(partitions):
        theatre.consumer(index)
    (run,) = theatre.submitted
    return theatre, run


def test_a_run_whose_producers_are_never_planned_fails_after_a_minute():
    theatre, run = one_run()
    watch = Watch(theatre)
    watch.jobs = PLANNING
    assert not watch.after(STALLED - 1)
    (cause,) = watch.after(2)
    assert cause.code == "HG-2103"
    assert cause.summary == (
        f"run 1 (exchange {EXCHANGE.hex()[:4]}) waits for Spark's driver to plan the input of its "
        "producers; 2 slots are free and no task has started for 60 s"
    )
    assert cause.have.startswith("2 of 4 slots held: its own consumers 2")
    assert "in __get__" in cause.text
    assert theatre.cancelled == [run]


def test_the_stage_that_spark_does_not_start_is_named():
    theatre, run = one_run()
    stage = StageTasks(7, 0, "scan", frozenset({tag(run)}), pending=4)
    (cause,) = Watch(theatre, stages=[stage]).after(STALLED + 1)
    assert "waits for Spark to start 4 tasks of stage 7 of its producer job;" in cause.summary
    theatre, run = one_run()
    stage = replace(stage, tags=frozenset({tag(run)}), is_barrier=True)
    (cause,) = Watch(theatre, stages=[stage]).after(STALLED + 1)
    assert "of its producer job, a barrier stage: all 4 at once;" in cause.summary


@pytest.mark.parametrize("excluded", [(), ("1", "3")])
def test_executors_are_called_excluded_only_where_spark_says_so(excluded):
    theatre, _ = one_run()
    watch = Watch(theatre)
    watch.excluded = excluded
    (cause,) = watch.after(STALLED + 1)
    assert ("excluded" in cause.have) == bool(excluded)
    assert ("executors 1, 3 are excluded" in cause.have) == bool(excluded)


def test_of_a_chain_the_innermost_run_fails():
    theatre, outer = one_run(partitions=1, slots=8)
    theatre.stage(2, 1)
    theatre.consumer(0, stage=2, exchange=OTHER)
    inner = theatre.submitted[-1]
    # The inner consumers are tasks of the outer job, whose AQE waits for them.
    watch = Watch(theatre, there=8, stages=[StageTasks(2, 1, "", frozenset({tag(outer)}))])
    watch.jobs = {2: JobThread("its turn", "")}
    watch.after(STALLED + 1)
    assert [run for run, _ in theatre.ended] == [inner]
    assert "run 2" in theatre.ended[0][1].summary
    assert "waits for its turn;" in theatre.ended[0][1].summary


def test_a_run_without_a_free_slot_is_no_case_of_this():
    theatre, _ = one_run()
    assert not Watch(theatre, there=4, busy=4).after(10 * STALLED)


def test_a_task_of_whomever_is_waited_for():
    theatre, _ = one_run()
    watch = Watch(theatre, busy=3)
    assert not watch.after(10 * STALLED)
    watch.busy = 2
    assert not watch.after(STALLED - 1)
    assert watch.after(2)


def test_a_driver_that_computes_or_moves_is_waited_for():
    theatre, _ = one_run()
    watch = Watch(theatre)
    watch.computes = True
    assert not watch.after(10 * STALLED)
    watch.computes = False

    def move(number):
        watch.stacks = f"Thread-1: lists folder {number // 100}"

    assert not watch.after(10 * STALLED, move)
    assert watch.after(STALLED + 20)


def test_executors_of_another_profile_are_waited_for():
    theatre, run = one_run()
    stage = StageTasks(7, 0, "", frozenset({tag(run)}), pending=4, has_other_profile=True)
    assert not Watch(theatre, stages=[stage]).after(10 * STALLED)


def test_slots_that_come_and_go_start_the_minute_anew():
    theatre, _ = one_run()
    watch = Watch(theatre, there=4)
    for there in (5, 6, 5, 6):
        watch.there = there
        assert not watch.after(STALLED - 1)
    assert watch.after(2)


def test_a_wait_for_a_place_near_the_data_may_be_longer():
    theatre, _ = one_run()
    watch = Watch(theatre, locality_wait=100.0)
    assert not watch.after(299)
    assert watch.after(20)


def test_time_in_which_the_driver_was_stopped_does_not_count():
    theatre, _ = one_run()
    watch = Watch(theatre)
    watch.after(5)
    theatre.now += 3600
    assert not watch.after(STALLED - 10)
    assert watch.after(10)


def test_a_producer_that_works_is_waited_for_and_a_gap_between_two_waves_is_not():
    theatre = Theatre(slots=6)
    _, run, producer = started(theatre)
    watch = Watch(theatre, there=6, busy=3)
    assert not watch.after(10 * STALLED)
    theatre.done(producer, run.number)
    watch.busy = None
    assert not watch.after(STALLED - 1)
    assert watch.after(2)


def test_a_consumer_that_has_all_rows_may_reduce_for_as_long_as_it_likes():
    theatre = Theatre(slots=8)
    _, run, producer = started(theatre)
    theatre.done(producer, run.number)
    theatre.job_ended(run, [0])
    theatre.stage(2, 2)
    for index in (0, 1):
        theatre.consumer(index, stage=2, exchange=OTHER)
    # The other run's producers read the rows of the first run's consumers.
    watch = Watch(theatre, there=8)
    assert not watch.after(10 * STALLED)


def test_between_two_epochs_a_consumer_that_is_still_in_its_function_is_waited_for():
    theatre = Theatre(slots=6)
    consumers, run, producer = started(theatre)
    theatre.hang_up(producer)
    theatre.verdict("FAILED", "Python worker exited unexpectedly")
    job_over(theatre, run)
    theatre.say(consumers[0], "READY", run=run.number, epoch=0)
    watch = Watch(theatre, there=6)
    assert not watch.after(10 * STALLED)
    theatre.say(consumers[1], "READY", run=run.number, epoch=0)
    assert len(theatre.submitted) == 2  # the next epoch, whose job does not start
    assert watch.after(STALLED + 1)


def test_between_two_epochs_a_consumer_that_spark_does_not_start_again_is_named():
    theatre = Theatre(slots=6)
    consumers, run, _ = started(theatre)
    theatre.hang_up(consumers[1])
    theatre.verdict("FAILED", "ExecutorLostFailure")
    job_over(theatre, run)
    theatre.say(consumers[0], "READY", run=run.number, epoch=0)
    watch = Watch(theatre, there=6)
    watch.excluded = ("2",)
    (cause,) = watch.after(STALLED + 1)
    assert "waits for Spark to start consumers 1 again;" in cause.summary
    assert "executors 2 are excluded" in cause.have


def test_the_driver_is_looked_at_a_few_times_only():
    theatre, run = one_run()
    watch = Watch(theatre)
    watch.after(STALLED + 1)
    assert 6 <= watch.samples <= 7
    producer = theatre.producer(run, 0)
    theatre.say(producer, "REGISTERED", PLACE, run.number)
    assert run.is_over
