"""Headgate on Spark: an exchange between the Python workers of a job, as an ordinary DataFrame.

Importing this imports no pyspark: it works beside Spark Connect's client too.
"""

from __future__ import annotations

from headgate.spark.datasource.register import register
from headgate.spark.exchange import exchange, last_stats
from headgate.spark.progress.stats import ExchangeStats
from headgate.spark.progress.task_stats import StageStats, TaskStats
from headgate.spark.progress.verdict import Verdict
from headgate.spark.write import write

__all__ = [
    "ExchangeStats",
    "StageStats",
    "TaskStats",
    "Verdict",
    "exchange",
    "last_stats",
    "register",
    "write",
]
