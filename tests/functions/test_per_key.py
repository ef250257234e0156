"""per_key and per_groups call a function with whole groups, however the rows are cut."""

import itertools

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.errors import (
    SchemaMismatchError,
    UnsupportedTypeError,
)
from headgate.functions import per_key as module
from headgate.functions import sorting

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("at", pa.int64()), ("i", pa.int64())])

rows = st.lists(
    st.tuples(
        st.integers(0, 4) | st.none(),
        st.sampled_from([None, float("nan"), 1.0, 2.0]),
        st.integers(0, 9),
    ),
    max_size=100,
)


def batches(found, size):
    columns = [list(column) for column in zip(*found, strict=True)] or [[], [], []]
    table = pa.table([*columns, list(range(len(found)))], schema=SCHEMA)
    return table.to_batches(max_chunksize=size)


def naive(found, sort):
    """Return the numbers of the rows of each key, in their order."""
    groups = {}
    for number, (k, x, at) in enumerate(found):
        groups.setdefault((k, str(x)), []).append((at if sort else 0, number))
    return {key: [number for _, number in sorted(group)] for key, group in groups.items()}


@settings(max_examples=120, deadline=None)
@given(
    rows, st.integers(1, 30), st.sampled_from(["1k", "64m"]), st.booleans(), st.integers(0, 2000)
)
def test_each_group_comes_once_and_whole(found, size, memory, sort, call_bytes):
    seen = {}

    def fit(group):
        key = (group["k"][0].as_py(), str(group["x"][0].as_py()))
        assert key not in seen
        seen[key] = group["i"].to_pylist()
        return group

    def many(table, offsets):
        assert offsets[0].as_py() == 0
        assert offsets[-1].as_py() == table.num_rows
        for start, end in itertools.pairwise(offsets.to_pylist()):
            assert start < end
            yield fit(table.slice(start, end - start))

    options = {"sort": "at" if sort else (), "memory": memory}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CALL_BYTES", call_bytes)
        for make, function in ((hg.per_key, fit), (hg.per_groups, many)):
            seen.clear()
            made = list(make(["k", "x"], function, **options)(batches(found, size)))
            assert seen == naive(found, sort)
            assert sum(table.num_rows for table in made) == len(found)


def test_groups_come_in_the_order_of_their_keys():
    found = [(k, 1.0, 0) for k in (3, None, 1, 3, 0)]
    made = hg.per_key("k", lambda group: group)(batches(found, 2))
    keys = [key for batch in made for key in batch["k"].to_pylist()]
    assert keys == [None, 0, 1, 3, 3]


def test_small_batches_are_joined_if_they_have_the_same_columns(monkeypatch):
    found = [(n // 10, 1.0, n) for n in range(1000)]

    def named(group):
        return group if group["k"][0].as_py() != 50 else group.rename_columns(["k", "x", "at", "n"])

    def made():
        return list(hg.per_key("k", named)(batches(found, 100)))

    assert [batch.num_rows for batch in made()] == [500, 10, 490]
    assert [batch.schema.names[3] for batch in made()] == ["i", "n", "i"]
    monkeypatch.setattr(module, "_RETURNED_BYTES", 20 * 32 + 19)
    small = made()
    assert {batch.num_rows for batch in small} == {10, 20}
    assert sum(batch.num_rows for batch in small) == 1000


@pytest.mark.parametrize("library", ["arrow", "polars", "pandas"])
def test_a_function_gets_the_library_that_it_asks_for(library):
    kinds = {"arrow": pa.Table, "polars": pl.DataFrame}
    found = [(n % 3, 1.0, n) for n in range(9)]
    got = []

    def kept(group):
        got.append(type(group))
        return group

    made = list(hg.per_key("k", kept, as_=library)(batches(found, 4)))
    if library == "pandas":
        assert {kind.__module__.partition(".")[0] for kind in got} == {"pandas"}
    else:
        assert set(got) == {kinds[library]}
    assert len(got) == 3
    assert sum(batch.num_rows for batch in made) == 9
    got.clear()
    list(hg.per_groups("k", lambda table, offsets: kept(table), as_=library)(batches(found, 4)))
    assert len(got) == 1


@pytest.mark.parametrize(
    "column",
    [
        pa.nulls(2),
        pa.array([{"a": 1}, {"a": 2}]),
        pa.array([[1], [2]]),
        pa.array(["a", "b"]).dictionary_encode(),
    ],
    ids=lambda column: str(column.type).partition("<")[0],
)
def test_a_column_that_cannot_be_sorted_is_named(column):
    rows = pa.record_batch({"odd": column, "k": [1, 2]})
    for options in ({"keys": "odd"}, {"keys": "k", "sort": "odd"}):
        with pytest.raises(UnsupportedTypeError, match="'odd'"):
            list(hg.per_key(function=len, **options)([rows]))


def test_a_function_may_return_one_table_or_several():
    found = [(n % 2, 1.0, n) for n in range(4)]

    def twice(group):
        yield group
        yield group

    assert sum(t.num_rows for t in hg.per_key("k", twice)(batches(found, 3))) == 8
    assert sum(t.num_rows for t in hg.per_key("k", lambda t: [t, t])(batches(found, 3))) == 8
    with pytest.raises(SchemaMismatchError, match="the function by key returned None"):
        list(hg.per_key("k", lambda _: None)(batches(found, 3)))


def test_a_dict_is_one_row_and_the_order_of_the_keys_holds():
    def fit(group):
        key = group["k"][0].as_py()
        if key == 3:
            return [group.select(["k", "i"])]
        if key % 2:
            return {"i": len(group), "k": key}
        return {"k": key, "i": np.int64(len(group))}

    found = [(key, None, 0) for key in range(6) for _ in range(key + 1)]
    made = list(hg.per_key("k", fit)(batches(found, 4)))
    table = pa.Table.from_batches(made)
    assert table["k"].to_pylist() == [0, 1, 2, 3, 3, 3, 3, 4, 5]
    assert table["i"].to_pylist()[:3] == [1, 2, 3]


def test_dicts_make_batches_of_a_size(monkeypatch):
    monkeypatch.setattr(module, "_RETURNED_BYTES", 1000)
    found = [(key, None, 0) for key in range(5)]

    def fit(group):
        return {"k": group["k"][0].as_py(), "wide": np.zeros(100), "text": "x" * 50, "all": [1, 2]}

    made = list(hg.per_key("k", fit)(batches(found, 2)))
    assert [batch.num_rows for batch in made] == [2, 2, 1] or len(made) == 5
    assert max(batch.nbytes for batch in made) < 3000
    assert pa.Table.from_batches(made)["wide"].type == pa.list_(pa.float64())


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([{}], "returned a dict with no columns"),
        ([{"a": 1}, {"b": 1}], "returned a dict with b"),
        ([{"a": 1}, {"a": 1, "b": 2}], "returned a dict with a, b"),
        ([{"a": 1}, {"a": "x"}], "values in 'a' that make no column"),
    ],
)
def test_dicts_that_are_no_rows_are_refused(rows, text):
    found = iter(rows)
    reduce = hg.per_key("k", lambda _: next(found))
    with pytest.raises(SchemaMismatchError, match=text):
        list(reduce(batches([(key, None, 0) for key in range(len(rows))], 1)))


def test_memory_is_that_of_the_largest_group(monkeypatch):
    monkeypatch.setattr(module, "_CALL_BYTES", 1000)
    monkeypatch.setattr(sorting, "_BYTES", 500)
    found = [(n // 10, 1.0, n) for n in range(1000)]
    sizes = []
    list(hg.per_groups("k", lambda table, _: sizes.append(table.nbytes) or [])(batches(found, 100)))
    assert max(sizes) < 2 * 100 * 32
    assert len(sizes) > 5


def test_no_rows_call_no_function():
    def never(group):
        raise AssertionError(group)

    assert list(hg.per_key("k", never)([])) == []
    assert list(hg.per_key("k", never)(batches([], 1))) == []


def test_it_can_be_sent_to_workers():
    from pyspark import cloudpickle

    reduce = cloudpickle.loads(cloudpickle.dumps(hg.per_key("k", lambda group: group)))
    (made,) = reduce(batches([(1, 1.0, 1), (2, 1.0, 1)], 1))
    assert made.num_rows == 2
