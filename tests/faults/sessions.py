"""Sessions of tests: without a UI, without noise, with a pool that is soon full."""

import sys
from pathlib import Path

#: What Spark's JVMs load, see class_archive.py; ``scripts/class_archive.sh`` makes it.
ARCHIVE = Path(sys.prefix, "spark-classes.jsa")
#: JVMs that live for seconds or minutes spend most of their time on compiling themselves.
QUICK_TO_COMPILE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:cds=off -Xlog:cds+dynamic=off"
#: And on loading classes; an archive that does not fit a JVM is ignored.
SHORT_LIVED = QUICK_TO_COMPILE + (f" -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else "")


def builder(master, name, folder):
    """Return the builder of a session whose files are in a folder."""
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master(master)
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.driver.extraJavaOptions", SHORT_LIVED)
        .config("spark.executor.extraJavaOptions", SHORT_LIVED)
        .config("spark.headgate.memory", "16m")
        .config("spark.headgate.progress", "off")
    )
