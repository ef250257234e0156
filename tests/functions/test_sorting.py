"""Sorting in memory and in files gives the order of Python's sort, and keeps the order of equal rows."""

import math

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import UnsupportedTypeError
from headgate.functions import sorting
from headgate.functions.sorting import sort_batches

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("i", pa.int64())])

rows = st.lists(
    st.tuples(
        st.integers(0, 5) | st.none(),
        st.sampled_from([None, float("nan"), -1.5, 0.25, 7.0, float("inf")]),
        st.sampled_from([None, "", "a", "aa", "é"]),
    ),
    max_size=120,
)


def batches(found, size):
    """Return the rows with their numbers, in batches of so many rows."""
    columns = [list(column) for column in zip(*found, strict=True)] or [[], [], []]
    table = pa.table([*columns, list(range(len(found)))], schema=SCHEMA)
    return table.to_batches(max_chunksize=size)


def key(value):
    """Return what sorts as Spark sorts: nulls first, NaN last."""
    if value is None:
        return (0, 0)
    return (2, 0) if isinstance(value, float) and math.isnan(value) else (1, value)


def in_order(made):
    return [number for batch in made for number in batch["i"].to_pylist()]


@pytest.fixture(autouse=True, scope="module")
def small_blocks():
    """Let few rows make many blocks and runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "_LEAST_BLOCK", 100)
        patch.setattr(sorting, "_RUNS", 5)
        yield


@settings(max_examples=150, deadline=None)
@given(rows, st.integers(1, 40), st.sampled_from([1, 300, 2000, 1 << 30]), st.data())
def test_rows_are_in_the_order_of_pythons_sort(found, size, memory, data):
    names = data.draw(st.permutations(["k", "x", "s"]).map(lambda some: some[: len(found) % 3 + 1]))
    places = [SCHEMA.get_field_index(name) for name in names]
    expected = sorted(
        range(len(found)), key=lambda row: [key(found[row][place]) for place in places]
    )
    assert in_order(sort_batches(batches(found, size), names, memory)) == expected


@pytest.mark.parametrize("runs", [128, 4])
@pytest.mark.parametrize("kind", ["sorted", "reversed", "equal", "mixed"])
def test_many_runs_are_merged(kind, runs, monkeypatch):
    monkeypatch.setattr(sorting, "_LEAST_BLOCK", 500)
    monkeypatch.setattr(sorting, "_RUNS", runs)
    count = 5000
    keys = {
        "sorted": range(count),
        "reversed": range(count, 0, -1),
        "equal": [7] * count,
        "mixed": [n * 7919 % count for n in range(count)],
    }[kind]
    found = [(k, 0.0, "s") for k in keys]
    made = list(sort_batches(batches(found, 50), ["k"], 4000))
    assert in_order(made) == sorted(range(count), key=lambda row: keys[row])
    assert all(batch.num_rows for batch in made)


def test_batches_without_rows_and_no_batches():
    assert list(sort_batches([], ["k"], 100)) == []
    empty = pa.RecordBatch.from_pylist([], schema=SCHEMA)
    assert list(sort_batches([empty, empty], ["k"], 0)) == []


@pytest.fixture
def opened(monkeypatch):
    """The files that are opened."""
    files = []
    temporary = sorting.tempfile.TemporaryFile

    def watched(**options):
        files.append(temporary(**options))
        return files[-1]

    monkeypatch.setattr(sorting.tempfile, "TemporaryFile", watched)
    return files


def test_files_are_in_sparks_folders_and_gone_at_the_end(tmp_path, monkeypatch, opened):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    found = [(n % 10, 0.0, "s") for n in range(1000)]
    made = sort_batches(batches(found, 50), ["k"], 4000)
    next(made)
    assert len(opened) > 2
    made.close()
    assert all(file.closed for file in opened)
    assert not list(tmp_path.iterdir())


def test_an_error_of_the_origin_closes_the_files(opened):
    def failing():
        yield from batches([(n, 0.0, "s") for n in range(1000)], 50)
        raise OSError("the peer")

    with pytest.raises(OSError, match="the peer"):
        list(sort_batches(failing(), ["k"], 4000))
    assert opened
    assert all(file.closed for file in opened)


def test_memory_is_bounded_while_files_are_written_and_merged():
    wide = pa.schema([("k", pa.int64()), ("s", pa.string())])
    columns = [list(range(2000)), ["x" * 1000] * 2000]
    batch = pa.RecordBatch.from_arrays(list(map(pa.array, columns)), schema=wide)
    before, peak = pa.total_allocated_bytes(), 0

    def origin():
        for start in range(20):
            yield batch.take(pa.array([row * 7919 % 2000 for row in range(start, 2000)]))

    for made in sort_batches(origin(), ["k"], 4 << 20):
        peak = max(peak, pa.total_allocated_bytes() - before)
        assert made.num_rows
    assert peak < 16 << 20, "the origin has 40 MB"


def test_files_that_are_merged_early_are_closed(opened):
    found = [(n * 7919 % 1000, 0.0, "s") for n in range(1000)]
    made = sort_batches(batches(found, 20), ["k"], 800)
    next(made)
    assert len(opened) > 20
    assert sum(not file.closed for file in opened) < 10
    assert len(list(made)) > 0


@pytest.mark.parametrize(
    "column",
    [
        pa.array([{"a": 1}, {"a": 2}]),
        pa.array([[1], [2]]),
        pa.array(["a", "b"], pa.string_view()),
        pa.array([[(1, 1)], [(2, 2)]], pa.map_(pa.int64(), pa.int64())),
        pa.array([1, 2]).cast(pa.float16()),
    ],
    ids=lambda column: str(column.type),
)
def test_a_type_that_arrow_cannot_sort_is_refused(column):
    """Arrow ends the process when it sorts a table by some structs."""
    with pytest.raises(UnsupportedTypeError, match=r"column 'odd' of type .* cannot be sorted"):
        list(sort_batches([pa.record_batch({"odd": column})], ["odd"], 1 << 20))
