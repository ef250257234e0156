"""Streaming jobs whose workers are tasks of a Spark application."""

from headgate.spark.streams.start import spark_workers

__all__ = ["spark_workers"]
