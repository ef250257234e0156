"""Kept exchanges on separate hosts: consumers get from other hosts what they cannot map."""

from __future__ import annotations

from pathlib import Path

import pytest
from standalone_cluster import WORKERS
from tests.faults.patience import wait_until

ROWS = 300_000

pytestmark = [pytest.mark.timeout(420)]


def hosts_on(cluster, worker):
    """Return the ids of the processes of a worker's hosts: two each, one serves and one starts it again."""
    found = []
    for pid in cluster.network.pids(worker):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except FileNotFoundError:
            continue  # it has ended meanwhile
        if b"headgate.spark.tasks.host" in words:
            found.append(pid)
    return found


def totals(rows):
    return sum(row["n"] for row in rows), sum(row["total"] for row in rows)


@pytest.mark.parametrize("by", ["k", None])
def test_consumers_get_the_rows_of_producers_on_other_hosts(cluster, session, by):
    answer = session.ask("keep", timeout=180, rows=ROWS, partitions=5, by=by)
    assert answer["error"] == ""
    assert totals(answer["rows"]) == (ROWS, ROWS * (ROWS - 1) // 2)
    if by is not None:
        assert {str(row["p"]): row["n"] for row in answer["rows"]} == answer["own"]
    consumers = {worker for worker in WORKERS for row in answer["rows"] if worker in row["here"]}
    assert consumers == {*WORKERS}
    for worker in WORKERS:
        assert len(hosts_on(cluster, worker)) == 2, f"producers ran on {worker}"


def test_a_lost_executor_costs_its_producers_only_and_its_host_ends(cluster, session):
    assert session.ask("keep", timeout=180, rows=1000, partitions=5)["error"] == ""
    before = {worker: hosts_on(cluster, worker) for worker in WORKERS}
    answer = session.ask("keep", timeout=300, rows=ROWS, partitions=5, kill=True)
    assert answer["error"] == ""
    assert totals(answer["rows"]) == (ROWS, ROWS * (ROWS - 1) // 2)
    assert 0 <= answer["made_again"] <= 3, "each executor ran three of the six producers"

    def ended():
        after = {worker: hosts_on(cluster, worker) for worker in WORKERS}
        return sum(before[worker] != after[worker] for worker in WORKERS) == 1

    wait_until(ended, "the host of one executor has ended", 30)
