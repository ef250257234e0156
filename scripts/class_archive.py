"""python -m scripts.class_archive: archives the classes that Spark loads.

The JVM writes its loaded and verified classes to the archive at exit. The JVMs of all tests map the
archive, so that they start quickly.
"""

import tempfile
from pathlib import Path

from tests.kit.sessions import ARCHIVE, QUICK_TO_COMPILE, builder

#: Seconds for the JVM to write the archive.
WRITTEN = 180.0


def main():
    """Run a small job of each kind and archive the classes that were loaded."""
    from pyspark import SparkContext

    from headgate.spark import exchange

    with tempfile.TemporaryDirectory(prefix="headgate-classes-") as name:
        folder, made = Path(name), ARCHIVE.with_suffix(".new")
        options = f"{QUICK_TO_COMPILE} -XX:ArchiveClassesAtExit={made}"
        session = builder("local-cluster[1,4,1024]", "headgate classes", folder)
        session = session.config("spark.driver.extraJavaOptions", options).getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        numbers = session.range(0, 1000, 1, 4).selectExpr("id", "id % 10 as k")
        result = exchange(numbers, by="k")
        result.groupBy("k").count().join(numbers, "k").write.parquet(str(folder / "rows"))
        assert session.read.parquet(str(folder / "rows")).toArrow().num_rows == 1000
        session.stop()
        gateway = SparkContext._gateway
        gateway.shutdown()
        gateway.proc.stdin.close()
        assert gateway.proc.wait(WRITTEN) == 0
        made.replace(ARCHIVE)


if __name__ == "__main__":
    main()
