"""The forming of runs from consumers, and the end of one if consumers hold all slots."""

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


def test_consumers_of_one_stage_that_hold_all_slots_fail_one_run_and_free_the_other():
    theatre = Theatre(slots=4)
    theatre.stage(1, 4)
    (a, b), (c, d) = [
        [theatre.consumer(i, partition=2 * n + i) for i in range(2)] for n in range(2)
    ]
    theatre.wait(1.9)
    assert not theatre.ended
    theatre.wait(0.2)
    first, second = theatre.submitted
    ((failed, cause),) = theatre.ended
    assert failed is second
    assert cause.code == "HG-2102"
    assert theatre.last(c).kind == theatre.last(d).kind == "ABORT"
    theatre.hang_up(c)
    theatre.hang_up(d)
    theatre.wait(5.0)
    assert len(theatre.ended) == 1
    producer = theatre.producer(first, 0)
    assert theatre.kinds(a) == theatre.kinds(b) == ["START"]
    assert theatre.last(producer)["wanted"] == [0, 1]


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
    for index, attempt in enumerate((100, 101)):
        theatre.consumer(index, stage=2, exchange=OTHER, attempt=attempt)
        inside = theatre.producer(outer, index, attempt=attempt, stage=2)
        assert theatre.kinds(inside) == ["GO"]
    theatre.wait(2.1)
    ((failed, cause),) = theatre.ended
    assert failed.exchange_id == OTHER
    assert cause.code == "HG-2102"


def test_tasks_that_wait_for_a_cached_partition_hold_slots_too():
    theatre = Theatre(slots=4)
    theatre.stage(1, 2)
    theatre.consumer(0)
    theatre.consumer(1)
    theatre.wait(60.0)
    assert not theatre.ended
    theatre.coordinator.blocked = 2
    theatre.settle()
    theatre.wait(2.1)
    ((_, cause),) = theatre.ended
    assert cause.code == "HG-2102"
    assert "tasks that wait for a cached partition 2" in cause.have


def test_a_stage_tried_again_has_a_run_of_its_own():
    theatre = Theatre(slots=4)
    theatre.stage(1, 2)
    consumers = [theatre.consumer(0), theatre.consumer(1)]
    (run,) = theatre.submitted
    theatre.job_ended(run, [])
    for consumer in consumers:
        theatre.done(consumer, run.number)
    theatre.consumer(1)
    theatre.wait(1.1)
    assert theatre.submitted[1].roster.wanted == [1]


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
