"""Arguments and results of map and reduce, in each way that a call is planned."""

import sys

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from tests.kit.masters import compares_rows, in_modes

from headgate.source import NumberSequenceSource
from headgate.spark import exchange, write

# Executors cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = in_modes("auto", "kept")

ROWS = 200


@pytest.fixture
def few(spark):
    """Rows in two partitions; a third one has none."""
    return spark.range(0, ROWS, 1, 3).where("id < 130").selectExpr("id", "id % 7 as k")


def doubled(batches):
    """Return a table, also of no batches."""
    table = batches.read_all()
    return table.set_column(0, "id", pa.compute.multiply(table["id"], 2))


def described(batches):
    names = [",".join(f"{field.name} {field.type}" for field in batches.schema)]
    rows = sum(batch.num_rows for batch in batches)
    return pa.table({"names": names, "n": pa.array([rows], pa.int64())})


def grouped(batches):
    frame = batches.read_all().to_pandas()
    return frame.groupby("k", as_index=False).agg(n=("id", "count"))


def found(df):
    return sorted(map(tuple, df.collect()))


@pytest.mark.soak
def test_a_table_is_returned_by_map_and_by_reduce(few):
    out = exchange(few, by="k", map=doubled, reduce=doubled, schema=few.schema, num_partitions=3)
    assert found(out) == sorted((4 * n, n % 7) for n in range(130))


def test_the_schema_is_known_without_batches(few):
    out = exchange(
        few.where("k = 3"),
        by="k",
        map=lambda batches: batches,
        map_schema=few.schema,
        reduce=described,
        schema="names string, n long",
        num_partitions=3,
    )
    rows = out.collect()
    assert {row["names"] for row in rows} == {"id int64,k int64"}
    assert sorted(row["n"] for row in rows)[-2:] == [0, 19]
    assert len(rows) == 3


def test_map_is_told_the_schema_of_a_partition_without_rows(few):
    out = exchange(few.where("id < 0"), by="n", map=described, schema="names string, n long")
    rows = out.collect()
    assert {tuple(row) for row in rows} == {("id int64,k int64", 0)}
    assert len(rows) == few.rdd.getNumPartitions()


def test_frames_of_pandas(few):
    out = exchange(
        few, by="k", map=iter, map_schema=few.schema, reduce=grouped, schema="k long, n long"
    )
    assert found(out) == [(k, len(range(k, 130, 7))) for k in range(7)]


def test_a_source_tells_its_schema_too(spark):
    out = exchange(
        NumberSequenceSource(0, 20),
        by="n",
        map=described,
        schema="names string, n long",
        spark=spark,
    )
    rows = found(out)
    assert {names for names, _ in rows} == {"id int64"}
    assert sum(n for _, n in rows) == 20


@compares_rows
def test_rows_without_columns(few):
    out = exchange(few.select(), map=described, schema="names string, n long")
    assert sum(row["n"] for row in out.collect()) == 130


def test_several_inputs_are_read_by_libraries(few):
    def both(left, right):
        import pyarrow as pa

        return pa.table(left).join(pa.table(right), "k", join_type="inner").select(["id", "k"])

    firsts = few.where("id < 7").selectExpr("k", "id as first")
    out = exchange([few, firsts], by="k", reduce=both, schema=few.schema, num_partitions=2)
    assert found(out) == sorted((n, n % 7) for n in range(130))


def test_what_write_calls_may_return_a_table(few, tmp_path):
    from headgate.sink import FileSink

    write(few, FileSink(tmp_path / "out"), by="k", reduce=doubled, schema=few.schema)
    import pyarrow.parquet as pq

    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert sorted(row["id"] for row in rows) == [2 * n for n in range(130)]
