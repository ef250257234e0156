"""combine merges rows before they are sent, with the same result, whoever moves the rows."""

import sys
from collections import defaultdict
from random import Random

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from tests.kit.masters import in_modes
from tests.kit.waiting import wait_until

import headgate as hg
from headgate.source import NumberSequenceSource
from headgate.spark import Input, exchange, explain, last_stats

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

#: Of 60,000 rows three fifths have the key 0.
HOT = "CASE WHEN id % 5 < 3 THEN 0 ELSE id % 97 END"
PARTIAL = "k long, rows long, total long"


def counted(batches):
    for batch in batches:
        rows = pa.array([1] * batch.num_rows, pa.int64())
        yield pa.RecordBatch.from_arrays([batch["k"], rows, batch["id"]], ["k", "rows", "total"])


def sums(batches):
    table = pa.table(batches).group_by("k").aggregate([("rows", "sum"), ("total", "sum")])
    return table.rename_columns(["k", "rows", "total"])


@pytest.fixture
def hot(spark):
    return spark.range(0, 60_000, 1, 6).selectExpr("id", f"{HOT} AS k")


@pytest.fixture
def expected(hot):
    return sorted(map(tuple, hot.groupBy("k").agg({"*": "count", "id": "sum"}).collect()))


def sorted_rows(df):
    return sorted(map(tuple, df.collect()))


class TestEachMode:
    pytestmark = in_modes("auto", "kept", "spark")

    def test_totals_are_those_of_sparks_group_by(self, hot, expected):
        call = {"by": "k", "map": counted, "map_schema": PARTIAL, "schema": PARTIAL}
        assert sorted_rows(exchange(hot, reduce=sums, combine=sums, **call)) == expected

    def test_without_map_the_rows_of_the_input_are_merged(self, spark, expected, hot):
        rows = hot.selectExpr("k", "1L AS rows", "id AS total")
        assert (
            sorted_rows(exchange(rows, by="k", combine=sums, reduce=sums, schema=PARTIAL))
            == expected
        )


SHAPE = "k string, rows long, total long, least long, kinds array<string>"


def merged(group):
    """Merge rows of a key, each of which stands for several: a row as a dict, of polars."""
    kinds = sorted({kind for kinds in group["kinds"].to_list() for kind in kinds})
    sums_of = {"rows": group["rows"].sum(), "total": group["total"].sum()}
    return {"k": group["k"][0], **sums_of, "least": group["least"].min(), "kinds": kinds}


def merged_groups(groups, offsets):
    """Merge rows of several keys: a table of pyarrow."""
    rows = groups.to_pylist()
    merged_rows = []
    for start, end in zip(offsets.to_pylist(), offsets.to_pylist()[1:], strict=False):
        group = rows[start:end]
        least = [row["least"] for row in group if row["least"] is not None]
        merged_rows.append(
            {
                "k": group[0]["k"],
                "rows": sum(row["rows"] for row in group),
                "total": sum(row["total"] for row in group),
                "least": min(least, default=None),
                "kinds": sorted({kind for row in group for kind in row["kinds"]}),
            }
        )
    return pa.Table.from_pylist(merged_rows, groups.schema)


class TestFunctionsByKey:
    """A function by key that merges gives the same with combine and without it, and so does plain Python."""

    pytestmark = in_modes("auto", "kept", "spark")

    @pytest.mark.parametrize("seed", range(2))
    @pytest.mark.parametrize("partitions", [3, "auto"])
    def test_random_rows_have_the_totals_of_plain_python(self, spark, seed, partitions):
        random = Random(seed)
        names = [None, "hot", *(f"key {n}" for n in range(random.choice([1, 40])))]
        rows = [
            (
                "hot" if random.random() < 0.6 else random.choice(names),
                1,
                random.randrange(-1000, 1000),
                random.choice([None, random.randrange(9)]),
                [random.choice("abc")],
            )
            for _ in range(random.choice([1, 3000]))
        ]
        expected = defaultdict(list)
        for key, *values in rows:
            expected[key].append(values)
        df = spark.createDataFrame(rows, SHAPE).repartition(random.choice([1, 5]))
        reduce = random.choice(
            [hg.per_key("k", merged, as_="polars"), hg.per_groups("k", merged_groups)]
        )
        options = {"advisory_bytes": "20k"} if partitions == "auto" else {}
        for combine in (reduce, None):
            out = exchange(
                df,
                by="k",
                combine=combine,
                reduce=reduce,
                schema=SHAPE,
                num_partitions=partitions,
                **options,
            )
            totals = out.collect()
            assert len(totals) == len(expected)
            assert {key: values for key, *values in totals} == {
                key: [
                    len(group),
                    sum(total for _, total, _, _ in group),
                    min((least for _, _, least, _ in group if least is not None), default=None),
                    sorted({kind for *_, kinds in group for kind in kinds}),
                ]
                for key, group in expected.items()
            }


def test_only_merged_rows_are_sent(hot, expected):
    call = {"by": "k", "map": counted, "map_schema": PARTIAL, "schema": PARTIAL}
    assert sorted_rows(exchange(hot, reduce=sums, combine=sums, **call)) == expected
    # One row for each key and producer.
    wait_until(lambda: last_stats().is_over)
    sent = last_stats().rows
    assert sent <= 6 * len(expected)
    assert last_stats().notices == (f"combine made {sent} rows of 60,000 before they were sent",)


def test_a_source_and_one_of_two_inputs_are_merged(spark):
    def keyed(batches):
        for batch in batches:
            key = pa.compute.bit_wise_and(batch["id"], 3)
            columns = [key, pa.array([1] * len(key), pa.int64()), batch["id"]]
            yield pa.RecordBatch.from_arrays(columns, ["k", "rows", "total"])

    def named(totals, names):
        return sums(totals).join(pa.table(names), "k", join_type="inner")

    names = spark.sql("SELECT id AS k, concat('key ', id) AS name FROM range(4)")
    numbers = Input(NumberSequenceSource(0, 1000), map=keyed, map_schema=PARTIAL, combine=sums)
    schema = f"{PARTIAL}, name string"
    joined = exchange([numbers, names], by="k", reduce=named, schema=schema)
    totals = {n: sum(range(n, 1000, 4)) for n in range(4)}
    assert sorted_rows(joined) == [(n, 250, totals[n], f"key {n}") for n in range(4)]


def test_an_error_of_combine_has_its_name_and_line(hot):
    def failing(batches):
        raise ValueError("no such key")

    rows = hot.selectExpr("k", "1L AS rows", "id AS total").coalesce(1)
    with pytest.raises(Exception, match="no such key"):
        exchange(rows, by="k", combine=failing, reduce=sums, schema=PARTIAL).collect()


def test_explain_says_who_merges(hot):
    out = exchange(
        hot,
        by="k",
        mode="auto",
        combine=lambda rows: rows,
        reduce=hg.per_key("k", sums),
        schema=PARTIAL,
    )
    assert "combine merges the rows in Python" in str(explain(out))
