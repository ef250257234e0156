"""Tables of Delta and Iceberg in exchange() and behind spark.read have the rows of their own readers."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

pytest.importorskip("pyspark.sql.datasource")

from tests.source.test_iceberg import Warehouse

from headgate.source.delta import DeltaSource
from headgate.spark import exchange


def orders(first, count):
    numbers = range(first, first + count)
    return pa.table({"n": pa.array(numbers, pa.int64()), "k": pa.array([n % 3 for n in numbers])})


@pytest.fixture(scope="module", autouse=True)
def _runtime(tmp_path_factory):
    """Start what deltalake keeps open, before leftovers of a test are looked for."""
    path = str(tmp_path_factory.mktemp("first"))
    write_deltalake(path, pa.table({"n": [1]}))
    DeltaTable(path).scan().read_all()


@pytest.fixture
def table(tmp_path):
    """A Delta table with columns that are mapped, and rows that are deleted."""
    path = str(tmp_path / "table")
    properties = {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"}
    write_deltalake(path, orders(0, 30), partition_by=["k"], configuration=properties)
    write_deltalake(path, orders(30, 10), mode="append")
    DeltaTable(path).delete("n % 4 = 1")
    return path


LEFT = [n for n in range(40) if n % 4 != 1]


def numbers(df):
    return sorted(row.n for row in df.select("n").collect())


def test_a_delta_table(spark, table):
    out = exchange(DeltaSource(table), by="k", num_partitions=3, spark=spark)
    assert out.dtypes == [("n", "bigint"), ("k", "bigint")]
    assert numbers(out) == LEFT
    read = spark.read.format("headgate").option("source", "delta")
    assert numbers(read.load(table)) == LEFT
    assert numbers(read.load(table).where("k = 1 and n > 20")) == [
        n for n in LEFT if n % 3 == 1 and n > 20
    ]
    assert numbers(read.option("version", "0").load(table)) == list(range(30))


def test_an_iceberg_table(spark, tmp_path):
    warehouse = Warehouse(tmp_path).make(orders(0, 30), "k")
    assert numbers(exchange(warehouse.source(), by="k", spark=spark)) == list(range(30))
    read = spark.read.format("headgate").option("source", "iceberg").option("table", "db.t")
    options = {f"catalog.{name}": text for name, text in warehouse.properties.items()}
    assert numbers(read.options(**options).load().where("k = 2")) == list(range(2, 30, 3))
    warehouse.close()
