"""A small Spark application whose driver a test may kill. It prints the sum of one exchange."""

import sys

from pyspark.sql import SparkSession
from sessions import SHORT_LIVED

from headgate.spark import exchange


def main(folder):
    """Run one exchange on two executors."""
    spark = (
        SparkSession.builder.master("local-cluster[2,2,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.local.dir", folder)
        .config("spark.driver.extraJavaOptions", SHORT_LIVED)
        .config("spark.executor.extraJavaOptions", SHORT_LIVED)
        .config("spark.headgate.memory", "16m")
        .config("spark.headgate.progress", "off")
        .config("spark.headgate.mode", "pipelined")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    rows = exchange(spark.range(0, 1_000, 1, 3), by="id").collect()
    print("sum", sum(row[0] for row in rows), flush=True)
    spark.stop()


main(sys.argv[1])
