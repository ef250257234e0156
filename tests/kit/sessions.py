"""Spark sessions for tests: no UI, no progress bars, and a pool that is soon full."""

import os
import sys
from pathlib import Path

# Sessions of this process, and of those that it starts.
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

#: Archive of the classes that Spark's JVMs load; ``scripts/class_archive.sh`` makes it.
ARCHIVE = Path(sys.prefix, "spark-classes.jsa")
#: Options for short-lived JVMs, which spend most of their time on compiling code.
QUICK_TO_COMPILE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:cds=off -Xlog:cds+dynamic=off"
#: The same, with the archive of classes. A JVM ignores an archive of another version.
SHORT_LIVED = QUICK_TO_COMPILE + (f" -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else "")


def builder(master, name, folder):
    """Return the builder of a session that keeps its files in ``folder``."""
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master(master)
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "4")
        # An attempt that fails costs its Python worker, and the next one half a second for a new one.
        .config("spark.task.maxFailures", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.driver.extraJavaOptions", SHORT_LIVED)
        .config("spark.executor.extraJavaOptions", SHORT_LIVED)
        .config("spark.headgate.memory", "16m")
        .config("spark.headgate.progress", "off")
        # Most tests are about rows that Headgate moves, also where Spark's own repartition would do.
        .config("spark.headgate.mode", "kept")
    )
