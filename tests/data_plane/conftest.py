"""Environments to move data between, and a check after each test that nothing is left."""

import gc
import os
import sys
import time
from pathlib import Path

import pytest

import headgate as hg

# Tests share plane.py and friends; importlib mode puts no folder on the path by itself.
sys.path.insert(0, str(Path(__file__).parent))

from plane import SECRET, SMALL

#: Seconds in which sockets, threads and segments must have gone.
SETTLE = 3.0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call":
        item.stash[PASSED] = report.passed
    return report


PASSED = pytest.StashKey()


@pytest.fixture(autouse=True)
def nothing_left(request, monkeypatch):
    """Close every environment of the test; check segments, threads and descriptors after it."""
    made = []
    original = hg.ShuffleEnvironment.__init__

    def remember(self, *args, **kwargs):
        original(self, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(hg.ShuffleEnvironment, "__init__", remember)
    before = descriptors()
    owner = os.getpid()
    yield
    if os.getpid() != owner:
        os._exit(99)  # a forked child that escaped its test
    for environment in made:
        environment.close()
    if not request.node.stash.get(PASSED, False):
        return  # the traceback of a failed test keeps its batches
    for environment in made:
        settle(lambda e=environment: kept(e) == {}, lambda e=environment: f"segments: {kept(e)}")
    settle(lambda: not io_threads(), lambda: f"I/O threads: {io_threads()}")
    settle(
        lambda: not descriptors() - before,
        lambda: f"descriptors: {sorted(descriptors() - before)}",
    )


def settle(done, what):
    deadline = time.monotonic() + SETTLE
    while not done():
        if time.monotonic() > deadline:
            pytest.fail(f"left behind: {what()}")
        gc.collect()
        time.sleep(0.01)


def kept(environment):
    segments = environment.stats()["segments"]
    names = ("held", "pinned", "idle", "local_pools")
    return {name: segments[name] for name in names if segments[name]}


def io_threads():
    found = []
    for task in Path("/proc/self/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
        except OSError:  # it ended just now
            continue
        if name == "headgate-io":
            found.append(task.name)
    return found


def descriptors():
    """Sockets, epolls and eventfds; files are pytest's own."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:  # the listing's own descriptor
            continue
        if target.startswith(("socket:", "anon_inode:")):
            found.add(f"{entry.name}={target}")
    return found


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
