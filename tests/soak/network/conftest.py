"""Puts the tests in this folder under the watchdog."""

from tests.faults.watchdog import pytest_runtest_protocol

#: pytest finds the hook by its name here.
__all__ = ["pytest_runtest_protocol"]
