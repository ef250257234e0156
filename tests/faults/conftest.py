"""The tests of the fault kit, and with it, are watched."""

from tests.faults.watchdog import pytest_runtest_protocol

#: pytest finds it by its name here.
__all__ = ["pytest_runtest_protocol"]
