"""A streaming query from a folder of JSON files to Headgate's stream writer."""

import json
import sys

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource

# The Python processes of Spark cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

#: Rows of each file.
ROWS = 20


class Writing(DataSource):
    """A data source with only Headgate's stream writer."""

    @classmethod
    def name(cls):
        return "headgate_writing"

    def streamWriter(self, schema, overwrite):  # noqa: N802 - Spark's name
        from headgate.spark.datasource.writer import stream_writer

        return stream_writer(self.options, schema, overwrite)


def add(folder, number):
    lines = (json.dumps({"n": n}) for n in range(number * ROWS, (number + 1) * ROWS))
    (folder / "in" / f"{number}.json").write_text("\n".join(lines))


def start(spark, folder, kind, out, **options):
    files = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1)
    df = files.json(str(folder / "in")).repartition(2)
    writer = df.writeStream.format(kind).options(**options)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(availableNow=True).start(str(out))


def found(spark, out):
    return sorted(row.n for row in spark.read.parquet(str(out)).collect())


def staged(out):
    return [p for p in out.rglob("*") if "_staging" in p.parts or p.suffix == ".partial"]
