"""The result of exchange() is an ordinary DataFrame: all actions and operators work on it."""

import threading

import pytest

from headgate.spark import exchange

ROWS = 20_000


@pytest.fixture
def out(numbers):
    return exchange(numbers, by="k")


@pytest.fixture
def one(numbers):
    return exchange(numbers, by="k", num_partitions=4)


def test_take_head_and_limit(out):
    assert len(out.take(5)) == 5
    assert len(out.head(3)) == 3
    assert len(out.limit(7).collect()) == 7


def test_a_limit_above_the_number_of_rows_takes_all(out):
    assert out.limit(10 * ROWS).count() == ROWS
    assert len(out.take(ROWS)) == ROWS


@pytest.mark.soak
def test_is_empty(out, numbers):
    assert not out.isEmpty()
    assert exchange(numbers.where("id < 0"), by="k").isEmpty()


def test_collect_to_arrow_to_pandas(out):
    assert {row["id"] for row in out.collect()} == set(range(ROWS))
    table = out.toArrow()
    assert sorted(table["id"].to_pylist()) == list(range(ROWS))
    assert len(out.toPandas()) == ROWS


def test_to_local_iterator(out):
    assert sum(1 for _ in out.toLocalIterator()) == ROWS


@pytest.mark.soak
def test_foreach_partition(spark, out):
    seen = spark.sparkContext.accumulator(0)
    out.foreachPartition(lambda rows: seen.add(sum(1 for _ in rows)))
    assert seen.value == ROWS


@pytest.mark.soak
def test_write(out, spark, tmp_path):
    out.write.parquet(str(tmp_path / "out"))
    assert spark.read.parquet(str(tmp_path / "out")).count() == ROWS


def test_cache_then_show(out, capsys):
    cached = out.cache()
    try:
        cached.show(2)
        assert cached.count() == ROWS
        assert cached.where("k = 7").count() == ROWS // 100
    finally:
        cached.unpersist(blocking=True)
    assert "row " in capsys.readouterr().out


def test_self_join_of_a_cached_exchange(one):
    cached = one.cache()
    try:
        assert cached.alias("a").join(cached.alias("b"), "id").count() == ROWS
        assert cached.count() == ROWS
    finally:
        cached.unpersist(blocking=True)


def test_coalesce(out):
    one = out.coalesce(1)
    assert one.rdd.getNumPartitions() == 1
    assert one.count() == ROWS


def test_union_of_two_exchanges_in_one_stage(one, numbers):
    both = one.union(exchange(numbers, by="s", num_partitions=4))
    assert both.count() == 2 * ROWS
    assert both.distinct().count() == ROWS


def test_union_with_itself_and_with_a_table(one, numbers):
    assert one.union(one).count() == 2 * ROWS
    assert one.union(numbers).count() == 2 * ROWS


def test_self_join(one):
    joined = one.alias("a").join(one.alias("b"), "id")
    assert joined.count() == ROWS


def test_join_with_a_table(out, spark):
    table = spark.createDataFrame([(k, f"name {k}") for k in range(50)], "k long, name string")
    assert out.join(table, "k").count() == ROWS // 2
    assert out.join(table.hint("merge"), "k").count() == ROWS // 2


def test_group_by_and_order_by(out):
    rows = out.groupBy("k").count().orderBy("k").collect()
    assert [(row["k"], row["count"]) for row in rows] == [(k, ROWS // 100) for k in range(100)]
    assert [row["id"] for row in out.orderBy("id").limit(3).collect()] == [0, 1, 2]


def test_an_exchange_of_an_exchange(one):
    again = exchange(one, by="s", num_partitions=4)
    assert again.count() == ROWS
    assert again.select("id").distinct().count() == ROWS


def test_used_by_two_actions_at_once(one):
    counts, threads = [], []
    for _ in range(2):
        threads.append(threading.Thread(target=lambda: counts.append(one.count())))
        threads[-1].start()
    for thread in threads:
        thread.join(60)
    assert counts == [ROWS, ROWS]


@pytest.mark.soak
@pytest.mark.parametrize("partitions", [1, 200])
def test_inputs_of_few_and_of_many_partitions(spark, partitions):
    df = spark.range(0, ROWS, 1, partitions)
    assert exchange(df, by="id").count() == ROWS


def test_unions_and_coalesced_and_limited_inputs(numbers):
    assert exchange(numbers.union(numbers), by="k").count() == 2 * ROWS
    assert exchange(numbers.coalesce(2), by="k").count() == ROWS
    assert exchange(numbers.limit(1000), by="k").count() == 1000


def test_an_input_whose_partitions_adaptive_execution_chooses(numbers):
    grouped = numbers.groupBy("k").count()
    rows = exchange(grouped, by="k").collect()
    assert sorted(row["k"] for row in rows) == list(range(100))
    assert {row["count"] for row in rows} == {ROWS // 100}


def test_an_empty_input(spark):
    empty = spark.createDataFrame([], "a long, b string")
    out = exchange(empty, by="a")
    assert out.count() == 0
    assert out.collect() == []
    assert out.columns == ["a", "b"]


def test_a_cached_input(numbers):
    cached = numbers.cache()
    try:
        assert exchange(cached, by="k").count() == ROWS
        assert exchange(cached, by="s").count() == ROWS
    finally:
        cached.unpersist(blocking=True)


def test_reduce_runs_once_per_partition(numbers):
    def tell(batches):
        import pyarrow as pa

        keys = {k for batch in batches for k in batch.column("k").to_pylist()}
        yield pa.RecordBatch.from_pydict({"keys": [len(keys)]})

    out = exchange(numbers, by="k", reduce=tell, schema="keys long", num_partitions=4)
    rows = [row["keys"] for row in out.union(out).collect()]
    assert len(rows) == 8
    assert sum(rows) == 200
