"""Functions of map and reduce, without Spark."""

from tests.faults.nothing_left import nothing_left
from tests.faults.watchdog import pytest_runtest_protocol

#: pytest finds the fixture and the hook by their names here.
__all__ = ["nothing_left", "pytest_runtest_protocol"]
