"""An application of many exchanges keeps disk and memory flat, in a process of its own that is measured.

``HEADGATE_TEST_EXCHANGES=2000 pytest tests/soak/programs/test_many.py`` runs two thousand.
"""

import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate.spark import exchange, last_stats

COUNT = int(os.environ.get("HEADGATE_TEST_EXCHANGES", "200"))
#: Seconds for one exchange on a busy machine, and for the start and the end.
LIMIT = 3 * COUNT + 200


ROWS = 20_000
#: Exchanges between two looks at what the application holds.
LOOK = 50
#: MiB by which the driver's Python may grow after the first look.
GROWTH = 24
#: Exchanges whose files may lie on the disk, as Spark keeps its own until the JVM collects garbage.
FILES_OF = 3 * LOOK


def same(batches):
    yield from batches


def kept(folder):
    return sum(1 for path in Path(folder).rglob("kept-*"))


def held():
    """Return what the driver's Python holds: MiB of memory, descriptors, threads."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20, descriptors, threads()


def threads():
    return len([t for t in threading.enumerate() if t.name != "headgate-sweep"])


def main(count, folder):
    """Run the exchanges; print "all right" at the end."""
    confs = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    builder = SparkSession.builder.master("local[2]").config("spark.local.dir", folder)
    spark = builder.config(map=confs).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    df = spark.range(0, ROWS, 1, 2).selectExpr("id", "id % 100 as k", "repeat('x', 100) as s")
    job = {"by": "k", "map": same, "reduce": same, "map_schema": df.schema, "schema": df.schema}
    found, most = [], 0
    for number in range(1, count + 1):
        assert exchange(df, **job).count() == ROWS
        if number % LOOK == 0:
            gc.collect()
            spark.sparkContext._jvm.System.gc()
            most = max(most, kept(folder))
            found.append(held())
            print(number, *found[-1], kept(folder), flush=True)
    assert last_stats().number == count
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
    while kept(folder) > 2 and time.monotonic() < deadline:
        gc.collect()
        spark.sparkContext._jvm.System.gc()
        time.sleep(1)
    assert kept(folder) <= 2, f"{kept(folder)} files a minute after their plans became garbage"
    assert cached.count() == ROWS
    spark.stop()
    print("all right")


@pytest.mark.timeout(LIMIT + 20)
def test_many_exchanges_in_one_session(tmp_path):
    command = [sys.executable, __file__, str(COUNT), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["all right"]), (
        done.stdout + done.stderr
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
