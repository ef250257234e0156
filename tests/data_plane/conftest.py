"""Environments to move data between, and a check after each test that nothing is left."""

import os
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

import headgate as hg

# Tests share plane.py and friends; importlib mode puts no folder on the path by itself.
sys.path.insert(0, str(Path(__file__).parent))

from plane import SECRET, SMALL

#: pytest finds these by their names here.
__all__ = ["pytest_runtest_makereport", "pytest_runtest_protocol"]


@pytest.fixture(autouse=True)
def nothing_left(request, monkeypatch):
    """Close every environment of the test; check that nothing of them is left."""
    made = remember_environments(monkeypatch)
    leftovers = Leftovers(made)
    owner = os.getpid()
    yield
    if os.getpid() != owner:
        os._exit(99)  # a forked child that escaped its test
    for environment in made:
        environment.close()
    if passed(request):
        leftovers.check()


@pytest.fixture
def environment():
    """Make environments of one exchange, small ones if not said otherwise."""

    def make(**options):
        return hg.ShuffleEnvironment(**{**SMALL, "secret": SECRET, **options})

    return make


@pytest.fixture(params=["local", "remote"])
def link(request, environment):
    """Make the environments of a producer and a consumer: one, or two that are connected."""

    def make(**options):
        producer = environment(**options)
        consumer = producer if request.param == "local" else environment(**options)
        return producer, consumer

    make.kind = request.param
    return make
