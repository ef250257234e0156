"""A check for leftovers after each test of a streaming job."""

import sys
from pathlib import Path

import pytest
from tests.faults.leftovers import (
    Leftovers,
    passed,
    pytest_runtest_makereport,
    remember_environments,
)
from tests.faults.watchdog import pytest_runtest_protocol

sys.path.insert(0, str(Path(__file__).parent))

#: pytest finds these by their names here.
__all__ = ["pytest_runtest_makereport", "pytest_runtest_protocol"]


@pytest.fixture(autouse=True)
def nothing_left(request, monkeypatch):
    """Check that a test leaves no segment, thread, socket, process or file behind."""
    made = remember_environments(monkeypatch)
    leftovers = Leftovers(made)
    yield
    if passed(request):
        leftovers.check()
