"""The fixture that checks each test of a folder for leftovers."""

import pytest
from tests.faults.leftovers import Leftovers


@pytest.fixture(autouse=True)
def nothing_left():
    """Check that a test leaves no connection, thread, process or file."""
    leftovers = Leftovers()
    yield
    leftovers.check()
