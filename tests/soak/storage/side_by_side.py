"""A table in a store, and a driver's code that reads it by Spark and by the workers."""

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 3000
#: Names of files in each bucket; Hadoop and pyarrow encode them each in its own way.
FILES = ("t/a.parquet", "t/b c+d%25.parquet", "t/Zürich=1.parquet")

#: Reads the table of each URI of CASES, with more settings of the session, both ways. ``found`` has what came of it, and
#: ``logs`` what Python has logged, py4j at DEBUG.
READ = """
import io
from headgate.sink import FileSink
from headgate.source import FileSource, read
from headgate.spark import explain, filesystem, report, write

logs = io.StringIO()
handler = logging.StreamHandler(logs)
logging.getLogger().addHandler(handler)
logging.getLogger("headgate.spark").addHandler(handler)
logging.getLogger().setLevel(logging.DEBUG)
context.setLogLevel("INFO")

def tagged(batches):
    yield from batches

def rows(df, how):
    out = exchange(df, by="k", num_partitions=3, map=tagged, schema=df.schema, read=how)
    return sorted(map(repr, out.collect()))

found = {}
for uri, settings in CASES.items():
    for name, value in settings.items():
        spark.conf.set(name, value)
    df = spark.read.parquet(f"{uri}/t").where("id >= 100").select("k", "s", "id")
    said.clear()
    by_workers = rows(df, "auto")
    (reader,) = [line for line in said if "read the input" in line or "reads the input" in line][:1]
    out = exchange(df, by="k", num_partitions=3, map=tagged, schema=df.schema, read="auto")
    shown = " ".join(str(explain(out)).split()) + out._jdf.queryExecution().toString()
    found[uri] = {"reader": reader, "rows": by_workers, "alike": by_workers == rows(df, "spark"), "explained": shown}
    for name in settings:
        spark.conf.unset(name)
"""


def table():
    """Return the rows of each bucket."""
    ids = range(ROWS)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "k": pa.array([n % 17 for n in ids], pa.int32()),
            "s": [None if n % 5 == 0 else f"row {n} Zürich" for n in ids],
        }
    )


def put(filesystem, bucket):
    """Make a bucket with the table in three files."""
    filesystem.create_dir(bucket)
    for number, name in enumerate(FILES):
        part = table().slice(number * ROWS // len(FILES), ROWS // len(FILES))
        pq.write_table(part, f"{bucket}/{name}", filesystem=filesystem, row_group_size=300)


def check(result, reason):
    """Check what a driver found: the rows, and the reader: the workers, or Spark for a reason."""
    if reason:
        assert "Spark reads the input" in result["reader"], result["reader"]
        assert reason in result["reader"]
        assert reason in result["explained"]
    else:
        assert "the workers read the input" in result["reader"], result["reader"]
    assert result["alike"]
    remaining = table().slice(100).select(["k", "s", "id"]).to_pylist()
    assert result["rows"] == sorted(
        f"Row(k={row['k']}, s={row['s']!r}, id={row['id']})" for row in remaining
    )
