"""Two tasks in one process: what the second gets of the rows of the first."""

import pickle
import sys
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headgate.spark.tasks import chained
from headgate.spark.tasks.chained import ChainedTask, RowsBetween

KEYS = pa.schema([("key", pa.int64())])


@pytest.fixture
def both(monkeypatch):
    """Return a function that runs two bodies in one task, and returns what the second yields."""

    def run(first, second, between, *, batch_rows=None, copies=False):
        for name, body in (("first_body", first), ("second_body", second)):
            module = ModuleType(name)
            module.run = body
            monkeypatch.setitem(sys.modules, name, module)
        task = ChainedTask(
            "first_body", pickle.dumps("1st"), between, batch_rows, copies, "second_body", "2nd"
        )
        return list(chained.run(task, ["from the JVM"]))

    return run


def collected(task, batches):
    """Keep all batches before the first is looked at, as a function of the user may."""
    assert task == "2nd"
    yield from list(batches)


def rows(keys):
    """Return the body of a task that yields these keys, with times of another zone, in batches."""
    zone = pa.timestamp("us", "Europe/Paris")
    schema = pa.schema([("k", pa.int64()), ("at", zone), ("k", pa.string())])

    def first(task, batches):
        assert (task, batches) == ("1st", ["from the JVM"])
        for start in range(0, len(keys), 40_000):
            part = pa.array(keys[start : start + 40_000], pa.int64())
            times = pa.array(range(len(part)), zone)
            columns = [part, times, part.cast(pa.string())]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return first


def test_columns_are_chosen_by_place_and_have_the_types_that_spark_gives(both):
    schema = pa.schema([("text", pa.string()), ("when", pa.timestamp("us", "UTC"))])
    (batch,) = both(rows([1, 2]), collected, RowsBetween(None, (2, 1), schema))
    assert batch.schema == schema
    assert batch.column(0).to_pylist() == ["1", "2"]


def test_a_filter_keeps_the_rows_for_which_it_is_true_in_their_order(both):
    keys = [None if number % 7 == 0 else number for number in range(100_000)]

    def first(task, batches):
        for batch in rows(keys)(task, batches):
            yield batch.select([0])

    odd = pc.bit_wise_and(pc.field("k"), 1) == 1
    filtered = both(first, collected, RowsBetween(odd, (0,), KEYS))
    assert [key for batch in filtered for key in batch.column(0).to_pylist()] == [
        key for key in keys if key is not None and key % 2
    ]


def test_batches_are_as_large_as_spark_would_make_them(both):
    between = RowsBetween(None, (0,), KEYS)
    sizes = [batch.num_rows for batch in both(rows([1] * 25), collected, between, batch_rows=10)]
    assert sizes == [10, 10, 5]


def test_a_function_may_reuse_the_memory_of_a_batch(both):
    def first(task, batches):
        memory = np.zeros(3, np.int64)
        for number in range(3):
            memory[:] = number
            yield pa.record_batch([pa.array(memory)], names=["k"])

    between = RowsBetween(None, (0,), KEYS)
    copied = both(first, collected, between, copies=True)
    assert [batch.column(0)[0].as_py() for batch in copied] == [0, 1, 2]
    # It is the copy that makes it so.
    shared = both(first, collected, between)
    assert [batch.column(0)[0].as_py() for batch in shared] == [2, 2, 2]


@pytest.mark.parametrize("fails", [False, True])
def test_the_first_task_is_ended_once_the_second_has(both, fails):
    ended = []

    def first(task, batches):
        try:
            yield from rows([1] * 100_000)(task, batches)
        finally:
            ended.append(task)

    def second(task, batches):
        yield next(iter(batches))
        if fails:
            raise ValueError("the second")

    between = RowsBetween(None, (0,), KEYS)
    if fails:
        with pytest.raises(ValueError, match="the second"):
            both(first, second, between)
    else:
        assert len(both(first, second, between)) == 1
    assert ended == ["1st"]
