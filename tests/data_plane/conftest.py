"""Environments to move data between, and a check after each test that nothing is left."""

import functools
import inspect
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
from headgate.partition import KINDS

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


LINKS = ("local", "remote", "same_host")


def pytest_generate_tests(metafunc):
    """Run over all links; with every kind of partition what says nothing about the kind.

    That is a test that leaves it to ``plane.exchange`` to make its partitions.
    """
    if "link" in metafunc.fixturenames:
        source = inspect.getsource(metafunc.function)
        any_kind = "exchange(" in source and "create_result_partition" not in source
        kinds = KINDS if any_kind else ["pipelined_bounded"]
        cases = [(link, kind) for kind in kinds for link in LINKS]
        ids = [link if kind == "pipelined_bounded" else f"{link}-{kind}" for link, kind in cases]
        metafunc.parametrize("link", cases, ids=ids, indirect=True)


@pytest.fixture
def link(request, environment):
    """Make the environments of a producer and a consumer: one, or two that are connected.

    Over TCP (remote), or within the host, where pages are read in the memory of the producer.
    """
    where, kind = request.param

    def make(**options):
        options.setdefault("same_host_link", "auto" if where == "same_host" else "off")
        producer = environment(**options)
        consumer = producer if where == "local" else environment(**options)
        create = producer.create_result_partition
        producer.create_result_partition = functools.partial(create, kind=kind)
        return producer, consumer

    make.kind = where
    return make
