"""headgate.testing finds on what a function depends, and takes right ones for right."""

import math

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headgate as hg
from headgate.errors import OptionError, SchemaMismatchError
from headgate.testing import Cut, Input, check, run

USERS = ["ann", "bob", "cy", None, "dee"]
CLICKS = pa.table(
    {
        "user": [USERS[n * 7 % 5] for n in range(80)],
        "at": [n * 37 % 80 for n in range(80)],
        "x": [math.nan if n % 9 == 0 else n / 7 for n in range(80)],
    }
)
TOTALS = pa.schema([("user", pa.string()), ("clicks", pa.int64()), ("x", pa.float64())])


def totals(batches):
    table = batches.read_all().group_by("user").aggregate([("at", "count"), ("x", "sum")])
    return table.rename_columns(["user", "clicks", "x"])


def rows(table):
    return sorted(map(str, table.to_pylist()))


def even(batches):
    for batch in batches:
        yield batch.filter(pc.equal(pc.bit_wise_and(batch["at"], 1), 0))


class TestRight:
    def test_a_map_and_a_reduce(self):
        found = check(CLICKS, by="user", map=even, reduce=totals, schema=TOTALS)
        half = CLICKS.filter(pc.equal(pc.bit_wise_and(CLICKS["at"], 1), 0))
        assert rows(found) == rows(totals(hg.Batches(half.to_batches(), half.schema)))

    @pytest.mark.parametrize(
        "given", [pl.DataFrame(CLICKS), CLICKS.to_pandas(), CLICKS.to_batches()]
    )
    def test_rows_of_other_libraries(self, given):
        assert check(given, by="user", reduce=totals, schema=TOTALS, tries=3).num_rows == 5

    @pytest.mark.parametrize("library", ["arrow", "polars", "pandas"])
    def test_per_key(self, library):
        def last(group):
            return group[-1:] if library != "arrow" else group.slice(group.num_rows - 1)

        per_user = hg.per_key("user", last, sort="at", as_=library)
        found = check(CLICKS, by="user", reduce=per_user, schema=CLICKS.schema, tries=5)
        assert found.num_rows == 5

    def test_what_depends_on_the_order_with_sort_within(self):
        def firsts(batches):
            table = batches.read_all().group_by("user", use_threads=False)
            return table.aggregate([("at", "first")])

        check(CLICKS, by="user", reduce=firsts, sort_within="at")
        with pytest.raises(AssertionError, match="the order in which"):
            check(CLICKS, by="user", reduce=firsts)

    def test_several_inputs(self):
        def joined(left, right):
            table = left.read_all().join(right.read_all(), "user", "name", join_type="inner")
            return table.select(["user", "at", "age"])

        ages = pa.table({"name": ["ann", "bob", "cy"], "age": [1, 2, 3]})
        found = check([Input(CLICKS, by="user"), Input(ages, by="name")], reduce=joined)
        assert found.num_rows == 48
        assert set(found["age"].to_pylist()) == {1, 2, 3}

    def test_floats_whose_sum_depends_on_the_order(self):
        table = pa.table({"k": [1] * 50, "x": [0.1 * n for n in range(50)]})

        def sums(batches):
            total = 0.0
            for batch in batches:
                for value in batch["x"].to_pylist():
                    total += value
            yield pa.RecordBatch.from_pydict({"total": [total]})

        def known(batches):
            return [batch for batch in sums(batches) if batch["total"][0].as_py()]

        check(table, by="k", reduce=known)
        with pytest.raises(AssertionError, match="the order in which"):
            check(table, by="k", reduce=known, tolerance=0.0)


def per_batch(batches):
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})


def numbered(batches):
    at = 0
    for batch in batches:
        numbers = pa.array(range(at, at + batch.num_rows), pa.int64())
        at += batch.num_rows
        yield pa.RecordBatch.from_arrays([batch["at"], numbers], names=["at", "n"])


def means(batches):
    """Return the mean of a column for each user: means of parts are not the mean of all."""
    table = batches.read_all().group_by("user").aggregate([("at", "min"), ("at", "mean")])
    return table.rename_columns(["user", "at", "x"])


def last_row(batches):
    table = batches.read_all()
    return table.slice(table.num_rows - 1) if table.num_rows else table


def one_per_call(batches):
    return pa.table({"rows": [batches.read_all().num_rows]})


class Stateful:
    """Leaves out what it has seen before, in this call or another one."""

    def __init__(self):
        self.seen = set()

    def __call__(self, batches):
        for batch in batches:
            new = [at not in self.seen for at in batch["at"].to_pylist()]
            self.seen.update(batch["at"].to_pylist())
            yield batch.filter(pa.array(new, pa.bool_()))


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (
            {"map": per_batch, "schema": pa.schema([("rows", pa.int64())])},
            "map depends on how its rows",
        ),
        (
            {
                "map": numbered,
                "schema": pa.schema([("at", pa.int64()), ("n", pa.int64())]),
                "by": "at",
            },
            "map depends on how the rows are divided",
        ),
        ({"reduce": means, "combine": means}, "combine depends on which rows"),
        ({"reduce": per_batch}, "reduce depends on how its rows"),
        ({"reduce": last_row}, "reduce depends on the order"),
        ({"reduce": one_per_call}, "reduce depends on which keys"),
        ({"map": Stateful()}, "called again"),
        ({"reduce": Stateful()}, "called again"),
    ],
    ids=[
        "map batches",
        "map tasks",
        "means",
        "batches",
        "order",
        "partitions",
        "map state",
        "state",
    ],
)
def test_each_dependence_is_named(job, said):
    by = job.pop("by", None if "schema" in job else "user")
    with pytest.raises(AssertionError, match=said) as caught:
        check(CLICKS, by=by, **job)
    text = str(caught.value)
    assert "instead" in text or "missing" in text
    assert "do   " in text
    assert "Cut(" in text


def test_the_cut_of_an_error_is_repeated_by_run():
    with pytest.raises(AssertionError) as caught:
        check(CLICKS, by="user", reduce=last_row)
    text = str(caught.value)
    cut = eval(text[text.index("Cut(") :].split("\n", maxsplit=1)[0], {"Cut": Cut})
    assert rows(run(CLICKS, by="user", reduce=last_row, cut=cut)) != rows(
        run(CLICKS, by="user", reduce=last_row)
    )
    assert rows(run(CLICKS, by="user", reduce=last_row, cut=cut)) == rows(
        run(CLICKS, by="user", reduce=last_row, cut=cut)
    )


def test_an_error_in_some_cut_has_a_note():
    def first_value(batches):
        return pa.table({"at": [next(batches)["at"][0].as_py()]})

    with pytest.raises((StopIteration, IndexError, RuntimeError)) as caught:
        check(CLICKS, by="user", reduce=first_value)
    assert any("Cut(" in note for note in caught.value.__notes__)


def test_what_is_no_table_is_refused():
    for wrong in (None, 5, {"a": [1]}, [1, 2]):
        with pytest.raises((OptionError, SchemaMismatchError)):
            run(wrong)
    with pytest.raises(OptionError, match="several inputs need reduce"):
        run([Input(CLICKS), Input(CLICKS)])
    with pytest.raises(OptionError, match="belong to an input"):
        run([Input(CLICKS)], map=even)


def test_columns_are_matched_to_the_schema():
    with pytest.raises(SchemaMismatchError, match="clicks"):
        run(CLICKS, by="user", reduce=lambda batches: batches, schema=TOTALS)
    found = run(CLICKS, by="user", reduce=totals, schema=TOTALS)
    assert found.schema == TOTALS


@pytest.mark.parametrize(
    "by",
    [
        None,
        "user",
        ["user", "at"],
        hg.KeyGroupSelector("at"),
        hg.BroadcastSelector(),
        lambda batch: [1] * batch.num_rows,
    ],
    ids=["none", "column", "columns", "key group", "broadcast", "function"],
)
def test_rows_are_where_headgate_places_them(by):
    def placed(batches):
        rows.append(batches.read_all().num_rows)
        return []

    rows = []
    run(CLICKS, by=by, reduce=placed, cut=Cut(num_partitions=3))
    everywhere = isinstance(by, hg.BroadcastSelector)
    assert sum(rows) == (240 if everywhere else 80)
    if callable(by):
        assert rows == [0, 80, 0]


def test_pandas_with_rows_of_an_index():
    frame = pd.DataFrame({"k": [1, 2]}, index=pd.Index([5, 6], name="no"))
    assert run(frame).column_names == ["k", "no"]


LARGE = pa.table({"k": [n % 7 for n in range(60)], "id": range(60)})
SMALL = pa.table({"k": [1, 3, 3, 5, 90], "name": ["a", "b", "c", "d", "e"]})


def inner(large, small):
    return large.read_all().join(small.read_all(), "k", join_type="inner")


def outer(large, small):
    return large.read_all().join(small.read_all(), "k", join_type="full outer")


def counts(large, small):
    table = large.read_all().group_by("k").aggregate([("id", "count")])
    return table.join(small.read_all(), "k", join_type="inner")


class TestBroadcast:
    """An input that is broadcast, or may be: the same rows either way, or an error that says why not."""

    @pytest.mark.parametrize(("broadcast", "by"), [("auto", "k"), (True, None)])
    def test_an_inner_join_has_the_rows_of_plain_python(self, broadcast, by):
        names = {}
        for row in SMALL.to_pylist():
            names.setdefault(row["k"], []).append(row["name"])
        expected = sorted(
            (row["k"], row["id"], name)
            for row in LARGE.to_pylist()
            for name in names.get(row["k"], [])
        )
        inputs = [Input(LARGE), Input(SMALL, broadcast=broadcast)]
        joined = check(inputs, by=by, reduce=inner, tries=5)
        assert sorted(map(tuple, map(dict.values, joined.to_pylist()))) == expected

    @pytest.mark.parametrize("reduce", [outer, counts])
    @pytest.mark.parametrize(("broadcast", "by"), [("auto", "k"), (True, None)])
    def test_a_reduce_that_needs_all_rows_of_a_key_is_told(self, reduce, broadcast, by):
        inputs = [Input(LARGE), Input(SMALL, broadcast=broadcast)]
        with pytest.raises(AssertionError, match="beside all those of an input that is broadcast"):
            check(inputs, by=by, reduce=reduce)
        if broadcast == "auto":
            check([Input(LARGE), Input(SMALL)], by=by, reduce=reduce, tries=2)

    def test_a_cut_says_who_is_sent_whole(self):
        def sizes(small, large):
            return pa.table({"small": [small.read_all().num_rows], "large": [len(pa.table(large))]})

        inputs = [Input(SMALL, broadcast="auto"), Input(LARGE)]
        whole = run(inputs, by="k", reduce=sizes, cut=Cut(broadcast=True))
        assert whole.to_pylist() == [{"small": 5, "large": 60}]
        apart = run(inputs, by="k", reduce=sizes, cut=Cut(producers=True, broadcast=True, seed=3))
        assert set(apart["small"].to_pylist()) == {5}
        assert pc.sum(apart["large"]).as_py() == 60
        assert apart.num_rows > 1

    def test_one_input_is_not_broadcast(self):
        with pytest.raises(OptionError, match="there is one other"):
            check([Input(SMALL, broadcast=True), Input(SMALL, broadcast=True)], reduce=inner)
        with pytest.raises(OptionError, match='is not True, False or "auto"'):
            Input(SMALL, broadcast="small")
