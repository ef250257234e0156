"""Exchanges in a row: the tasks that return the rows of one send those of the next, and the rows are Spark's."""

import os
import random
import sys
import time
import uuid

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it
from tests.kit.masters import in_executors

from headgate.sink import FileSink
from headgate.spark import Input, exchange, explain, last_stats, write

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SCHEMA = "k long, n long, s string"


@pytest.fixture
def rows(spark):
    """3,000 rows in 3 partitions: a key, a number that is null in each 11th row, a text."""
    n = "if(id % 11 = 0, null, id)"
    return spark.range(0, 3_000, 1, 3).selectExpr("id % 50 k", f"{n} n", "concat('row ', id) s")


def same(batches):
    yield from batches


def plus(batches):
    for batch in batches:
        columns = [batch["k"], pc.add(batch["n"], 1), batch["s"]]
        yield pa.RecordBatch.from_arrays(columns, names=["k", "n", "s"])


def plus_at_once(batches):
    """Keep all batches, also once the tasks before have ended."""
    yield from plus(batches.read_all().to_batches())


def sums(batches):
    """Return a row for each k: the sum of n and the least s."""
    groups = batches.read_all().group_by("k").aggregate([("n", "sum"), ("s", "min")])
    return groups.select(["k", "n_sum", "s_min"]).rename_columns(["k", "n", "s"])


def both(left, right):
    yield pa.record_batch([[left.read_all().num_rows], [right.read_all().num_rows]], ["l", "r"])


def functions_of(df):
    """Return how many functions of Python Spark's physical plan has."""
    plan = df._jdf.queryExecution().sparkPlan().toString()
    return sum("MapInArrow" in line for line in plan.splitlines())


def hops(df):
    return [(hop.crosses, hop.why) for hop in explain(df).hops]


def two(rows, between=lambda df: df, **second):
    """Return an exchange of what ``between`` makes of the result of another one."""
    first = exchange(rows, by="k", map=plus, reduce=sums, schema=SCHEMA, num_partitions=3)
    middle = between(first)
    named = {"map": same, "schema": middle.schema, "num_partitions": 2, **second}
    return exchange(middle, by="n", **named)


def placed(df):
    rows = df.selectExpr("spark_partition_id() as p", "*").collect()
    return sorted(map(tuple, rows), key=repr)


# --- Rows are Spark's ---

#: A step between two exchanges, which Spark does alike.
STEPS = [
    *(f"where {condition}" for condition in ("k > 3", "s LIKE 'row 1%'", "n IS NULL OR n > 90")),
    *(f"where {condition}" for condition in ("NOT (k = 2 OR n > 2000)", "n <=> 5 OR k IN (1, 9)")),
    *("where k % 2 = 0", "where true", "where false", "rename", "select", "alias", "computed"),
]


def stepped(df, step):
    kind, _, condition = step.partition(" ")
    match kind:
        case "where":
            return df.where(condition)
        case "rename":
            return df.withColumnRenamed("n", "other").withColumnRenamed("other", "n")
        case "select":
            return df.select("s", F.col("n").alias("m"), "k").select(
                "k", F.col("m").alias("n"), "s"
            )
        case "alias":
            return df.alias("before").select("before.*")
        case _:
            return df.select("k", (F.col("n") - 1).alias("n"), "s")


def a_chain(chance):
    """Return the exchanges of a random chain: the column by which rows are placed, the functions, the steps after."""
    for _ in range(chance.randint(1, 4)):
        by = chance.choice(["k", "k", "n", "s"])
        map_ = chance.choice([None, plus, plus_at_once])
        has_sums = by == "k" and chance.random() < 0.5
        steps = [chance.choice(STEPS) for _ in range(chance.randint(0, 2))]
        mode = chance.choice(["auto", "kept"])
        yield by, map_, has_sums or map_ is None, steps, chance.randint(1, 4), mode


def by_spark(df, chain):
    for by, map_, has_reduce, steps, *_ in chain:
        df = df if map_ is None else df.withColumn("n", F.col("n") + 1)
        if has_reduce and by == "k":
            df = df.groupBy("k").agg(F.sum("n").alias("n"), F.min("s").alias("s"))
        for step in steps:
            df = stepped(df, step)
    return df


def by_headgate(df, chain, chaining):
    for by, map_, has_reduce, steps, partitions, mode in chain:
        df = exchange(
            df,
            by=by,
            map=map_,
            reduce=(sums if by == "k" else same) if has_reduce else None,
            schema=SCHEMA,
            num_partitions=partitions,
            mode=mode,
            chaining=chaining,
        )
        for step in steps:
            df = stepped(df, step)
    return df


def check_random(rows, seed):
    chain = list(a_chain(random.Random(seed)))
    chained = placed(by_headgate(rows, chain, "auto"))
    assert chained == placed(by_headgate(rows, chain, "off")), (seed, chain)
    expected = sorted(map(tuple, by_spark(rows, chain).collect()), key=repr)
    assert sorted((row[1:] for row in chained), key=repr) == expected, (seed, chain)


@pytest.mark.parametrize("seed", range(3))
def test_random_chains_have_the_rows_and_partitions_of_spark(rows, seed):
    check_random(rows, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 140))
def test_more_random_chains(rows, seed):
    check_random(rows, seed)


# --- Which rows do not cross ---


def test_a_chain_of_three_crosses_into_python_once_and_back_once(rows):
    chosen = two(
        rows, lambda df: df.where("k > 3").drop("s").alias("a").withColumnRenamed("k", "j")
    )
    last = exchange(chosen, by="j", reduce=same, schema=chosen.schema, num_partitions=2)
    assert functions_of(last) == 4
    assert [crosses for crosses, _ in hops(last)] == ["into Python", "", "", "into the JVM"]
    assert str(explain(last)).startswith(
        "headgate chain: rows cross between the JVM and Python 2 times\n"
    )
    assert sum(row["n"] for row in last.collect()) == sum(
        row["n"] + 1 for row in rows.where("k > 3 AND n IS NOT NULL").collect()
    )
    assert last_stats().name == explain(last).exchanges[-1].name


#: What is between two exchanges -> a part of the reason for which Spark takes the rows.
APART = {
    "computed": (
        lambda df: df.withColumn("n", F.col("n") + 1),
        "Spark computes a column of it, by Add",
    ),
    "filtered": (lambda df: df.where("hash(n) > 0"), "its filter has Murmur3Hash"),
    "limited": (lambda df: df.limit(5), "GlobalLimit"),
    "joined": (lambda df: df.join(df.select("k").distinct(), "k"), "Join"),
    "doubled": (lambda df: df.union(df), "Union"),
}


@pytest.mark.parametrize("case", APART)
def test_more_than_filters_and_columns_are_left_to_spark_and_the_reason_is_said(rows, case):
    between, why = APART[case]
    out = two(rows, between)
    assert functions_of(out) >= 4
    _, reason = next(hop for hop in hops(out) if hop[0] == "into the JVM and back")
    assert why in reason
    assert any(why in input_.why_apart for input_ in explain(out).exchanges[-1].inputs)


def test_calls_that_spark_serves_better_are_not_chained(rows):
    for second, why in (
        ({"chaining": "off"}, "chaining is off (argument)"),
        ({"map": None, "schema": None, "mode": "auto"}, "no function gets its rows"),
    ):
        out = two(rows, **second)
        assert why in explain(out).exchanges[-1].inputs[0].why_apart
    middle = exchange(rows, by="k", map=same, schema=SCHEMA)
    by_lower = exchange(middle, by=F.lower("s"), reduce=same, schema=SCHEMA, mode="auto")
    in_turn = exchange(middle, reduce=same, schema=SCHEMA, mode="auto")
    for out, why in ((by_lower, "Spark computes its keys"), (in_turn, "one by one")):
        assert why in explain(out).exchanges[-1].inputs[0].why_apart
        assert explain(out).exchanges[-1].mode == "repartition"


def test_a_cached_result_is_read_and_not_computed_again(rows):
    middle = exchange(rows, by="k", map=plus, schema=SCHEMA, num_partitions=3).cache()
    try:
        for df in (middle, middle.where("k > 3")):
            out = exchange(df, by="n", map=same, schema=SCHEMA, num_partitions=2)
            assert "InMemoryTableScan" in out._jdf.queryExecution().executedPlan().toString()
            assert explain(out).exchanges[-1].inputs[0].why_apart == "its rows are cached"
    finally:
        middle.unpersist(blocking=True)
    assert functions_of(exchange(middle, by="n", map=same, schema=SCHEMA)) == 3


def test_two_branches_of_an_action_share_what_was_sent(rows, tmp_path):
    def counted(batches):
        (tmp_path / uuid.uuid4().hex).touch()
        yield from plus(batches)

    middle = exchange(rows, by="k", map=counted, schema=SCHEMA, num_partitions=3)
    left, right = (
        exchange(middle, by=name, reduce=same, schema=SCHEMA, num_partitions=2)
        for name in ("n", "s")
    )
    joined = exchange([left, right], by="k", reduce=both, schema="l long, r long")
    counts = joined.collect()
    assert sum(row["l"] for row in counts) == sum(row["r"] for row in counts) == 3_000
    assert len(list(tmp_path.iterdir())) == 3, "one call of map for each producer"


def test_each_of_several_inputs_and_a_reduce_of_spark_are_chained(rows):
    first = exchange(rows, by="k", reduce=sums, schema=SCHEMA, num_partitions=3, mode="auto")
    assert explain(first).exchanges[0].mode == "repartition"

    out = exchange(
        [first, rows, first.where("k < 5").select("k")],
        by="k",
        reduce=lambda left, _, right: both(left, right),
        schema="l long, r long",
        num_partitions=4,
    )
    assert functions_of(out) == 4
    assert [facts.follows != "" for facts in explain(out).exchanges[-1].inputs] == [
        True,
        False,
        True,
    ]
    counts = out.collect()
    assert (sum(row["l"] for row in counts), sum(row["r"] for row in counts)) == (50, 5)


def test_rows_are_merged_between_exchanges_and_partitions_joined_by_their_sizes(rows):
    merged = {"by": "k", "combine": sums, "reduce": sums, "schema": SCHEMA}
    first = exchange(rows, num_partitions="auto", **merged)
    even = first.where("k % 2 = 0")
    totals = rows.where("k % 2 = 0").groupBy("k").agg(F.sum("n").alias("n"), F.min("s").alias("s"))
    for second in ({"num_partitions": "auto"}, {"num_partitions": 2, "mode": "spark"}):
        out = exchange(even, **merged, **second)
        assert functions_of(out) == 3
        assert sorted(out.collect()) == sorted(totals.collect())


def test_a_broadcast_input_and_the_other_one_may_come_from_exchanges(rows):
    large = exchange(rows, by="k", map=plus, schema=SCHEMA, num_partitions=3)
    small = exchange(rows, by="k", reduce=sums, schema=SCHEMA, num_partitions=2, mode="kept")

    def joined(left, right):
        names = right.read_all().select(["k", "s"]).rename_columns(["k", "least"])
        yield from left.read_all().join(names, "k").select(["s", "least"]).to_batches()

    out = exchange(
        [large, Input(small, broadcast=True)], reduce=joined, schema="s string, least string"
    )
    least = rows.groupBy("k").agg(F.min("s").alias("least"))
    assert sorted(out.collect()) == sorted(rows.join(least, "k").select("s", "least").collect())


def test_a_map_before_sparks_own_shuffle_is_chained(rows):
    out = two(rows, lambda df: df.where("k < 9"), mode="spark")
    assert functions_of(out) == 2
    assert out.count() == 9


def test_what_a_chain_returns_is_written_without_the_jvm(rows, spark, tmp_path, caplog):
    out = two(rows, reduce=same, map=None).select("k", F.col("n").alias("total"))
    with caplog.at_level("INFO", "headgate.spark"):
        result = write(out, FileSink(str(tmp_path / "chained")))
    assert "also write them" in caplog.text
    read = spark.read.parquet(str(tmp_path / "chained"))
    assert (result.rows, read.columns) == (50, ["k", "total"])
    expected = rows.groupBy("k").agg(F.sum(F.col("n") + 1).alias("total"))
    assert sorted(map(tuple, read.collect())) == sorted(map(tuple, expected.collect()))


# --- Failures ---


@in_executors
def test_a_killed_worker_in_the_middle_runs_again_and_no_other(rows, tmp_path):
    def killed_once(batches):
        from pyspark import TaskContext

        number = TaskContext.get().partitionId()
        (tmp_path / f"{number}-{time.monotonic_ns()}").touch()
        yield from batches
        if number == 2 and len(list(tmp_path.glob("2-*"))) == 1:
            os.kill(os.getpid(), 9)

    out = two(rows, map=killed_once)
    last = exchange(out, by="k", reduce=same, schema=SCHEMA, num_partitions=2)
    expected = rows.groupBy("k").agg(F.sum(F.col("n") + 1), F.min("s"))
    assert sorted(map(tuple, last.collect())) == sorted(map(tuple, expected.collect()))
    assert sorted(path.name[0] for path in tmp_path.iterdir()) == ["0", "1", "2", "2"]


def test_an_error_has_the_frames_of_the_function_that_raised(rows):
    def fails(batches):
        raise ValueError("not today")

    middle = exchange(rows, by="k", map=same, reduce=fails, schema=SCHEMA)
    out = exchange(middle, by="n", map=same, schema=SCHEMA)
    with pytest.raises(Exception, match="not today") as raised:
        out.collect()
    assert "in fails" in str(raised.value)
    assert "in same" not in str(raised.value)


@pytest.mark.soak
def test_a_result_is_forgotten_once_its_plan_is_garbage(rows, spark):
    import gc

    from tests.kit.waiting import wait_until

    from headgate.spark.plan.chain import _results_of

    def is_remembered(name):
        results = _results_of(spark.sparkContext)
        results._lifetimes.look()
        return any(task.exchange == name for _, task in list(results._tasks.values()))

    first = exchange(rows, by="k", map=plus, schema=SCHEMA)
    out = exchange(first, by="n", map=same, schema=SCHEMA)
    name = explain(out).exchanges[0].name
    assert is_remembered(name)
    del first
    gc.collect()

    def is_gone():
        spark.sparkContext._jvm.System.gc()
        return not is_remembered(name)

    wait_until(is_gone, "the first result is forgotten", 60)
    # Its producers are those of the second.
    assert out.count() == 3_000
    assert last_stats().rows == 3_000
