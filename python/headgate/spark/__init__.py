"""Headgate on Spark: an exchange between the Python workers of a job, with a DataFrame as result.

Importing it does not import pyspark, so it also works with the client of Spark Connect.
"""

from __future__ import annotations

from headgate.observe.record import Run, Stage, Task, Verdict
from headgate.spark.calls import calls
from headgate.spark.datasource.register import register
from headgate.spark.doctor import doctor
from headgate.spark.exchange import exchange, last_stats
from headgate.spark.explained.explain import explain
from headgate.spark.explained.explanation import Explanation
from headgate.spark.filesystem import filesystem
from headgate.spark.iterate import iterate
from headgate.spark.plan.request import Input
from headgate.spark.report_file import report
from headgate.spark.ui import ui
from headgate.spark.write import write

__all__ = [
    "Explanation",
    "Input",
    "Run",
    "Stage",
    "Task",
    "Verdict",
    "calls",
    "doctor",
    "exchange",
    "explain",
    "filesystem",
    "iterate",
    "last_stats",
    "register",
    "report",
    "ui",
    "write",
]
