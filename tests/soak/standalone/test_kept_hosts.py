"""Kept exchanges on separate hosts: consumers get from other hosts what they cannot map.

``HEADGATE_TEST_HOST_FAULTS=100 pytest tests/soak/standalone/test_kept_hosts.py`` kills a random process in
each of a hundred jobs; each is drawn from its number.
"""

from __future__ import annotations

import math
import os
import random
import signal
import time
from pathlib import Path

import pytest
from standalone_cluster import WORKERS
from tests.kit.waiting import wait_until

ROWS = 300_000
#: Jobs in which a random process is killed.
FAULTS = int(os.environ.get("HEADGATE_TEST_HOST_FAULTS", "6"))
#: Words in the command line of the processes of an executor.
KINDS = {
    "server": b"headgate.spark.tasks.host",
    "worker": b"pyspark.daemon",
    "executor": b"CoarseGrainedExecutorBackend",
}
#: The worker whose link is cut, and for how many seconds.
CUT, CUT_SECONDS = WORKERS[1], 60.0

#: Without the cluster, whose wheel may have to be built first.
pytestmark = [pytest.mark.timeout(420, func_only=True)]


def processes_on(cluster, worker, kind):
    """Return the ids of the processes of this kind on a worker, the oldest first: ids wrap, times do not."""
    found = []
    for pid in cluster.network.pids(worker):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except FileNotFoundError:
            continue  # it has ended meanwhile
        if KINDS[kind] in words:
            found.append(pid)
    return sorted(found, key=started_at)


def started_at(pid):
    """Return when a process started, in ticks since the machine did; the last moment if it has ended."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
    except FileNotFoundError:
        return math.inf
    return int(after_name.split()[19])


def hosts_on(cluster, worker):
    """Return the ids of the processes of a worker's hosts: two each, one serves and one starts it again."""
    return processes_on(cluster, worker, "server")


def totals(rows):
    return sum(row["n"] for row in rows), sum(row["total"] for row in rows)


def is_right(answer):
    """Return True if the rows are those of Spark's own way."""
    return totals(answer["rows"]) == (ROWS, ROWS * (ROWS - 1) // 2)


def begin(session, does):
    """Begin an exchange whose consumers do something; return once one has a batch."""
    session.tell("keep", rows=ROWS, partitions=5, does=does)
    assert session.hear(90)["said"] == "flowing"


def start_hosts(cluster, session):
    """Run exchanges until each worker has an executor with a whole host: one process serves, one starts it again."""
    end = time.monotonic() + 60
    while not all(len(hosts_on(cluster, worker)) == 2 for worker in WORKERS):
        assert time.monotonic() < end
        assert session.ask("keep", timeout=180, rows=1000, partitions=5)["error"] == ""


def test_a_slow_host_is_the_verdict(session):
    answer = session.ask("slowest", slow=WORKERS[1])
    assert answer["rows"] == 12_000
    assert answer["hosts"] == [*WORKERS], answer
    verdict = answer["verdict"]
    assert verdict, answer
    assert (verdict["kind"], verdict["stage"]) == ("slow-host", "map"), answer
    assert f"times as long per row on {WORKERS[1]} " in verdict["text"], answer


@pytest.mark.parametrize("by", ["k", None])
def test_consumers_get_the_rows_of_producers_on_other_hosts(cluster, session, by):
    answer = session.ask("keep", timeout=180, rows=ROWS, partitions=5, by=by)
    assert answer["error"] == ""
    assert is_right(answer)
    if by is not None:
        assert {str(row["p"]): row["n"] for row in answer["rows"]} == answer["own"]
    consumers = {worker for worker in WORKERS for row in answer["rows"] if worker in row["here"]}
    assert consumers == {*WORKERS}
    for worker in WORKERS:
        assert len(hosts_on(cluster, worker)) == 2, f"producers ran on {worker}"


def test_a_lost_executor_costs_its_producers_only_and_its_host_ends(cluster, session):
    start_hosts(cluster, session)
    before = {worker: hosts_on(cluster, worker) for worker in WORKERS}
    begin(session, "kill")
    answer = session.hear(300)
    assert answer["error"] == ""
    assert is_right(answer)
    assert 0 <= answer["made_again"] <= 3, "each executor ran three of the six producers"

    def ended():
        after = {worker: hosts_on(cluster, worker) for worker in WORKERS}
        return sum(not {*before[worker]} & {*after[worker]} for worker in WORKERS) == 1

    wait_until(ended, "the host of one executor has ended", 30)


def test_a_killed_host_costs_no_producer(cluster, session):
    start_hosts(cluster, session)
    begin(session, "wait")
    for worker in WORKERS:
        serves = hosts_on(cluster, worker)[-1]  # the other one started it
        os.kill(serves, signal.SIGKILL)
    answer = session.hear(300)
    assert answer["error"] == ""
    assert is_right(answer)
    assert answer["made_again"] == 0


def test_killed_idle_processes_of_hosts_cost_nothing_and_servers_killed_after_them_their_producers(
    cluster, session
):
    start_hosts(cluster, session)
    begin(session, "wait")
    for worker in WORKERS:
        starts_again = hosts_on(cluster, worker)[0]
        os.kill(starts_again, signal.SIGKILL)
    answer = session.hear(300)
    assert answer["error"] == ""
    assert is_right(answer)
    assert answer["made_again"] == 0
    # Nobody starts these again but a consumer on their executor, and all consumers have started.
    begin(session, "wait")
    for worker in WORKERS:
        [serves] = hosts_on(cluster, worker)
        os.kill(serves, signal.SIGKILL)
    answer = session.hear(300)
    assert answer["error"] == ""
    assert is_right(answer)
    assert 0 <= answer["made_again"] <= 6


def test_a_host_whose_processes_are_both_killed_costs_its_producers_at_most(cluster, session):
    start_hosts(cluster, session)
    begin(session, "wait")
    for process in hosts_on(cluster, WORKERS[0]):
        os.kill(process, signal.SIGKILL)
    answer = session.hear(300)
    assert answer["error"] == ""
    assert is_right(answer)
    assert 0 <= answer["made_again"] <= 3, "each executor ran three of the six producers"


def kill_one(cluster, workers, kind):
    """Kill a process of the first of these workers that has one; return its working directory."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        # A new executor has no process of Python before its first task.
        for worker in workers:
            if victims := processes_on(cluster, worker, kind):
                victim = victims[-1]  # the youngest: not the process that starts the others
                place = Path(f"/proc/{victim}/cwd").readlink()
                os.kill(victim, signal.SIGKILL)
                return place
    raise AssertionError(f"no {kind} runs on any worker")


@pytest.mark.parametrize("number", range(FAULTS))
def test_a_kill_at_random_costs_what_was_lost(cluster, session, number):
    choose = random.Random(number)
    kind = ("server", "executor", "worker")[number % 3]
    start_hosts(cluster, session)
    partitions = choose.choice((3, 6, 12))
    session.tell("keep", rows=ROWS, partitions=partitions, does="linger")
    try:
        time.sleep(choose.uniform(0.1, 3.0))
        place = kill_one(cluster, choose.sample(WORKERS, 2), kind)
    finally:
        # Otherwise the next test would take this answer for its own.
        while (answer := session.hear(200))["said"] != "ended":
            pass
    assert answer["error"] == ""
    assert is_right(answer)
    again = {task: places for task, places in answer["ran"].items() if len(places) > 1}
    print(f"\nkilled a {kind}: made again {answer['made_again']}, ran again {again}")
    assert answer["made_again"] <= len(again)
    if kind == "executor":
        assert {places[0] for places in again.values()} <= {str(place)}
    else:
        # A producer whose worker was killed at its end had not succeeded.
        assert len(again) <= (kind == "worker")


def test_a_job_outlives_or_names_a_worker_that_is_cut_off(cluster, session):
    start_hosts(cluster, session)
    begin(session, "wait")
    cut = time.monotonic()
    cluster.network.cut(CUT)
    try:
        answer = session.hear(CUT_SECONDS, may_be_late=True)
        time.sleep(max(0.0, cut + CUT_SECONDS - time.monotonic()))
    finally:
        cluster.network.mend(CUT)
    answer = answer or session.hear(300)
    seconds = answer["at"] - cut
    print(f"\nthe job ended {seconds:.1f} s after the cut, made again: {answer['made_again']}")
    print(answer["error"][:2000])
    assert is_right(answer) or "HG-3" in answer["error"]
    again = session.ask("keep", timeout=300, rows=ROWS, partitions=5)
    assert again["error"] == ""
    assert is_right(again)
