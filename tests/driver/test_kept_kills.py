"""Kills by the kernel among the tasks of a run: seen by tasks, or by the driver beside them."""

from dataclasses import replace

import pytest
from tests.driver.test_kept_runs import nobody, nothing, report, session, stats
from tests.kit.cgroups import V2, Machine

from headgate.spark.driver.kept.outcome import failed
from headgate.spark.driver.kept.runs import KeptRuns
from headgate.spark.tasks.memory import MemoryOfTask


@pytest.fixture
def killing(tmp_path):
    """Return a function that sets the count of kills, and returns the group."""
    machine = Machine(tmp_path)
    file = machine.cgroups / "memory.events"

    def kill(number):
        machine.write(file, V2.format(number))
        return machine.group(["0::/"])

    machine.write(machine.cgroups / "memory.max", "400000000\n")
    return kill


def elsewhere(group):
    """Return a group that only its own host can read."""
    return replace(group, host="another host")


def kills(run):
    return [notice for notice in run.notices if "killed" in notice]


def runs_of(group=None):
    began = []
    runs = KeptRuns(session(), lambda _, run: began.append(run), nothing, nobody(), group)
    return runs, began


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ((3, 3), (3, 3), ""),
        # A task that survived, a task that began after the kill, and both.
        ((3, 3), (3, 4), "killed 1 process for want of memory in the cgroup of tasks on a, b, which has a limit of 400 MB"),
        ((3, 3), (4, 4), "killed 1 process for"),
        ((3, 4), (5, 5), "killed 2 processes for"),
    ],
)  # fmt: skip
def test_tasks_tell_what_their_group_has_counted(killing, before, after, text):
    runs, began = runs_of()
    for number, (host, (first, last)) in enumerate([("a", before), ("b", after)]):
        memory = MemoryOfTask(True, elsewhere(killing(last)), first)
        runs.reports.add([report(task=number, hostname=host, memory=memory)])
    notices = kills(stats(runs, began[0]))
    assert len(notices) == bool(text)
    assert text in "".join(notices)


def test_the_driver_beside_its_tasks_reads_the_count_when_an_attempt_has_failed(killing):
    runs, began = runs_of(killing(3))
    runs.reports.add([report()])
    killing(5)
    assert kills(stats(runs, began[0])) == [], "no attempt failed: nothing is read"
    runs.reports.add([report(task=1, failures=1)])
    stopped = stats(runs, began[0])
    assert (
        "has killed 2 processes for want of memory in the cgroup of tasks, which"
        in kills(stopped)[0]
    )
    assert "spark.executor.memoryOverhead" in str(stopped)
    killing(9)
    assert kills(stats(runs, began[0])) == kills(stopped), "the run is over"


def test_a_peak_that_could_not_be_reset_is_said_to_be_older_than_its_task(killing):
    runs, began = runs_of()
    group = killing(0)
    runs.reports.add([report(memory=MemoryOfTask(True, group, 0), peak_resident_bytes=7)])
    first = stats(runs, began[0])
    assert (first.notices, first.peak_resident_bytes) == ((), 7)
    runs.reports.add([report(task=1, memory=MemoryOfTask(False, None, 0), peak_resident_bytes=9)])
    second = stats(runs, began[0])
    assert "since their worker's process began" in second.notices[0]
    assert second.peak_resident_bytes == 9


LOST = "ExecutorLostFailure (executor 2 exited caused by one of the running tasks) Reason: "
POD = "The executor with id 2 exited with exit code 137(SIGKILL, possible container OOM)."


@pytest.mark.parametrize(
    ("error", "summary"),
    [
        (f"{LOST}Command exited with code 137", f"{LOST}Command exited with code 137"),
        (
            f"Lost task 0.3: {LOST}\n{POD}\n\nDriver stacktrace:\n\tat a.b",
            f"Lost task 0.3: {LOST}{POD}",
        ),
    ],
)
def test_what_spark_says_of_a_lost_executor_is_kept(error, summary):
    assert failed(error).summary == summary
