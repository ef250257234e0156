"""Several inputs of one exchange, against Spark's own joins, cogroups and unions."""

import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from tests.kit.masters import MASTER, in_modes
from tests.kit.parts import GreetingEnumerator, GreetingReader, Parts

from headgate import BroadcastSelector
from headgate.errors import NotBuiltError, OptionError
from headgate.source import FileSource
from headgate.spark import Input, exchange, last_stats

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = in_modes("auto")


@pytest.fixture
def trades(spark):
    return spark.range(0, 3000, 1, 5).selectExpr("id % 97 as sym", "id * 10 as at", "id as size")


@pytest.fixture
def quotes(spark):
    return spark.range(0, 2000, 1, 3).selectExpr(
        "id % 89 as sym", "id * 14 as at", "concat('bid ', id) as bid"
    )


def tables(*inputs):
    """Return a table for each input; None for one without batches."""
    found = [list(batches) for batches in inputs]
    return [pa.Table.from_batches(batches) if batches else None for batches in found]


def joined(left, right):
    left, right = tables(left, right)
    if left is not None and right is not None:
        both = left.join(right, "sym", join_type="inner", right_suffix="_quoted")
        yield from both.select(["sym", "at", "size", "at_quoted", "bid"]).to_batches()


JOINED = "sym long, at long, size long, at_quoted long, bid string"


def counted(*inputs):
    """Yield one row: how many rows each input has in this partition."""
    from pyspark import TaskContext

    counts = [sum(batch.num_rows for batch in batches) for batches in inputs]
    place = TaskContext.get().partitionId()
    yield pa.RecordBatch.from_pydict({"place": [place], "counts": [counts]})


COUNTED = "place int, counts array<long>"


def rows(df):
    return sorted(map(tuple, df.collect()))


def counts_of(df):
    return {row["place"]: list(row["counts"]) for row in df.collect()}


def sizes(df, partitions, by):
    """Return the number of rows that Spark puts into each partition."""
    placed = df.repartition(partitions, by).selectExpr("spark_partition_id() as p")
    found = {row["p"]: row["count"] for row in placed.groupBy("p").count().collect()}
    return [found.get(partition, 0) for partition in range(partitions)]


@pytest.mark.parametrize("partitions", [1, 4, 40])
def test_a_join_has_the_rows_of_sparks(trades, quotes, partitions):
    out = exchange([trades, quotes], "sym", reduce=joined, schema=JOINED, num_partitions=partitions)
    expected = trades.join(quotes.withColumnRenamed("at", "at_quoted"), "sym")
    assert rows(out) == rows(expected.select("sym", "at", "size", "at_quoted", "bid"))


def test_rows_of_each_input_are_where_spark_places_them(trades, quotes):
    inputs = [trades, Input(quotes, by="at"), quotes]
    out = exchange(inputs, "sym", reduce=counted, schema=COUNTED, num_partitions=4)
    expected = zip(
        sizes(trades, 4, "sym"), sizes(quotes, 4, "at"), sizes(quotes, 4, "sym"), strict=True
    )
    assert counts_of(out) == dict(enumerate(map(list, expected)))


def test_each_input_has_its_own_map_key_and_columns(trades, quotes):
    def halved(batches):
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"key": [n // 2 for n in batch["sym"].to_pylist()]})

    inputs = [Input(trades, by="key", map=halved, map_schema="key long"), quotes]
    out = exchange(inputs, by="sym", reduce=counted, schema=COUNTED, num_partitions=3)
    mapped = trades.selectExpr("sym div 2 as key")
    expected = zip(sizes(mapped, 3, "key"), sizes(quotes, 3, "sym"), strict=True)
    assert counts_of(out) == dict(enumerate(map(list, expected)))


def test_a_broadcast_input_is_whole_in_each_partition(trades, quotes):
    inputs = [trades, Input(quotes.limit(70), by=BroadcastSelector())]
    out = counts_of(exchange(inputs, "sym", reduce=counted, schema=COUNTED, num_partitions=4))
    assert [counts[1] for counts in out.values()] == [70] * 4
    assert sum(counts[0] for counts in out.values()) == 3000


def test_sources_are_inputs_too(spark, trades, tmp_path):
    table = pa.table({"sym": pa.array(range(500), pa.int64())})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=50)
    inputs = [FileSource(str(tmp_path)), trades, FileSource(str(tmp_path))]
    for given in (inputs, [inputs[0], inputs[2]]):
        out = exchange(given, "sym", reduce=counted, schema=COUNTED, num_partitions=4, spark=spark)
        read = sizes(spark.read.parquet(str(tmp_path)), 4, "sym")
        own = sizes(trades, 4, "sym")
        expected = zip(read, *([own] if len(given) == 3 else []), read, strict=True)
        assert counts_of(out) == dict(enumerate(map(list, expected)))


def test_an_empty_input_gives_an_iterator_without_batches(trades, quotes):
    inputs = [trades.where("sym < 0"), quotes]
    out = counts_of(exchange(inputs, "sym", reduce=counted, schema=COUNTED, num_partitions=3))
    assert [counts[0] for counts in out.values()] == [0, 0, 0]
    assert sum(counts[1] for counts in out.values()) == 2000


def test_an_input_may_be_left_unread(trades, quotes):
    def first(left, right):
        yield from left

    out = exchange([trades, quotes], "sym", reduce=first, schema=trades.schema)
    assert rows(out) == rows(trades)


def test_inputs_larger_than_the_pool_are_read_side_by_side(spark):
    def zipped(left, right):
        pairs = 0
        while (a := next(left, None)) is not None and (b := next(right, None)) is not None:
            pairs += min(a.num_rows, b.num_rows)
        yield pa.RecordBatch.from_pydict({"n": [pairs + sum(x.num_rows for x in (*left, *right))]})

    wide = spark.range(0, 40_000, 1, 4).selectExpr("id", "repeat('x', 1000) as s")
    out = exchange(
        [wide, wide], "id", reduce=zipped, schema="n long", num_partitions=2, memory="8m"
    )
    assert all(row["n"] >= 15_000 for row in out.collect())
    stats = last_stats()
    assert stats.state == "done"
    assert (stats.producers, stats.consumers, stats.rows) == (8, 2, 80_000)
    assert stats.made_again == 0
    assert stats.peak_bytes <= 8 << 20


def test_a_chain_and_a_union_of_exchanges_with_two_inputs(trades, quotes):
    one = exchange([trades, quotes], "sym", reduce=joined, schema=JOINED)
    again = exchange([one, trades.select("sym")], "sym", reduce=counted, schema=COUNTED)
    total = trades.join(quotes, "sym").count()
    assert sum(row["counts"][0] for row in again.collect()) == total
    assert one.union(one).count() == 2 * total


@pytest.mark.parametrize("side", ["left", "right"])
def test_an_error_of_an_input_is_that_inputs(trades, quotes, side):
    def fail(batches):
        yield next(batches)
        raise ValueError("no more")

    inputs = [
        Input(df.coalesce(1), map=fail) if name == side else df
        for name, df in (("left", trades), ("right", quotes))
    ]
    out = exchange(inputs, "sym", reduce=joined, schema=JOINED, num_partitions=1)
    with pytest.raises(PySparkException, match="no more"):
        out.collect()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"map_schema": "a long"}, "map, map_schema and combine belong to an input"),
        ({"parallelism": 3}, "parallelism is for sources"),
    ],
)
def test_what_does_not_fit_several_inputs_is_refused(trades, quotes, change, said):
    with pytest.raises(OptionError, match=said):
        exchange([trades, quotes], "sym", reduce=joined, schema=JOINED, **change)


def test_inputs_that_cannot_be_joined_are_refused(spark, trades, quotes):
    def refused(inputs, said, error=OptionError):
        with pytest.raises(error, match=said):
            exchange(inputs, "sym", reduce=joined, schema=JOINED, spark=spark)

    refused([], "1 to 16 inputs")
    refused([trades] * 17, "1 to 16 inputs")
    short = trades.selectExpr("cast(sym as int) as sym")
    refused([trades, short], r"\(sym bigint\) and \(sym int\)")
    refused([trades, Input(quotes, by=["sym", "at"])], "other types")
    refused([trades, Input(trades.select(), by=BroadcastSelector())], "no columns")
    refused([trades, 7], "input 1 is an int, not a DataFrame of Spark or a source")
    events = Parts(2, enumerator=GreetingEnumerator, reader=GreetingReader)
    refused([trades, Input(events, by="id")], "HG-2201|events", NotBuiltError)


def test_the_plan_names_all_inputs(trades, quotes, capsys):
    exchange([trades, Input(quotes, by="at")], "sym", reduce=counted, schema=COUNTED).explain()
    way = "files" if MASTER.startswith("local") else "hosts"
    assert f"kept by [sym] + [at] -> 4 through {way}" in capsys.readouterr().out
