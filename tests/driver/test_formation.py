"""The forming of runs from consumers, and the freeing of slots when consumers hold all of them."""

import pytest
from tests.driver.actors import EXCHANGE, OTHER, PLACE, TOTALS, Theatre


def test_a_run_forms_when_all_tasks_of_the_stage_are_there():
    theatre = Theatre()
    theatre.stage(1, 2)
    theatre.consumer(0)
    assert not theatre.submitted
    theatre.consumer(1)
    (run,) = theatre.submitted
    assert sorted(run.roster.consumers) == [0, 1]


def test_take_runs_one_partition_only():
    theatre = Theatre(partitions=4, slots=8)
    theatre.stage(1, 1)
    theatre.consumer(2)
    assert theatre.submitted[0].roster.wanted == [2]


def test_tasks_that_have_ended_otherwise_count():
    theatre = Theatre(slots=8)
    theatre.stage(1, 5, completed=2)
    theatre.consumer(0)
    theatre.consumer(1)
    assert not theatre.submitted
    theatre.stage(1, 5, completed=3)
    assert len(theatre.submitted) == 1


def test_a_run_forms_when_nothing_new_comes_for_a_second():
    theatre = Theatre(slots=8)
    theatre.stage(1, 100)
    theatre.consumer(0)
    theatre.wait(0.9)
    assert not theatre.submitted
    theatre.wait(0.2)
    assert len(theatre.submitted) == 1


def test_without_a_word_of_spark_a_second_is_enough():
    theatre = Theatre()
    theatre.consumer(0)
    theatre.wait(1.1)
    assert len(theatre.submitted) == 1


def test_a_late_consumer_joins_before_the_first_producer_and_gets_its_own_run_after():
    theatre = Theatre(slots=8, partitions=3)
    theatre.consumer(0)
    theatre.wait(1.1)
    (run,) = theatre.submitted
    theatre.consumer(1)
    assert sorted(run.roster.consumers) == [0, 1]
    theatre.producer(run, 0)
    theatre.consumer(2)
    theatre.wait(1.1)
    assert [sorted(run.roster.consumers) for run in theatre.submitted] == [[0, 1], [2]]


def test_two_exchanges_in_one_stage_form_two_runs_at_once():
    theatre = Theatre(slots=8)
    theatre.stage(1, 4)
    for partition, exchange in enumerate((EXCHANGE, EXCHANGE, OTHER, OTHER)):
        theatre.consumer(partition % 2, partition=partition, exchange=exchange)
    assert [run.exchange_id for run in theatre.submitted] == [EXCHANGE, OTHER]


def test_the_same_index_twice_in_a_stage_forms_two_runs():
    theatre = Theatre(slots=8)
    theatre.stage(1, 4)
    for partition in range(4):
        theatre.consumer(partition % 2, partition=partition)
    assert [sorted(run.roster.consumers) for run in theatre.submitted] == [[0, 1], [0, 1]]


def test_a_speculative_copy_of_a_consumer_waits_and_never_yields_nothing():
    theatre = Theatre(slots=8)
    theatre.stage(1, 2)
    theatre.consumer(0)
    theatre.consumer(1)
    copy = theatre.consumer(1)
    assert theatre.kinds(copy) == ["WAIT"]
    assert len(theatre.submitted) == 1


def test_partitions_of_one_coalesced_task_come_one_after_the_other():
    theatre = Theatre()
    theatre.stage(1, 1)
    first = theatre.consumer(0, partition=0, attempt=7)
    (run,) = theatre.submitted
    theatre.job_ended(run, [])
    theatre.done(first, run.number)
    second = theatre.consumer(1, partition=0, attempt=7)
    assert len(theatre.submitted) == 2
    assert theatre.submitted[1].roster.wanted == [1]
    assert second != first


def full(theatre, runs=2):
    """Start ``runs`` runs of two consumers each; return their connections."""
    theatre.stage(1, 2 * runs)
    return [[theatre.consumer(i, partition=2 * n + i) for i in range(2)] for n in range(runs)]


def test_when_consumers_hold_all_slots_one_run_hands_over():
    theatre = Theatre(slots=4)
    (a, b), (c, d) = full(theatre)
    assert theatre.kinds(b) == ["END"]
    assert theatre.kinds(a) == theatre.kinds(c) == theatre.kinds(d) == []
    assert len(theatre.warned) == 1
    assert "HG-2101" in theatre.warned[0]
    assert "4 slots" in theatre.warned[0]
    theatre.hang_up(b)
    first, second = theatre.submitted
    producer = theatre.producer(first, 0)
    assert theatre.last(a)["indexes"] == [0, 1]
    assert theatre.last(producer)["wanted"] == [0, 1]
    # The other run waits for the slot, so no further consumer is handed over.
    theatre.wait(5.0)
    assert sorted(second.roster.consumers) == [0, 1]


def test_handing_over_goes_on_until_a_producer_fits():
    theatre = Theatre(slots=2)
    theatre.stage(1, 2)
    a, b = theatre.consumer(0), theatre.consumer(1)
    assert theatre.kinds(b) == ["END"]
    theatre.hang_up(b)
    c = theatre.consumer(0, stage=2)
    theatre.wait(1.1)
    # Each consumer holds a slot, and none is free for a producer or can be handed over: a circle.
    assert not theatre.ended
    theatre.wait(2.1)
    (run, cause), *_ = theatre.ended
    assert cause.code == "HG-2102"
    assert run.stage == 2
    assert theatre.last(c).kind == "ABORT"
    theatre.hang_up(c)
    theatre.wait(5.0)
    assert len(theatre.ended) == 1
    theatre.producer(theatre.submitted[0], 0)
    assert theatre.last(a)["indexes"] == [0, 1]


def test_a_run_that_can_end_is_waited_for():
    theatre = Theatre(slots=3)
    theatre.stage(1, 2)
    a, b = theatre.consumer(0), theatre.consumer(1)
    (run,) = theatre.submitted
    theatre.job_ended(run, [])
    theatre.consumer(0, stage=2)
    theatre.wait(10.0)
    assert not theatre.ended
    theatre.done(a, run.number)
    theatre.done(b, run.number)
    assert theatre.ended == [(run, None)]


def test_a_producer_inside_a_consumer_task_frees_nothing():
    theatre = Theatre(slots=4)
    theatre.stage(1, 2)
    theatre.consumer(0)
    theatre.consumer(1)
    (outer,) = theatre.submitted
    # The outer producers are the tasks in which the inner consumers wait.
    theatre.stage(2, 2)
    theatre.consumer(0, stage=2, exchange=OTHER, attempt=100)
    assert theatre.kinds(theatre.producer(outer, 0, attempt=100, stage=2)) == ["GO"]
    given = theatre.consumer(1, stage=2, exchange=OTHER, attempt=101)
    assert theatre.kinds(given) == ["END"]
    assert theatre.kinds(theatre.producer(outer, 1, attempt=101, stage=2)) == ["GO"]


def test_on_error_nothing_is_handed_over():
    theatre = Theatre(slots=2, may_hand_over=False)
    theatre.stage(1, 2)
    a, b = theatre.consumer(0), theatre.consumer(1)
    theatre.wait(2.1)
    assert theatre.last(a)["code"] == theatre.last(b)["code"] == "HG-2102"
    assert not theatre.warned


def test_a_stage_tried_again_keeps_to_what_was_handed_over():
    theatre = Theatre(slots=2)
    theatre.stage(1, 2)
    a, b = theatre.consumer(0), theatre.consumer(1)
    theatre.hang_up(b)
    (run,) = theatre.submitted
    theatre.job_ended(run, [])
    theatre.done(a, run.number)
    again = theatre.consumer(1)
    assert theatre.kinds(again) == ["END"]
    theatre.hang_up(again)
    home = theatre.consumer(0)
    theatre.wait(1.1)
    assert theatre.submitted[1].roster.wanted == [0, 1]
    theatre.producer(theatre.submitted[1], 0)
    assert theatre.last(home)["indexes"] == [0, 1]


@pytest.mark.parametrize("persisting", [True, False])
def test_another_stage_keeps_to_it_only_while_something_is_persisted(persisting):
    theatre = Theatre(slots=2)
    theatre.coordinator.formation.owners.persisting(persisting)
    theatre.stage(1, 2)
    a, b = theatre.consumer(0), theatre.consumer(1)
    theatre.hang_up(b)
    (run,) = theatre.submitted
    theatre.job_ended(run, [])
    theatre.done(a, run.number)
    theatre.wait(1.0)
    other = theatre.consumer(1, stage=9)
    theatre.wait(1.1)
    assert theatre.kinds(other) == (["END"] if persisting else [])
    assert len(theatre.submitted) == (1 if persisting else 2)


def test_tasks_that_wait_for_a_cached_partition_hold_slots_too():
    theatre = Theatre(slots=4)
    theatre.coordinator.formation.owners.persisting(anything=True)
    theatre.stage(1, 2)
    theatre.consumer(0)
    b = theatre.consumer(1)
    assert not theatre.kinds(b)
    theatre.coordinator.blocked = 2
    theatre.settle()
    assert theatre.kinds(b) == ["END"]


def test_two_stages_that_cache_one_result_each_wait_for_the_other():
    theatre = Theatre(slots=4)
    theatre.coordinator.formation.owners.persisting(anything=True)
    theatre.stage(1, 2)
    theatre.stage(2, 2)
    a = theatre.consumer(0, stage=1)
    b = theatre.consumer(1, stage=2)
    theatre.wait(1.1)
    assert len(theatre.submitted) == 2
    theatre.coordinator.blocked = 2
    theatre.settle()
    assert theatre.kinds(b) == ["END"]
    theatre.hang_up(b)
    theatre.producer(theatre.submitted[0], 0)
    assert theatre.last(a)["indexes"] == [0, 1]
    again = theatre.consumer(1, stage=1)
    assert theatre.kinds(again) == ["END"]
    theatre.wait(2.1)
    assert theatre.submitted[1] in theatre.cancelled
    assert theatre.submitted[1].cause is None


def test_without_anything_cached_stages_do_not_mix():
    theatre = Theatre(slots=2)
    theatre.stage(1, 1)
    theatre.stage(2, 1)
    theatre.consumer(0, stage=1)
    b = theatre.consumer(1, stage=2)
    theatre.wait(1.1)
    assert not theatre.kinds(b)


def test_a_run_whose_producers_get_no_slot_gives_some_up_in_the_end():
    theatre = Theatre(slots=4)
    theatre.stage(1, 2)
    theatre.consumer(0)
    b = theatre.consumer(1)
    theatre.wait(29.0)
    assert not theatre.kinds(b)
    theatre.wait(2.0)
    assert theatre.kinds(b) == ["END"]


def test_a_consumer_that_leaves_while_it_waits_is_forgotten():
    theatre = Theatre()
    theatre.hang_up(theatre.consumer(0))
    theatre.wait(2.0)
    assert not theatre.submitted
    stopped = theatre.consumer(1)
    theatre.say(stopped, "STOPPED", TOTALS)
    theatre.wait(2.0)
    assert not theatre.submitted
    assert not theatre.asked
    assert PLACE
