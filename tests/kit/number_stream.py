"""A streaming query over a growing folder of numbers."""

import pyarrow as pa
import pyarrow.parquet as pq

#: Rows of each file.
ROWS = 50


class Folder:
    """A folder to which complete files of 50 consecutive numbers are added."""

    def __init__(self, path):
        self.path = path
        self.files = 0
        path.mkdir()

    def add(self):
        ids = range(self.files * ROWS, (self.files + 1) * ROWS)
        staged = self.path / f"_{self.files}.tmp"
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), staged)
        staged.rename(self.path / f"{self.files:04}.parquet")
        self.files += 1


def stream(spark, folder, **options):
    reader = spark.readStream.format("headgate").option("discoveryInterval", "100ms")
    reader = reader.option("maxPartitions", "4")
    return reader.options(**options).load(str(folder.path))


def sunk(spark, sink):
    return sorted(row.id for row in spark.read.parquet(str(sink)).collect())
