"""Tables of Delta and Iceberg in exchange(), spark.read and spark.readStream have the rows of their own readers.

In a driver of its own: deltalake leaves threads and sockets in the workers in which Spark plans a read.
"""

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.kit.masters import PYSPARK
from tests.kit.own_driver import drive
from tests.source.test_iceberg import Warehouse

#: spark.readStream of a source in Python needs Spark 4.2.
STREAMS = PYSPARK >= (4, 2)
BODY = """
from headgate.source.delta import DeltaSource
from headgate.source.iceberg import IcebergSource

def numbers(df):
    return sorted(row.n for row in df.select("n").collect())

delta = spark.read.format("headgate").option("source", "delta")
iceberg = spark.read.format("headgate").option("source", "iceberg").option("table", "db.t")
iceberg = iceberg.options(**{f"catalog.{name}": text for name, text in CATALOG.items()})
exchanged = exchange(DeltaSource(TABLE), by="k", num_partitions=3, spark=spark)
source = IcebergSource("db.t", catalog=CATALOG)
if STREAMS:
    stream = spark.readStream.format("headgate").option("source", "delta").load(TABLE)
    query = stream.writeStream.format("memory").queryName("streamed").trigger(availableNow=True)
    query.option("checkpointLocation", CHECKPOINT).start().awaitTermination()
tell(
    columns=exchanged.dtypes,
    exchanged=numbers(exchanged),
    read=numbers(delta.load(TABLE)),
    filtered=numbers(delta.load(TABLE).where("k = 1 and n > 20")),
    first=numbers(delta.option("version", "0").load(TABLE)),
    streamed=numbers(spark.table("streamed")) if STREAMS else None,
    iceberg_exchanged=numbers(exchange(source, by="k", spark=spark)),
    iceberg_filtered=numbers(iceberg.load().where("k = 2")),
)
"""


def orders(first, count):
    numbers = range(first, first + count)
    return pa.table({"n": pa.array(numbers, pa.int64()), "k": pa.array([n % 3 for n in numbers])})


@pytest.fixture
def table(tmp_path):
    """A Delta table with columns that are mapped, and files without some rows of earlier ones."""
    path = str(tmp_path / "table")
    properties = {"delta.columnMapping.mode": "name"}
    write_deltalake(path, orders(0, 30), partition_by=["k"], configuration=properties)
    write_deltalake(path, orders(30, 10), mode="append")
    DeltaTable(path).delete("n % 4 = 1")
    return path


@pytest.mark.soak
def test_tables_of_delta_and_iceberg(table, tmp_path):
    warehouse = Warehouse(tmp_path).make(orders(0, 30), "k")
    warehouse.close()
    variables = {
        "TABLE": table,
        "CATALOG": warehouse.properties,
        "CHECKPOINT": f"{tmp_path}/offsets",
        "STREAMS": STREAMS,
    }
    head = "".join(f"{name} = {value!r}\n" for name, value in variables.items())
    values = drive(head + BODY, "local[2]", tmp_path)
    remaining = [n for n in range(40) if n % 4 != 1]
    assert values == {
        "columns": [["n", "bigint"], ["k", "bigint"]],
        "exchanged": remaining,
        "read": remaining,
        "filtered": [n for n in remaining if n % 3 == 1 and n > 20],
        "first": list(range(30)),
        "streamed": remaining if STREAMS else None,
        "iceberg_exchanged": list(range(30)),
        "iceberg_filtered": list(range(2, 30, 3)),
    }
