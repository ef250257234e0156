"""A run whose rows do not move for ten seconds is told in one line: who waits for whom."""

import logging

import pytest
from tests.driver.actors import PLACE, Theatre

from headgate.spark.driver.timing import Timing
from headgate.spark.driver.waits.standing import Standing

EVERY, REPEAT, WORRYING = Timing().report, Timing().repeat, Timing().worrying
TIMES = ("input_ms", "function_ms", "emit_ms", "blocked_ms")
INPUT, FUNCTION, EMIT, BLOCKED = range(4)


class Stage:
    """A run with its log, whose tasks report once per second.

    Args:
        producers: number of producers.
        consumers: number of consumers.
    """

    def __init__(self, producers=1, consumers=2):
        self.theatre = Theatre(slots=9, partitions=consumers)
        self.theatre.stage(1, consumers)
        connections = [self.theatre.consumer(index) for index in range(consumers)]
        (self.run,) = self.theatre.submitted
        self.standing = Standing(Timing())
        #: Role and number -> connection, rows and times of a task.
        self.tasks = {("reduce", n): [c, 0, [0] * 4] for n, c in enumerate(connections)}
        for number in range(producers):
            connection = self.theatre.producer(self.run, number)
            self.theatre.say(connection, "REGISTERED", PLACE, self.run.number)
            self.tasks["map", number] = [connection, 0, [0] * 4]
        #: Role and number -> what the task does from now on, and the rows that it moves each second.
        self.does = {}

    def go(self, role, number, activity, rows=0):
        self.does[role, number] = activity, rows

    def after(self, seconds, hostname="node-b"):
        """Let time pass; return the lines that are logged, with the times at which they are."""
        found = []
        for _ in range(int(seconds)):
            self.theatre.now += 1
            for key, (activity, rows) in self.does.items():
                task = self.tasks[key]
                task[1] += rows
                task[2][activity] += 1000
                fields = {"rows": task[1], "bytes": 0, **dict(zip(TIMES, task[2], strict=True))}
                self.theatre.say(
                    task[0], "PROGRESS", {**fields, "hostname": hostname}, self.run.number
                )
            runs = self.theatre.coordinator.live_runs
            for half in (0.0, 0.5):
                now = self.theatre.now + half
                found += self.standing.lines(runs, now, lambda run: f"exchange {run.number}")
        return found


@pytest.fixture
def stage():
    made = Stage()
    made.go("map", 0, BLOCKED)
    made.go("reduce", 0, INPUT)
    made.go("reduce", 1, FUNCTION)
    return made


def test_one_line_says_who_waits_for_whom(stage):
    assert stage.after(EVERY) == []
    ((level, line),) = stage.after(1)
    assert level == logging.INFO
    assert line == (
        f"waiting: run {stage.run.number} (exchange 1) has moved no row for 10 s; "
        "in your reduce: reduce 1 on node-b; waiting for consumers: map 0 on node-b; "
        "waiting for rows: reduce 0 on node-b"
    )


def test_the_line_is_repeated_once_per_minute(stage):
    stage.after(EVERY + 1)
    assert stage.after(REPEAT - 1) == []
    ((level, line),) = stage.after(1)
    assert "has moved no row for 70 s" in line
    assert level == logging.INFO, "a function that works is no reason to worry"


def test_nothing_is_said_while_rows_move(stage):
    stage.go("map", 0, EMIT, rows=1)
    assert stage.after(3 * REPEAT) == []


def test_rows_that_move_again_end_the_wait(stage):
    stage.after(EVERY - 1)
    stage.go("reduce", 1, FUNCTION, rows=5)
    assert stage.after(1) == []
    stage.go("reduce", 1, FUNCTION)
    assert stage.after(EVERY - 1) == []
    assert len(stage.after(2)) == 1
    stage.go("reduce", 1, FUNCTION, rows=5)
    stage.after(1)
    stage.go("reduce", 1, FUNCTION)
    assert stage.after(2 * EVERY) == [], "at most once per minute, whatever moves between"


def test_a_task_that_is_not_heard_of_is_named(stage):
    del stage.does["reduce", 1]
    ((_, line),) = stage.after(EVERY + 1)
    assert "not heard of: reduce 1; waiting for consumers: map 0 on node-b" in line


def test_a_wait_in_which_no_function_works_becomes_a_warning():
    stage = Stage()
    stage.go("map", 0, INPUT)
    stage.go("reduce", 0, INPUT)
    stage.go("reduce", 1, BLOCKED)
    first = stage.after(EVERY + 1)
    later = stage.after(REPEAT)
    assert [level for level, _ in (*first, *later)] == [logging.INFO, logging.WARNING]
    said = "waiting for Spark to take rows: reduce 1 on node-b; waiting for input: map 0 on node-b"
    assert said in later[0][1]
    assert WORRYING < EVERY + REPEAT


def test_few_tasks_are_named_and_the_others_counted():
    stage = Stage(producers=2, consumers=6)
    stage.go("map", 0, INPUT)
    stage.go("map", 1, INPUT)
    for number in range(6):
        stage.go("reduce", number, INPUT)
    ((_, line),) = stage.after(EVERY + 1, hostname="")
    assert line.endswith(
        "waiting for input: map 0, map 1; waiting for rows: reduce 0, reduce 1, reduce 2 and 3 more"
    )


def test_a_run_without_producers_is_told_by_another_line():
    stage = Stage(producers=0)
    stage.go("reduce", 0, INPUT)
    stage.go("reduce", 1, INPUT)
    assert stage.after(3 * EVERY) == []


def test_a_run_that_is_over_is_forgotten(stage):
    assert stage.after(EVERY) == []
    stage.run.cancel()
    stage.theatre.settle()
    assert stage.after(REPEAT) == []
