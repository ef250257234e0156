"""The fixtures of the tests on Spark, which share one session, and their watchdog."""

from tests.faults.watchdog import pytest_runtest_protocol
from tests.spark.fixtures import mode, nothing_left, numbers, secrets, spark, whole_slots

#: pytest finds these by their names here.
__all__ = [
    "mode",
    "nothing_left",
    "numbers",
    "pytest_runtest_protocol",
    "secrets",
    "spark",
    "whole_slots",
]
