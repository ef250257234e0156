"""per_key as a reduce, against Spark's own groupBy().applyInArrow."""

import sys

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from tests.kit.masters import in_modes

import headgate as hg
from headgate.errors import OptionError
from headgate.spark import exchange, last_stats

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = in_modes("auto", "kept")

SCHEMA = "k double, first string, rows long"


@pytest.fixture
def events(spark):
    """5,000 rows of 40 keys, among them null and NaN, in seven partitions."""
    return spark.range(0, 5_000, 1, 7).selectExpr(
        "CASE id % 40 WHEN 0 THEN NULL WHEN 1 THEN double('NaN') ELSE double(id % 40) END AS k",
        "id * 7919 % 5000 AS at",
        "concat('row ', id) AS name",
    )


def first(group):
    """Return the name of the first row, and the number of rows."""
    group = group.sort_by("at")
    columns = [group["k"][:1], group["name"][:1], pa.array([group.num_rows])]
    return pa.table(
        [column.combine_chunks() for column in columns[:2]] + columns[2:], ["k", "first", "rows"]
    )


def first_of_sorted(group):
    return pa.table(
        {"k": group["k"][:1], "first": group["name"][:1], "rows": pa.array([group.num_rows])}
    )


def firsts(groups, offsets):
    starts = offsets[:-1]
    rows = pa.compute.subtract(offsets[1:], starts)
    return pa.table(
        {"k": groups["k"].take(starts), "first": groups["name"].take(starts), "rows": rows}
    )


def first_of_batches(group):
    begin = next(group)
    rows = begin.num_rows + sum(batch.num_rows for batch in group)
    return {"k": begin["k"][0].as_py(), "first": begin["name"][0].as_py(), "rows": rows}


def found(df):
    return sorted(map(str, df.collect()))


@pytest.mark.parametrize("memory", ["64m", "16k"])
@pytest.mark.parametrize(
    ("make", "function", "as_"),
    [
        (hg.per_key, first_of_sorted, "arrow"),
        (hg.per_key, first_of_batches, "batches"),
        (hg.per_groups, firsts, "arrow"),
    ],
)
def test_each_key_gives_what_apply_in_arrow_gives(events, make, function, as_, memory):
    reduce = make("k", function, sort="at", memory=memory, as_=as_)
    out = exchange(
        events,
        by="k",
        map=iter,
        map_schema=events.schema,
        reduce=reduce,
        schema=SCHEMA,
        num_partitions=3,
    )
    assert found(out) == found(events.groupBy("k").applyInArrow(first, SCHEMA))


def whole(group):
    yield from group


def summed(batches):
    return batches.read_all().group_by("k").aggregate([("n", "sum")]).rename_columns(["k", "n"])


def total(group):
    batches = list(group)
    return {"k": batches[0]["k"][0].as_py(), "n": sum(sum(b["n"].to_pylist()) for b in batches)}


def test_groups_larger_than_memory_in_a_chain_by_the_order_of_the_partition(spark):
    """A third of 20,000 rows has one key; a tenth of it fits into the memory of the sort."""
    rows = spark.range(0, 20_000, 1, 5).selectExpr(
        "if(id % 3 = 0, 'large', concat('k', id % 50)) AS k",
        "id * 7919 % 20000 AS n",
        "struct(id % 7 AS part) AS s",
    )

    def places(group):
        """Number the rows of a group in the order in which they come."""
        at = 0
        for batch in group:
            numbers = pa.array(range(at, at + batch.num_rows))
            yield batch.select(["k", "n"]).append_column("at", numbers)
            at += batch.num_rows

    by_key = hg.per_key("k", places, as_="batches", memory="16k")
    placed = exchange(
        rows,
        by="k",
        map=iter,
        map_schema=rows.schema,
        sort_within=["s.part", "n"],
        reduce=by_key,
        schema="k string, n long, at long",
        num_partitions=3,
    )
    order = "row_number() OVER (PARTITION BY k ORDER BY s.part, n) - 1 AS at"
    expected = {tuple(row) for row in rows.selectExpr("k", "n", order).collect()}
    assert {tuple(row) for row in placed.collect()} == expected
    largest = last_stats().largest_group
    assert (largest.key, largest.rows) == ({"k": "large"}, 6667)
    assert any("6.7K rows" in notice for notice in last_stats().notices)
    sums = exchange(
        placed,
        by="k",
        map=iter,
        map_schema=placed.schema,
        reduce=hg.per_key("k", total, as_="batches", memory="16k"),
        schema="k string, n long",
    )
    expected = {tuple(row) for row in rows.groupBy("k").sum("n").collect()}
    assert {tuple(row) for row in sums.collect()} == expected
    merged = exchange(
        rows.select("k", "n"),
        by="k",
        combine=summed,
        reduce=hg.per_key("k", total, as_="batches", memory="16k"),
        schema="k string, n long",
    )
    assert {tuple(row) for row in merged.collect()} == expected


def test_two_inputs_are_refused(events):
    reduce = hg.per_key("k", whole, as_="batches")
    with pytest.raises(OptionError, match="2 inputs"):
        exchange([events, events], by="k", reduce=reduce, schema=SCHEMA)
