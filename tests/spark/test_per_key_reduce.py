"""per_key as a reduce, against Spark's own groupBy().applyInArrow."""

import sys

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from tests.kit.masters import in_modes

import headgate as hg
from headgate.spark import exchange

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


def found(df):
    return sorted(map(str, df.collect()))


@pytest.mark.parametrize("memory", ["64m", "16k"])
@pytest.mark.parametrize("make", [hg.per_key, hg.per_groups])
def test_each_key_gives_what_apply_in_arrow_gives(events, make, memory):
    function = first_of_sorted if make is hg.per_key else firsts
    reduce = make("k", function, sort="at", memory=memory)
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
