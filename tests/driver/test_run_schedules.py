"""Random schedules of a run with faults, with a simulated Spark. A seed replays its schedule."""

import os

import pytest
from tests.driver.run_world import World

from headgate.spark.driver.runs.epoch_causes import Retries

#: Number of schedules per test; HEADGATE_TEST_SCHEDULES=200000 runs more.
COUNT = int(os.environ.get("HEADGATE_TEST_SCHEDULES", "3000"))
FIRST = int(os.environ.get("HEADGATE_TEST_SEED", "0"))


def check_rows(world):
    for index, task in world.results.items():
        if task.stopped:
            continue
        assert set(task.rows) == set(range(world.producers_count)), f"rows of {index}"
        assert len(set(task.rows.values())) <= 1, f"two epochs in {index}: {task.rows}"


def play(seed, **options):
    world = World(seed, **options)
    try:
        world.play()
        check_rows(world)
    except Exception as error:
        error.add_note(f"seed {seed}: {world.log[-80:]}")
        raise
    return world


def test_up_to_three_faults_cost_time_and_no_rows():
    recovered = 0
    for seed in range(FIRST, FIRST + COUNT):
        world = play(seed)
        assert world.status == "COMPLETE", f"seed {seed}: {world.causes} {world.log[-80:]}"
        recovered += bool(world.causes)
    assert recovered > COUNT / 5 or COUNT < 100


@pytest.mark.soak
@pytest.mark.parametrize("tasks", [1, 2])
def test_where_spark_tries_less_it_is_all_rows_or_a_true_cause(tasks):
    ended = set()
    for seed in range(FIRST, FIRST + COUNT):
        world = play(seed, retries=Retries(tasks, 3), max_faults=6)
        ended.add(world.status)
        if world.status == "FAILED":
            texts = [t.text for t in world.tasks if t.job is None and t.status == "FAILED"]
            assert texts
            true = [t for t in texts if "HG-3001" in t or "HG-3005" in t or "crashed" in t]
            assert true == texts, f"seed {seed}: {texts}"
    assert ended == {"COMPLETE", "FAILED"} or COUNT < 100
