"""Environments to move data between, and a check for leftovers after each test."""

import functools
import inspect
import itertools
import os
import sys
from pathlib import Path

import pytest
from tests.kit.leftovers import Leftovers, passed, remember_environments

import headgate as hg
from headgate.partition import KINDS

# Tests share plane.py and friends; importlib mode puts no folder on the path by itself.
sys.path.insert(0, str(Path(__file__).parent))

from plane import SECRET, SMALL


@pytest.fixture(autouse=True)
def nothing_left(request, monkeypatch):
    """Close every environment of the test, and check that it leaves nothing behind."""
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
    """Make environments of one exchange, with small pools by default."""

    def make(**options):
        return hg.ShuffleEnvironment(**{**SMALL, "secret": SECRET, **options})

    return make


LINKS = ("local", "remote", "same_host")
#: How a subpartition reaches its consumer once the producer has ended: on this host, and on another.
KEPT, SERVED = "kept", "served"

#: Links and kinds of partition for the tests that leave the kind open; each link and kind occurs.
#: The other six pairs would run the same code again: a link reads a partition only through Rust's
#: trait ``SubpartitionView``, whose contract exchange/src/view_contract.rs checks for every kind, and
#: exchange/tests/kinds.rs reads every kind over every link. The last three pairs are those in which
#: link and kind compete for memory: blocking reads a file into the pool that the writer fills,
#: pipelined may take the pool that its connection needs, and hybrid spills segments that the link
#: lends.
PAIRS = (
    ("local", "pipelined_bounded"),
    ("remote", "pipelined_bounded"),
    ("same_host", "pipelined_bounded"),
    ("local", "blocking"),
    ("remote", "pipelined"),
    ("same_host", "hybrid"),
    (KEPT, "blocking"),
    (SERVED, "blocking"),
)
assert {link for link, _ in PAIRS} == {*LINKS, KEPT, SERVED}
assert {kind for _, kind in PAIRS} == set(KINDS)


def pytest_generate_tests(metafunc):
    """Run tests with a ``link`` over all links, and over all pairs if they leave the kind open.

    Those are the tests that let ``plane.exchange`` make their partitions.
    """
    if "link" in metafunc.fixturenames:
        source = inspect.getsource(metafunc.function)
        any_kind = "exchange(" in source and "create_result_partition" not in source
        pairs = PAIRS if any_kind else [(link, "pipelined_bounded") for link in LINKS]
        ids = [link if kind == "pipelined_bounded" else f"{link}-{kind}" for link, kind in pairs]
        metafunc.parametrize("link", pairs, ids=ids, indirect=True)


@pytest.fixture
def link(request, environment, tmp_path_factory):
    """Make the environments of a producer and a consumer.

    One for both (local), two over TCP (remote), two that share memory (same_host), or two with files
    between them, which the consumer maps (kept) or a third environment sends over TCP (served).
    """
    where, kind = request.param

    def make(**options):
        options.setdefault("same_host_link", "auto" if where == "same_host" else "off")
        producer = environment(**options)
        consumer = producer if where == "local" else environment(**options)
        create = producer.create_result_partition
        producer.create_result_partition = functools.partial(create, kind=kind)
        if where in {KEPT, SERVED}:
            folder = tmp_path_factory.mktemp("kept")
            files = (folder / f"kept-{number}" for number in itertools.count())
            producer.keep_as = functools.partial(next, files)
            producer.server = environment(**options) if where == SERVED else None
        return producer, consumer

    make.kind = where
    return make
