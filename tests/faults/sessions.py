"""Sessions of tests: without a UI, without noise, with a pool that is soon full."""


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
        .config("spark.headgate.memory", "16m")
        .config("spark.headgate.progress", "off")
    )
