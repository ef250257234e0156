"""The tests of links are watched."""

from tests.faults.watchdog import pytest_runtest_protocol

#: pytest finds it by its name here.
__all__ = ["pytest_runtest_protocol"]
