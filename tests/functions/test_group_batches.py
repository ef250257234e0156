"""per_key gives a function the batches of one group at a time, which may have more bytes than memory."""

import math

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.errors import ClosedError, OptionError, SchemaMismatchError, UnsupportedTypeError
from headgate.functions import per_key as module
from headgate.functions import sorting
from headgate.spark.tasks.user_function import Order, Source, apply

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("at", pa.timestamp("us")),
        ("nested", pa.struct([("i", pa.int64()), ("all", pa.list_(pa.string()))])),
        ("i", pa.int64()),
    ]
)
NAN = float("nan")

tables = st.lists(
    st.tuples(
        st.integers(0, 2) | st.none(),
        st.sampled_from([None, NAN, -0.0, 0.0, 1.5]),
        st.sampled_from([None, "", "a", "aa", "é"]),
        st.integers(0, 9) | st.none(),
    ),
    max_size=150,
)


def batches(rows, size):
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]
    numbers = list(range(len(rows)))
    nested = [{"i": n, "all": ["x" * (n % 5), None]} if n % 7 else None for n in numbers]
    return pa.table([*columns, nested, numbers], schema=SCHEMA).to_batches(max_chunksize=size)


def place(value):
    """Return what sorts as Spark sorts: nulls first, NaN last, both zeros alike."""
    if value is None:
        return (0, 0)
    return (2, 0) if isinstance(value, float) and math.isnan(value) else (1, value)


def expected_groups(rows, keys, sort):
    """Return the numbers of the rows of each group, all in order."""

    def places(number, names):
        values = {("nested", "i"): number if number % 7 else None}
        values |= dict(zip(SCHEMA.names, rows[number], strict=False))
        return tuple(place(values[name]) for name in names)

    groups = {}
    for number in sorted(range(len(rows)), key=lambda number: places(number, [*keys, *sort])):
        groups.setdefault(places(number, keys), []).append(number)
    return list(groups.values())


@pytest.fixture(autouse=True, scope="module")
def small_blocks():
    """Let few rows make many files and batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "_LEAST_BLOCK", 1000)
        patch.setattr(sorting, "_BYTES", 2000)
        patch.setattr(sorting, "_RUNS", 5)
        yield


@settings(max_examples=100, deadline=None)
@given(
    tables,
    st.integers(1, 40),
    st.sampled_from([1, 500, 4000, 1 << 30]),
    st.sampled_from([["k"], ["x"], ["s", "k"], ["x", "at"]]),
    st.sampled_from([[], ["at"], ["s", "x"]]),
    st.data(),
)
def test_each_group_has_the_rows_of_pythons_sort_however_many_are_taken(
    rows, size, memory, keys, sort, data
):
    whole, left_early = [], []

    def take_first(group):
        most = data.draw(st.sampled_from([0, 1, 2, 1000]))
        assert group.schema == SCHEMA
        numbers = []
        for _, batch in zip(range(most), group, strict=False):
            numbers += batch["i"].to_pylist()
            assert (
                batch["nested"].to_pylist()
                == batches(rows, 1000)[0]["nested"].take(batch["i"]).to_pylist()
            )
        whole.append(numbers if most == 1000 else None)
        left_early.append(numbers)
        return []

    within = data.draw(st.sampled_from([None, ["s"], [("nested", "i"), "k"]]))
    reduce = hg.per_key(keys, take_first, sort=sort, as_="batches", memory=memory)
    source = Source(
        iter(batches(rows, size)),
        SCHEMA,
        lambda _: None,
        order=within and Order(tuple(within), 100),
    )
    assert list(apply("reduce", reduce, source)) == []
    groups = expected_groups(rows, keys, [*sort, *(within or [])])
    assert len(whole) == len(groups)
    for numbers, first, group in zip(whole, left_early, groups, strict=True):
        assert numbers in (None, group)
        assert first == group[: len(first)]
    largest = reduce.largest_group
    if rows:
        assert largest.rows in map(len, groups)
        assert list(largest.key) == keys
    else:
        assert largest is None


@settings(max_examples=20, deadline=None)
@given(tables, st.integers(1, 40), st.sampled_from([1, 2000]))
def test_a_group_that_is_returned_is_all_its_rows(rows, size, memory):
    def later(group):
        yield from group

    expected = [number for group in expected_groups(rows, ["s"], ["at"]) for number in group]
    for function in (iter, later, pa.table, pl.DataFrame, lambda group: group):
        reduce = hg.per_key("s", function, sort="at", as_="batches", memory=memory)
        numbers = [
            number for batch in reduce(batches(rows, size)) for number in batch["i"].to_pylist()
        ]
        assert numbers == expected


ROWS = [(n % 3, 1.0, "s", n) for n in range(600)]


def test_a_group_that_is_taken_after_its_call_is_an_error():
    groups = []

    def keep(group):
        groups.append(group)
        return {"k": next(group)["k"][0].as_py()}

    reduce = hg.per_key("k", keep, as_="batches", memory=4000)
    assert pa.Table.from_batches(reduce(batches(ROWS, 50)))["k"].to_pylist() == [0, 1, 2]
    for group in groups:
        with pytest.raises(ClosedError, match="after the call for the group had ended"):
            next(group)
        with pytest.raises(ClosedError):
            group.read_all()


def test_a_batch_that_is_returned_before_all_were_taken_is_refused():
    with pytest.raises(SchemaMismatchError, match="returned a batch before it had taken all"):
        list(hg.per_key("k", next, as_="batches", memory=4000)(batches(ROWS, 50)))


def test_an_error_of_the_rows_is_raised_although_the_function_catches_it(monkeypatch):
    caught = []

    def failing(run):
        raise OSError("the disk")

    def careless(group):
        yield next(group)
        monkeypatch.setattr(sorting._Run, "fill", failing)
        try:
            yield from group
        except OSError as error:
            caught.append(error)

    with pytest.raises(OSError, match="the disk"):
        list(hg.per_key("k", careless, as_="batches", memory=4000)(batches(ROWS, 50)))
    assert caught


@pytest.mark.parametrize("end", ["close", "raise", "yield and raise", "all"])
def test_no_file_is_left(end, monkeypatch, tmp_path):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    files, groups = [], []
    temporary = sorting.tempfile.TemporaryFile

    def watched(**options):
        files.append(temporary(**options))
        return files[-1]

    monkeypatch.setattr(sorting.tempfile, "TemporaryFile", watched)
    monkeypatch.setattr(module, "_RETURNED_BYTES", 100)

    def function(group):
        groups.append(group)
        yield next(group)
        if end.endswith("raise"):
            raise ValueError("no")
        yield from group

    def failing(group):
        groups.append(group)
        raise ValueError("no")

    called = failing if end == "raise" else function
    output = hg.per_key("k", called, as_="batches", memory=4000)(batches(ROWS, 50))
    if end.endswith("raise"):
        with pytest.raises(ValueError, match="no") as error:
            list(output)
        assert error.tb is not None  # its frames live on
    elif end == "close":
        next(output)
        assert not all(file.closed for file in files)
        output.close()
    else:
        assert sum(batch.num_rows for batch in output) == 600
    assert len(files) > 5
    assert groups
    assert all(file.closed for file in files)
    assert not list(tmp_path.iterdir())


def test_the_largest_group_is_that_with_the_most_bytes():
    sizes = {"a": 40, "b": 900, None: 30}
    rows = [(0, 1.0, key, 0) for key, count in sizes.items() for _ in range(count)]
    for as_ in ("batches", "arrow"):
        reduce = hg.per_key(["s", "x"], lambda _: [], as_=as_, memory=20_000)
        list(reduce(batches(rows, 60)))
        largest = reduce.largest_group
        assert (largest.key, largest.rows) == ({"s": "b", "x": "1"}, 900)
        assert largest.bytes > 900 * 30
    wide = pa.record_batch({"b": [b"\xff" * 70, None, None], "n": ["x" * 9000, "", ""]})
    reduce = hg.per_groups("b", lambda _rows, _offsets: [])
    list(reduce([wide]))
    assert reduce.largest_group.key == {"b": "ff" * 48 + "f..."}
    list(reduce([]))
    assert reduce.largest_group is None


def test_values_and_columns_that_are_refused():
    with pytest.raises(OptionError, match="as_='rows' is unknown") as error:
        hg.per_key("k", iter, as_="rows")
    assert 'as_="batches"' in error.value.remedy
    with pytest.raises(OptionError, match="as_='batches' is for per_key"):
        hg.per_groups("k", lambda rows, offsets: [], as_="batches")
    with pytest.raises(UnsupportedTypeError, match="'nested'"):
        list(hg.per_key("k", iter, sort="nested", as_="batches")(batches(ROWS, 50)))
