"""The tests on Spark share one session; a watchdog ends a test that hangs."""

from tests.faults.watchdog import pytest_runtest_protocol
from tests.spark.fixtures import mode, nothing_left, numbers, secrets, spark, whole_slots

#: pytest finds fixtures and hooks by their names in this file.
__all__ = [
    "mode",
    "nothing_left",
    "numbers",
    "pytest_runtest_protocol",
    "secrets",
    "spark",
    "whole_slots",
]
