"""Subpartitions that are joined by their sizes, for random rows and any order in which reduce reads its inputs."""

from itertools import pairwise
from random import Random

import pyarrow as pa
import pytest

from headgate.spark.plan.sizes import AutoPartitions
from headgate.spark.tasks.neighbours import Neighbours, row_width, subpartitions_in

SCHEMA = pa.schema([("n", pa.int64())])
ROW = pa.schema([(name, pa.int64()) for name in ("subpartition", "input", "producer", "rows")])


def batches(rows, random):
    """Return the rows of producers in the order of their subpartitions, in batches of any size."""
    rows = sorted(rows, key=lambda row: row["subpartition"])
    while rows:
        size = random.randint(1, len(rows))
        yield pa.RecordBatch.from_pylist(rows[:size], schema=ROW)
        rows = rows[size:]


def called(rows, inputs, advisory_bytes, random, *, reads_all=True):
    """Return for each call the producers and subpartitions that each input got."""
    coming = subpartitions_in(batches(rows, random), inputs)
    schemas = [SCHEMA] * inputs
    calls = []
    while neighbours := Neighbours(coming, schemas, advisory_bytes):
        got = [[] for _ in range(inputs)]
        unread = dict(enumerate(map(neighbours.pieces, range(inputs))))
        while unread and (reads_all or not any(got)):
            number = random.choice(list(unread))
            pieces = next(unread[number], None)
            if pieces is None:
                del unread[number]
                continue
            for row in pieces:
                got[number].append((row["subpartition"], row["producer"]))
                values = pa.record_batch({"n": [0] * row["rows"]}, SCHEMA)
                neighbours.count(number, values)
        calls.append(got)
    return calls


@pytest.mark.parametrize("seed", range(150))
def test_each_subpartition_is_in_one_call_with_all_its_rows(seed):
    random = Random(seed)
    inputs = random.choice([1, 2, 3])
    rows = [
        {"subpartition": part, "input": number, "producer": producer, "rows": random.randrange(9)}
        for part in range(random.randrange(12))
        for number in range(inputs)
        for producer in range(random.randrange(4))
    ]
    advisory = random.choice([0, 1, 80, 400, 1 << 30])
    calls = called(rows, inputs, advisory, random)
    got = [
        (part, number, producer)
        for call in calls
        for number, each in enumerate(call)
        for part, producer in each
    ]
    assert sorted(got) == sorted((r["subpartition"], r["input"], r["producer"]) for r in rows)
    parts = [sorted({part for each in call for part, _ in each}) for call in calls]
    assert sum(map(len, parts)) == len({row["subpartition"] for row in rows})
    assert [part for each in parts for part in each] == sorted(
        part for each in parts for part in each
    )
    # All inputs announce their rows, so no call has another neighbour once it is large enough.
    size = {part: 0 for each in parts for part in each}
    for row in rows:
        size[row["subpartition"]] += 8 * row["rows"]
    for each in parts:
        assert sum(size[part] for part in each[:-1]) < max(1, advisory)
    for each, following in pairwise(parts):
        assert sum(size[part] for part in each) >= advisory, (each, following)


def test_rows_whose_number_is_unknown_count_once_they_are_read():
    rows = [{"subpartition": part, "input": 0, "producer": 0, "rows": None} for part in range(4)]
    coming = subpartitions_in([pa.RecordBatch.from_pylist(rows, schema=ROW)], 1)
    lengths = []
    while neighbours := Neighbours(coming, [SCHEMA], 16):
        for _ in neighbours.pieces(0):
            neighbours.count(0, pa.record_batch({"n": [0]}, SCHEMA))
        lengths.append(len(neighbours))
    assert lengths == [2, 2]


def test_a_call_that_reads_little_leaves_the_others_to_the_next_call():
    rows = [{"subpartition": part, "input": 0, "producer": 0, "rows": 1} for part in range(5)]
    calls = called(rows, 1, 1 << 30, Random(0), reads_all=False)
    assert [call[0] for call in calls] == [[(part, 0)] for part in range(5)]


def test_a_width_is_that_of_the_types():
    kinds = [pa.int32(), pa.float64(), pa.bool_(), pa.string(), pa.list_(pa.int8())]
    schema = pa.schema([(str(number), kind) for number, kind in enumerate(kinds)])
    assert row_width(schema) == 4 + 8 + 1 / 8 + 16 + 16


@pytest.mark.parametrize(
    ("partitions", "initial", "each"),
    [
        (1, None, 16),
        (4, None, 16),
        (100, None, 10),
        (2000, None, 1),
        (4, 200, 50),
        (4, 1, 1),
        (4, 100_000, 2000),
        (8000, 200, 1),
    ],
)
def test_the_number_of_subpartitions(partitions, initial, each):
    assert AutoPartitions(64 << 20, "default", initial).each(partitions) == each
