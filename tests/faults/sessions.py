"""Sessions of tests: without a UI, without noise, with a pool that is soon full."""

#: JVMs that live for seconds or minutes spend most of their time on compiling themselves.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


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
