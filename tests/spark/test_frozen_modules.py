"""Workers freeze what they have loaded once, and nothing that belongs to a task."""

import sys

import pyarrow as pa
from pyspark import cloudpickle
from tests.kit.masters import in_modes

from headgate.spark import exchange

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = in_modes("kept")

#: Runs in which a worker must appear twice. Spark takes idle workers in turn, and tests before may leave many.
RUNS = 30


def same(batches):
    yield from batches


def counted(batches):
    """Yield the process, how many objects are frozen, and whether a collection visits pyarrow."""
    import gc
    import os

    for _ in batches:
        pass
    visited = {id(one) for one in gc.get_objects()}  # has no frozen ones
    seen = {"pid": os.getpid(), "frozen": gc.get_freeze_count(), "visits": id(vars(pa)) in visited}
    yield pa.RecordBatch.from_pylist([seen])


def test_a_worker_freezes_once_and_collections_leave_out_what_it_loaded(spark):
    def count():
        df = spark.range(0, 400, 1, 8)
        schema = "pid long, frozen long, visits boolean"
        out = exchange(df, by="id", map=same, reduce=counted, schema=schema)
        return {row["pid"]: (row["frozen"], row["visits"]) for row in out.collect()}

    count()
    seen, again = {}, {}
    for _ in range(RUNS):
        found = count()
        again = {pid: (seen[pid], found[pid]) for pid in found.keys() & seen.keys()}
        if again:
            break
        seen |= found
    assert again, "no worker appeared twice"
    for before, after in again.values():
        assert after == before
        frozen, visits = after
        assert frozen > 20_000
        assert not visits


class Held:
    """Is in a cycle, as what a user's function holds may be."""

    def __init__(self):
        self.me = self


def of(held, *, looks):
    """Return a function that holds an object and yields how many of its kind the worker has, if it looks."""

    def count(batches):
        import gc

        for _ in batches:
            pass
        kind = type(held).__name__
        if looks:
            gc.unfreeze()  # those that are frozen are found too
            number = sum(type(one).__name__ == kind for one in gc.get_objects())
            yield pa.RecordBatch.from_pydict({"number": [number]})

    return count


def test_what_a_function_holds_is_freed_after_its_task(spark):
    df = spark.range(0, 40, 1, 4)
    for looks in (False, False, False, True):
        job = {"by": "id", "map": same, "schema": "number long", "num_partitions": 4}
        out = exchange(df, reduce=of(Held(), looks=looks), **job)
        assert {row["number"] for row in out.collect()} == ({1} if looks else set())
