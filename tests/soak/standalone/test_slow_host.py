"""The slowest stage of a run of which one host is slow, on separate hosts."""

import pytest
from standalone_cluster import WORKERS

#: Seconds of the map per batch. A task has four batches, and must take a second to count.
FAST, SLOW = 0.3, 1.2


@pytest.mark.parametrize("worker", WORKERS)
def test_the_slow_host_is_named(cluster, session, worker):
    address = cluster.network.addresses[worker]
    found = session.ask("slow_host", address=address, seconds=FAST, slow_seconds=SLOW)
    assert found["rows"] == 12 * 40_000
    assert found["kind"] == "slow-host"
    assert f"as long per row on {address} as elsewhere" in found["text"]


def test_no_host_is_blamed_where_all_are_slow(cluster, session):
    address = cluster.network.addresses[WORKERS[0]]
    found = session.ask("slow_host", address=address, seconds=FAST, slow_seconds=FAST)
    assert found["kind"] == "map-busy"
