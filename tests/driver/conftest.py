"""The driver and the bodies of tasks, without Spark: nothing is left after a test."""

import pytest
from tests.faults.leftovers import Leftovers
from tests.faults.watchdog import pytest_runtest_protocol

#: pytest finds it by its name here.
__all__ = ["pytest_runtest_protocol"]


@pytest.fixture(autouse=True)
def nothing_left():
    """Check that a test leaves no connection, thread, process or file."""
    leftovers = Leftovers()
    yield
    leftovers.check()
