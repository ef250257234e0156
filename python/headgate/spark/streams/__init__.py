"""Streaming jobs whose workers are tasks of a Spark application, and DataFrames as their input and result."""

from headgate.spark.streams.inputs import DataFrameSource
from headgate.spark.streams.results import ResultFolder
from headgate.spark.streams.start import spark_workers

__all__ = ["DataFrameSource", "ResultFolder", "spark_workers"]
