"""Many kept exchanges in one session, whose disk and memory stay flat. Arguments: count, folder."""

import gc
import os
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession

from headgate.spark import exchange, last_stats

COUNT, FOLDER = int(sys.argv[1]), sys.argv[2]
ROWS = 20_000
#: Exchanges between two looks at what the application holds.
LOOK = 50
#: MiB by which the driver's Python may grow after the first look.
GROWTH = 24
#: Exchanges whose files may lie on the disk, as Spark keeps its own until the JVM collects garbage.
FILES_OF = 3 * LOOK


def same(batches):
    yield from batches


def kept():
    return sum(1 for path in Path(FOLDER).rglob("kept-*"))


def held():
    """Return what the driver's Python holds: MiB of memory, descriptors, threads."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20, descriptors, threads()


def threads():
    return len([t for t in threading.enumerate() if t.name != "headgate-sweep"])


def main():
    os.environ["PYSPARK_PYTHON"] = sys.executable
    confs = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    builder = SparkSession.builder.master("local[2]").config("spark.local.dir", FOLDER)
    spark = builder.config(map=confs).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    df = spark.range(0, ROWS, 1, 2).selectExpr("id", "id % 100 as k", "repeat('x', 100) as s")
    job = {"by": "k", "map": same, "reduce": same, "map_schema": df.schema, "schema": df.schema}
    found, most = [], 0
    for number in range(1, COUNT + 1):
        assert exchange(df, **job).count() == ROWS
        if number % LOOK == 0:
            gc.collect()
            spark.sparkContext._jvm.System.gc()
            most = max(most, kept())
            found.append(held())
            print(number, *found[-1], kept(), flush=True)
    assert last_stats().number == COUNT
    assert 2 <= most <= 2 * FILES_OF, f"{most} files"
    first, last = found[0], found[-1]
    assert last[0] <= first[0] + GROWTH, f"MiB of the driver: {found}"
    assert last[1] <= first[1] + 4, f"descriptors of the driver: {found}"
    assert last[2] <= first[2] + 2, f"threads of the driver: {found}"

    # A cached result survives the files that it was made from, and two collects run producers once.
    cached = exchange(df, **job).cache()
    assert cached.count() == ROWS
    twice = exchange(df, **job)
    assert len(twice.collect()) == ROWS
    assert last_stats().producers == 2
    assert len(twice.collect()) == ROWS
    assert (last_stats().producers, last_stats().consumers) == (0, 2)
    del twice
    deadline = time.monotonic() + 60
    while kept() > 2 and time.monotonic() < deadline:
        gc.collect()
        spark.sparkContext._jvm.System.gc()
        time.sleep(1)
    assert kept() <= 2, f"{kept()} files a minute after their plans became garbage"
    assert cached.count() == ROWS
    spark.stop()
    print("all right")


if __name__ == "__main__":
    main()
