"""An input that is broadcast is whole in each call of reduce, and the other one stays in its partitions."""

import os
import sys
from collections import Counter
from contextlib import suppress
from random import Random

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from tests.kit.masters import in_executors
from tests.kit.waiting import wait_until

from headgate.errors import OptionError
from headgate.source import NumberSequenceSource
from headgate.spark import Input, exchange, explain, last_stats

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

JOINED = "k long, id long, name string"


def joined(large, small):
    names = small.read_all()
    for batch in large:
        table = pa.table(batch).join(names, "k", join_type="inner")
        yield table.select(["k", "id", "name"])


@pytest.fixture
def large(spark):
    """10,000 rows in six partitions, of which one has no rows."""
    return spark.range(0, 12_000, 1, 6).selectExpr("id", "id % 700 AS k").where("id >= 2000")


@pytest.fixture
def small(spark):
    """1,000 names, some of them twice, from four producers; with nulls, and wider than a segment in all."""
    rows = spark.range(0, 1_000, 1, 4)
    return rows.selectExpr(
        "id % 600 AS k", "if(id % 7 = 0, NULL, concat(id, repeat('x', 2000))) AS name"
    )


@pytest.mark.parametrize("place", [0, 1])
def test_a_join_has_the_rows_of_sparks_and_moves_none(large, small, place):
    inputs = [large, Input(small, broadcast=True)]
    reduce = joined
    if place == 1:
        inputs.reverse()

        def reduce(small, large):
            return joined(large, small)

    out = exchange(inputs, reduce=reduce, schema=JOINED)
    expected = large.join(small, "k").select("k", "id", "name")
    assert out.count() == expected.count()
    assert out.exceptAll(expected).count() == expected.exceptAll(out).count() == 0
    by_partition = "spark_partition_id() AS p"
    placed = out.selectExpr(by_partition, "id").distinct()
    stayed = large.join(small.hint("broadcast"), "k").selectExpr(by_partition, "id").distinct()
    assert sorted(map(tuple, placed.collect())) == sorted(map(tuple, stayed.collect()))


def test_reduce_is_called_for_each_partition_with_rows(large, small):
    def counted(large, small):
        return pa.table({"rows": [large.read_all().num_rows], "small": [small.read_all().num_rows]})

    out = exchange(
        [large, Input(small, broadcast=True)], reduce=counted, schema="rows long, small long"
    )
    assert sorted(map(tuple, out.collect())) == [(2000, 1000)] * 5
    wait_until(lambda: last_stats().is_over)
    assert last_stats().rows_received == 10_000 + 5 * 1_000


def test_an_empty_input_is_an_iterator_without_batches(large, small):
    def counted(large, small):
        assert small.schema.names == ["k", "name"]
        return pa.table({"n": [len(list(small))]})

    inputs = [large, Input(small.where("k < 0"), broadcast=True)]
    assert [row["n"] for row in exchange(inputs, reduce=counted, schema="n long").collect()] == [
        0
    ] * 5


def test_sources_maps_orders_and_several_small_inputs(spark, small):
    def keyed(batches):
        for batch in batches:
            key = pa.compute.bit_wise_and(batch["id"], 7)
            yield pa.RecordBatch.from_arrays([batch["id"], key], ["id", "k"])

    def firsts(names, numbers, others):
        table = numbers.read_all()
        assert table["id"].to_pylist() == sorted(table["id"].to_pylist())
        first = names.read_all()["k"].to_pylist()
        assert first == sorted(first)
        return joined([table.combine_chunks().to_batches()[0]], others)

    others = spark.sql("SELECT id AS k, concat('key ', id) AS name FROM range(8)")
    out = exchange(
        [
            Input(small, broadcast=True, sort_within="k"),
            Input(
                NumberSequenceSource(0, 1000),
                map=keyed,
                map_schema="id long, k long",
                sort_within="id",
            ),
            Input(others, broadcast=True),
        ],
        reduce=firsts,
        schema=JOINED,
    )
    assert sorted(map(tuple, out.collect())) == sorted(
        (n % 8, n, f"key {n % 8}") for n in range(1000)
    )


def test_explain_says_what_stays(large, small):
    text = str(
        explain(exchange([large, Input(small, broadcast=True)], reduce=joined, schema=JOINED))
    )
    assert "the rows stay in their partitions" in text
    assert "all rows are sent to each call of reduce" in text


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        (2, {}, "there is one other"),
        (1, {"by": "k"}, "by has no effect"),
        (1, {"num_partitions": 4}, "num_partitions has no effect"),
        (1, {"broadcast_bytes": "1m"}, "broadcast_bytes has no effect"),
    ],
)
def test_what_has_no_effect_is_refused(large, small, inputs, options, message):
    each = [Input(df, broadcast=number < inputs) for number, df in enumerate((small, large))]
    with pytest.raises(OptionError, match=message):
        exchange(each, reduce=joined, schema=JOINED, **options)


class TestTheSizeDecides:
    """broadcast="auto": the same rows on both sides of the limit, which only their partitions tell apart."""

    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("limit", ["1", "1g"])
    def test_random_joins_have_sparks_rows(self, spark, seed, limit):
        random = Random(seed)
        rows, keys, partitions = random.choice([0, 5, 3000]), random.choice([1, 7, 900]), 5
        large = spark.range(0, rows, 1, partitions).selectExpr(
            "id", f"if(id % 11 = 0, NULL, pmod(id * 2654435761, {keys})) AS k"
        )
        few = spark.range(0, random.choice([0, 40, 400]), 1, random.choice([1, 3]))
        small = few.selectExpr(f"id % {keys} AS k", "concat('name ', id) AS name")
        how, spark_how = random.choice([("inner", "inner"), ("left outer", "left")])

        def joined(large, small):
            table = large.read_all().join(small.read_all(), "k", join_type=how)
            return table.select(["k", "id", "name"])

        inputs = [large, Input(small, broadcast="auto")]
        out = exchange(inputs, by="k", reduce=joined, schema=JOINED, broadcast_bytes=limit)
        assert mode(out) == ("broadcast" if limit == "1g" or not few.count() else "kept")
        expected = large.join(small, "k", spark_how).select("k", "id", "name")
        assert Counter(map(tuple, out.collect())) == Counter(map(tuple, expected.collect()))

    def test_confs_of_sparks_own_joins_are_read_and_explained(self, spark, large, small):
        def call():
            inputs = [large, Input(small, broadcast="auto")]
            return exchange(inputs, by="k", reduce=joined, schema=JOINED)

        assert "measured, of at most 10m (spark.sql.autoBroadcastJoinThreshold" in explained(call())
        for value, text in {
            "-1": "nothing is broadcast by its size",
            "5000b": "above 5000",
        }.items():
            spark.conf.set("spark.sql.adaptive.autoBroadcastJoinThreshold", value)
            try:
                out = call()
            finally:
                spark.conf.unset("spark.sql.adaptive.autoBroadcastJoinThreshold")
            assert f"adaptive.autoBroadcastJoinThreshold={value}" in explained(out)
            assert text in explained(out)
            assert mode(out) == "kept"

    def test_the_rows_of_map_and_of_sources_are_measured(self, spark, large):
        def names(batches):
            for batch in batches:
                key = batch["id"]
                text = pa.array([f"name {k}" for k in key.to_pylist()])
                yield pa.RecordBatch.from_arrays([key, text], ["k", "name"])

        source = NumberSequenceSource(0, 100)
        for data in (source, spark.range(100)):
            named = Input(data, map=names, map_schema="k long, name string", broadcast="auto")
            out = exchange([large, named], by="k", reduce=joined, schema=JOINED)
            assert mode(out) == "broadcast"
            expected = large.where("k < 100").selectExpr("k", "id", "concat('name ', k)")
            assert sorted(map(tuple, out.collect())) == sorted(map(tuple, expected.collect()))

    @in_executors
    def test_killed_workers_run_again_when_it_is_measured_sent_and_joined(
        self, large, small, tmp_path
    ):
        called = tmp_path / "called"

        def dies_once(step):
            with suppress(FileExistsError):
                (tmp_path / step).touch(exist_ok=False)
                os.kill(os.getpid(), 9)

        def sent(batches):
            yield from batches
            dies_once("sent" if called.exists() else "measured")

        def late(large, small):
            yield from joined(large, small)
            dies_once("joined")

        small = Input(small, map=sent, broadcast="auto")
        out = exchange([large, small], by="k", reduce=late, schema=JOINED)
        called.touch()
        expected = large.join(small.data, "k").select("k", "id", "name")
        assert Counter(map(tuple, out.collect())) == Counter(map(tuple, expected.collect()))
        assert {path.name for path in tmp_path.iterdir()} == {
            "called",
            "measured",
            "sent",
            "joined",
        }


def mode(out):
    return explain(out).exchanges[-1].mode


def explained(out):
    return " ".join(str(explain(out)).split())
