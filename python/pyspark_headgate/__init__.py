"""Lets Spark find the format ``headgate`` by itself.

Spark looks for packages named ``pyspark_*`` with a ``DefaultSource`` when a Python data source is
first asked for.
"""

from headgate.spark.datasource.data_source import HeadgateDataSource as DefaultSource

__all__ = ["DefaultSource"]
