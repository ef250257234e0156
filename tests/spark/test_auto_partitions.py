"""num_partitions="auto": rows are divided finely and joined again by their sizes, whoever moves them."""

import sys

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from tests.kit.masters import in_modes
from tests.kit.waiting import wait_until

from headgate.errors import OptionError
from headgate.sink import FileSink
from headgate.spark import Input, exchange, explain, iterate, last_stats, write

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

#: Rows of each call, its keys, and their least and greatest value.
CALLS = "rows long, keys array<long>"


def same(batches):
    yield from batches


def call(batches):
    table = batches.read_all()
    keys = pa.array([sorted(set(table["k"].to_pylist()))], pa.list_(pa.int64()))
    return pa.table({"rows": [table.num_rows], "keys": keys})


@pytest.fixture
def wide(spark):
    """20,000 rows of 500 bytes in 400 keys."""
    return spark.range(0, 20_000, 1, 6).selectExpr("id", "id % 400 AS k", "repeat('x', 500) AS s")


@pytest.fixture
def conf(spark):
    """A function that sets a conf of the session until the test ends."""
    names = []

    def set_conf(name, value):
        names.append(name)
        spark.conf.set(name, value)

    yield set_conf
    for name in names:
        spark.conf.unset(name)


def calls(df, **options):
    arguments = {"by": "k", "map": same, "map_schema": df.schema, "reduce": call, "schema": CALLS}
    out = exchange(df, num_partitions="auto", **arguments, **options)
    return out, [row for row in out.collect() if row["rows"]]


class TestEachMode:
    pytestmark = in_modes("auto", "kept", "spark")

    def test_each_key_is_in_one_call_with_all_its_rows(self, wide):
        _, rows = calls(wide, advisory_bytes="300k")
        keys = [key for row in rows for key in row["keys"]]
        assert sorted(keys) == list(range(400))
        assert sum(row["rows"] for row in rows) == 20_000


def test_a_call_has_about_the_advisory_bytes(spark, wide):
    out, rows = calls(wide, advisory_bytes="600k")
    assert out.rdd.getNumPartitions() == 4
    # Four partitions of 2.5 MB in 16 subpartitions of 156 KiB each: four are joined at a time.
    assert 12 <= len(rows) <= 24
    assert max(row["rows"] for row in rows) < 3_000
    wait_until(lambda: last_stats().is_over)
    (notice,) = last_stats().notices
    assert notice.startswith(
        f"64 subpartitions with rows were joined into {len(rows)} calls of reduce"
    )
    _, rows = calls(wide)
    assert len(rows) == 4


def test_confs_of_adaptive_execution_are_read(spark, wide, conf):
    conf("spark.sql.adaptive.coalescePartitions.initialPartitionNum", "40")
    conf("spark.sql.adaptive.coalescePartitions.enabled", "false")
    out, rows = calls(wide)
    assert len(rows) == 40
    assert "each a call of reduce of its own" in str(explain(out))
    conf("spark.sql.adaptive.coalescePartitions.enabled", "true")
    conf("spark.sql.adaptive.advisoryPartitionSizeInBytes", "1m")
    _, rows = calls(wide)
    assert 8 <= len(rows) <= 16


def test_a_partition_without_rows_calls_reduce_once(spark, wide):
    few = wide.where("k = 7")
    arguments = {"by": "k", "map": same, "map_schema": few.schema, "reduce": call, "schema": CALLS}
    out = exchange(few, num_partitions="auto", **arguments)
    assert sorted(row["rows"] for row in out.collect()) == [0, 0, 0, 50]


def test_both_inputs_of_a_join_have_the_same_neighbours(spark, wide):
    def joined(left, right):
        table = left.read_all().join(right.read_all(), "k", join_type="inner")
        return table.select(["k", "id", "name"])

    names = spark.range(400).selectExpr("id AS k", "concat('key ', id) AS name")
    out = exchange(
        [wide, Input(names)],
        by="k",
        reduce=joined,
        schema="k long, id long, name string",
        num_partitions="auto",
        advisory_bytes="300k",
    )
    expected = wide.join(names, "k").select("k", "id", "name")
    assert out.count() == 20_000
    assert out.exceptAll(expected).count() == 0


def test_each_call_of_a_write_is_in_files_of_its_own(spark, wide, tmp_path):
    sink = FileSink(tmp_path / "out")
    options = {"num_partitions": "auto", "advisory_bytes": "600k"}
    result = write(wide, sink, by="k", **options)
    assert result.rows == 20_000
    assert len(result.files) >= 12
    assert spark.read.parquet(str(tmp_path / "out")).exceptAll(wide).count() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": None}, "needs columns as by"),
        ({"by": lambda batch: [0] * batch.num_rows}, "needs columns as by"),
        ({"num_partitions": 4, "advisory_bytes": "1m"}, "advisory_bytes has no effect"),
        ({"num_partitions": "many"}, "num_partitions='many' is not a whole number"),
    ],
)
def test_what_has_no_sizes_is_refused(wide, options, message):
    with pytest.raises(OptionError, match=message):
        exchange(wide, **{"by": "k", "num_partitions": "auto", **options})


def test_an_iteration_has_a_fixed_number(wide, conf):
    conf("spark.headgate.numPartitions", "auto")
    state = wide.select("id", "k")
    with pytest.raises(OptionError, match="fixed number"):
        iterate(
            state,
            by="k",
            send=lambda state: state,
            message_schema="k long",
            update=lambda state, messages: state,
            rounds=1,
        )
