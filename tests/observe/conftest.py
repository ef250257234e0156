"""The watchdog of the tests of the record and of what shows it. Tests that start threads check for leftovers, too."""

from tests.faults.watchdog import pytest_runtest_protocol

#: pytest finds the hook by its name here.
__all__ = ["pytest_runtest_protocol"]
