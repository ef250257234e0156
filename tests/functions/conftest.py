"""Functions of map and reduce, without Spark."""

import pytest
from tests.faults.leftovers import Leftovers
from tests.faults.watchdog import pytest_runtest_protocol

#: pytest finds the hook by its name here.
__all__ = ["pytest_runtest_protocol"]


@pytest.fixture(autouse=True)
def nothing_left():
    """Check that a test leaves no thread, process or file."""
    leftovers = Leftovers()
    yield
    leftovers.check()
