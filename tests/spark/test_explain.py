"""``explain()`` of real plans: what it finds in them, and that nothing runs."""

import json
import sys

import pytest
from pyspark import cloudpickle

from headgate.errors import OptionError
from headgate.source import NumberSequenceSource
from headgate.spark import Input, exchange, explain, last_stats
from headgate.spark.explained import recent_plans

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def same(batches):
    yield from batches


def only(df):
    (found,) = explain(df).exchanges
    return found


def codes(found):
    return [advice.code for advice in found.faster]


def kept(df, **named):
    return exchange(df, by="k", map=same, schema=df.schema, num_partitions=5, mode="kept", **named)


def jobs(spark):
    return set(spark.sparkContext.statusTracker().getJobIdsForGroup())


def test_rows_that_spark_moves(numbers):
    found = only(exchange(numbers, by="k", mode="auto"))
    assert (found.mode, found.copies, found.memory.pool) == ("repartition", (), 0)
    assert found.inputs[0].producers.number == 7
    assert found.inputs[0].bytes > 0
    assert [other.mode for other in found.others] == ["kept"]


def test_rows_that_are_kept(numbers):
    found = only(kept(numbers))
    assert (found.mode, found.through) in {("kept", "files"), ("kept", "hosts")}
    assert (found.partitions.number, found.partitions.source) == (5, "argument")
    assert [copied.step for copied in found.copies] == ["input", "pages", "result"]
    assert (found.inputs[0].producers.number, found.inputs[0].producers.source) == (7, "plan")
    assert found.disk.bytes is None  # nobody knows what map returns


def test_only_a_scan_of_files_could_be_read_by_workers(spark, numbers, tmp_path):
    numbers.limit(20).write.parquet(str(tmp_path / "scan"))
    scan = spark.read.parquet(str(tmp_path / "scan"))
    assert codes(only(kept(scan, read="spark"))) == ["read-in-workers"]
    computed = scan.selectExpr("id + 1 as id", "k", "s")
    assert "read-in-workers" not in codes(only(kept(computed, read="spark")))
    read = only(kept(scan))
    assert (codes(read), read.inputs[0].source) == ([], "parquet")
    left = only(kept(computed)).inputs[0].spark_reads
    assert left == (
        "its column 'id' has Add of int64, and the result may be too large. To change that: compute it in map"
    )
    # Spark moves the rows, and no function gets them.
    assert codes(only(exchange(scan, by="k", num_partitions=4, mode="auto"))) == []
    to_function = exchange(
        scan, by="k", reduce=same, schema=scan.schema, num_partitions=4, mode="auto", read="spark"
    )
    assert codes(only(to_function)) == ["read-in-workers"]


def test_a_source(spark):
    source = NumberSequenceSource(1, 100)
    out = exchange(source, by="id", spark=spark, num_partitions=2, parallelism=3, mode="kept")
    (one,) = only(out).inputs
    assert one.source == source.name
    assert (one.producers.number, one.producers.source) == (3, "argument")
    assert one.bytes is None


def test_each_of_several_inputs(spark, numbers):
    other = spark.range(0, 50, 1, 3).selectExpr("id", "id % 5 as k")
    third = spark.range(0, 50, 1, 2).selectExpr("id", "id % 5 as j")
    out = exchange(
        [numbers, other.union(other), Input(third, by="j")],
        by="k",
        reduce=lambda one, _, __: one,
        schema=numbers.schema,
        mode="auto",
    )
    found = only(out)
    assert [one.producers.number for one in found.inputs] == [7, 6, 2]
    assert [one.placement.columns for one in found.inputs] == [("k",), ("k",), ("j",)]


def test_chained_exchanges_are_in_the_order_of_the_rows(numbers):
    inner = exchange(numbers, by="k", map=same, schema=numbers.schema, mode="kept")
    between = exchange(inner.filter("k > 3"), by="id", mode="kept", num_partitions=2)
    outer = exchange(between, by="s", mode="auto")
    joined = outer.join(outer.withColumnRenamed("id", "other"), "k")
    assert [one.mode for one in explain(joined).exchanges] == ["kept", "kept", "repartition"]


def test_an_exchange_is_found_through_a_view_and_a_subquery(spark, numbers):
    kept(numbers).createOrReplaceTempView("rows_of_exchange")
    out = spark.sql("select * from range(3) where id in (select k from rows_of_exchange)")
    assert only(out).mode == "kept"
    spark.catalog.dropTempView("rows_of_exchange")


def test_operators_whose_partitions_spark_decides_later_are_unknown(numbers):
    producers = only(kept(numbers.distinct())).inputs[0].producers
    assert producers.number is None
    assert "Spark decides" in producers.why
    assert only(kept(numbers.repartition(5))).inputs[0].producers.number == 5


def test_no_job_is_started_and_the_text_is_printed(spark, numbers, capsys, tmp_path):
    numbers.limit(5).write.parquet(str(tmp_path / "scan"))
    before = jobs(spark)
    scan = spark.read.schema(numbers.schema).parquet(str(tmp_path / "scan"))
    for df in (
        scan,
        numbers,
        numbers.sort("s").limit(3),
        spark.createDataFrame([(1, 2)], "id int, k int"),
    ):
        out = exchange(df, by="k", map=same, schema=df.schema, mode="kept", explain=True)
        assert capsys.readouterr().out == f"{explain(out)}\n"
    assert jobs(spark) == before


def test_nothing_is_printed_unless_it_is_asked_for(numbers, capsys):
    kept(numbers)
    assert capsys.readouterr().out == ""


def test_a_plan_without_an_exchange_is_refused(numbers):
    with pytest.raises(OptionError, match="finds no exchange in the plan") as raised:
        explain(numbers.repartition(3, "k"))
    assert "headgate.spark.exchange(df, ...)" in str(raised.value)
    with pytest.raises(OptionError, match="df is a list, not a DataFrame"):
        explain([numbers])


def test_exchanges_that_are_long_past_are_forgotten(numbers, monkeypatch):
    monkeypatch.setattr(recent_plans, "MOST", 2)
    old, *newer = [kept(numbers) for _ in range(3)]
    with pytest.raises(OptionError, match="call exchange\\(\\) again"):
        explain(old)
    assert [only(df).mode for df in newer] == ["kept", "kept"]


def test_the_name_is_that_of_the_statistics(numbers):
    out = exchange(numbers, by="k", map=same, schema=numbers.schema, num_partitions=2, mode="kept")
    name = only(out).name
    assert out.count() == 20_000
    assert last_stats().name == name


def test_the_json_has_all_fields(numbers):
    explanation = explain(kept(numbers))
    found = json.loads(explanation.to_json())
    assert found["schema_version"] == 1
    assert found["exchanges"][0]["partitions"]["number"] == 5
    assert set(found["versions"]) >= {"headgate", "python", "pyarrow", "pyspark", "spark"}
