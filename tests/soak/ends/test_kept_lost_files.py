"""Kept files that are damaged or deleted: their producers run again, wherever the consumers are.

The executors of these tests are on one host, where consumers map files. So consumers are made to
overlook them, and get the pages over TCP from the hosts of the executors, as on a cluster.
"""

import os
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle
from tests.kit.hosts import hosts_of, served
from tests.kit.masters import in_executors
from tests.kit.outcomes import once

from headgate.spark import exchange, last_stats

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS = 20_000
PRODUCERS = 4

pytestmark = [in_executors]


@pytest.fixture
def way(request, spark, monkeypatch):
    """How consumers get the pages."""
    if request.param == "network":
        with served(spark, monkeypatch):
            yield request.param
    else:
        yield request.param
        assert not hosts_of(spark)


def overlooking(function):
    """Return a function for ``reduce`` that gets its rows from hosts of executors."""

    def work(batches):
        from headgate.spark.tasks import kept_locations

        looks = []
        find, kept_locations.find_indexes = (
            kept_locations.find_indexes,
            lambda *_: looks.append(1) or {},
        )
        try:
            yield from function(batches)
        finally:
            kept_locations.find_indexes = find
        assert looks

    return work


def same(batches):
    yield from batches


@pytest.fixture
def keep(spark, way):
    """Return a function that keeps rows, too many to travel through Spark's shuffle."""
    wide = spark.range(0, ROWS, 1, PRODUCERS).selectExpr(
        "id", "id % 100 as k", "repeat('x', 500) as s"
    )

    def kept(reduce=same):
        return exchange(
            wide,
            by="k",
            map=same,
            map_schema=wide.schema,
            reduce=overlooking(reduce) if way == "network" else reduce,
            schema=wide.schema,
            num_partitions=4,
            mode="kept",
        )

    return kept


def flip(path):
    """Change one bit in the middle of a file."""
    at = path.stat().st_size // 2
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def cut(path):
    """Cut the second half of a file off."""
    os.truncate(path, path.stat().st_size // 2)


def files(spark, exchange_id, *suffixes):
    folder = Path(spark.conf.get("spark.local.dir"))
    return sorted(p for p in folder.rglob(f"kept-{exchange_id}*") if p.suffix in suffixes)


def right(df):
    # Not a selection from it, which would be another plan, whose producers run again.
    return sorted(row.id for row in df.collect()) == list(range(ROWS))


@pytest.mark.parametrize("most", [1, PRODUCERS])
@pytest.mark.parametrize(
    ("way", "damage", "suffixes"),
    [
        ("map", flip, ("",)),
        ("map", flip, (".index",)),
        ("map", cut, ("",)),
        ("map", cut, (".index",)),
        ("map", Path.unlink, ("",)),
        ("network", flip, ("",)),
        ("network", flip, (".index",)),
        ("network", flip, ("", ".index")),
        ("network", cut, ("",)),
        ("network", cut, (".index",)),
        ("network", Path.unlink, ("",)),
        ("network", Path.unlink, (".index",)),
        ("network", Path.unlink, ("", ".index")),
    ],
    indirect=["way"],
)
def test_producers_whose_files_are_damaged_or_gone_run_again(spark, keep, damage, suffixes, most):
    out = keep()
    assert right(out)
    exchange_id = last_stats().name
    for suffix in suffixes:
        found = files(spark, exchange_id, suffix)
        assert len(found) == PRODUCERS
        for path in found[:most]:
            damage(path)
    # Spark has the output of the producers, so only consumers run at first.
    assert right(out)
    stats = last_stats()
    assert stats.name == exchange_id
    assert stats.state == "done"
    # Spark may take all map output of that executor for lost.
    assert most <= stats.producers <= PRODUCERS


@pytest.mark.parametrize("way", ["map", "network"], indirect=True)
def test_files_that_are_deleted_while_they_are_read_cost_no_row(spark, keep, tmp_path):
    folder = Path(spark.conf.get("spark.local.dir"))

    def deleting(batches):
        for number, batch in enumerate(batches):
            yield batch
            if number == 0 and once(tmp_path, "deleted"):
                for path in folder.rglob("kept-*"):
                    if path.suffix == "":
                        path.unlink()

    out = keep(deleting)
    assert right(out)
    assert (tmp_path / "deleted").exists()
    assert right(out)
