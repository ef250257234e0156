"""combine: the rows that a task sends, against plain Python, for random rows, cuts and sizes of calls."""

from collections import Counter
from random import Random

import pyarrow as pa
import pytest

import headgate as hg
from headgate.errors import SchemaMismatchError
from headgate.spark.tasks.combining import combined
from headgate.spark.tasks.timing import Clock
from headgate.testing import Cut, run

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])


def sums(batches):
    table = pa.table(batches).group_by("k").aggregate([("n", "sum")])
    return table.rename_columns(["k", "n"])


def random_batches(random, keys, rows):
    """Return the rows in batches of any size, some empty, and their sums by plain Python."""
    pairs = [(random.choice(keys), random.randrange(1000)) for _ in range(rows)]
    expected = Counter()
    for key, number in pairs:
        expected[key] += number
    batches = []
    while pairs:
        size = random.randrange(40)
        batches.append(pa.RecordBatch.from_pylist([], schema=SCHEMA))
        if size:
            batches[-1] = pa.RecordBatch.from_pylist(
                [{"k": key, "n": number} for key, number in pairs[:size]], schema=SCHEMA
            )
        pairs = pairs[size:]
    return batches, dict(expected)


def summed(batches):
    totals = Counter()
    for batch in batches:
        for row in batch.to_pylist():
            totals[row["k"]] += row["n"]
    return dict(totals)


@pytest.mark.parametrize("seed", range(60))
def test_the_rows_that_are_sent_have_the_sums_of_all(seed):
    random = Random(seed)
    keys = [f"key {n}" for n in range(random.choice([1, 5, 2000]))]
    batches, expected = random_batches(random, keys, 1500)
    calls = []

    def counted(rows):
        table = pa.table(rows)
        calls.append(table.num_rows)
        return sums(table)

    sent = list(combined(iter(batches), counted, SCHEMA, call_bytes=random.choice([1, 500, 8000])))
    assert summed(sent) == expected
    assert 0 not in calls
    if len(keys) == 1 and max(calls) > 1:
        assert sum(batch.num_rows for batch in sent) < 1500


def test_rows_without_a_repeated_key_are_sent_as_they_are_after_one_call():
    calls = []

    def counted(rows):
        calls.append(1)
        return sums(rows)

    batches = [pa.record_batch({"k": [str(n)], "n": [n]}, SCHEMA) for n in range(500)]
    sent = list(combined(iter(batches), counted, SCHEMA, call_bytes=200))
    assert summed(sent) == {str(n): n for n in range(500)}
    assert calls == [1]


def test_few_rows_may_be_left_and_many_are_merged_part_by_part():
    batches = [pa.record_batch({"k": ["a"] * 10, "n": [1] * 10}, SCHEMA) for _ in range(50)]
    few = list(combined(iter(batches), None, SCHEMA, leaves_few=True))
    assert summed(few) == {"a": 500}
    assert len(few) == 50
    clock = Clock()
    many = list(combined(iter(batches), sums, SCHEMA, 300, leaves_few=True, clock=clock))
    assert [batch.to_pylist() for batch in many] == [[{"k": "a", "n": 500}]]


def test_a_batch_that_changes_later_is_counted_as_it_was():
    values = bytearray(8)

    def changing():
        for n in range(100):
            values[:] = n.to_bytes(8, "little")
            column = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(values)])
            yield pa.RecordBatch.from_arrays([pa.array(["a"]), column], schema=SCHEMA)

    assert summed(combined(changing(), sums, SCHEMA)) == {"a": sum(range(100))}


def test_other_columns_are_refused_by_name():
    rows = [pa.record_batch({"k": ["a"], "n": [1]}, SCHEMA)]
    with pytest.raises(SchemaMismatchError, match=r"combine returned.*'m'"):
        list(combined(rows, lambda batches: pa.table({"k": ["a"], "m": [1]}), SCHEMA))


@pytest.mark.parametrize("seed", range(40))
def test_per_key_merges_any_part_of_a_group(seed):
    def merged(group):
        return {"k": group["k"][0], "n": pa.compute.sum(group["n"])}

    batches, expected = random_batches(Random(seed), ["a", "b", None], 80)
    merge = hg.per_key("k", merged)
    cut = Cut(seed=seed, producers=True, combine=True, order=True)
    table = run(batches, by="k", combine=merge, reduce=merge, schema=SCHEMA, cut=cut)
    assert summed(table.to_batches()) == expected
