"""Fixtures for tests of sources; every test fails if it leaves a thread running."""

import threading
import time

import pytest
from tests.kit.blocking_reader import NumberOutput, NumbersReader


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    left = [t for t in threading.enumerate() if t.name.startswith("headgate-") and t not in before]
    deadline = time.monotonic() + 10
    for thread in left:
        thread.join(max(0.0, deadline - time.monotonic()))
    still = [t.name for t in left if t.is_alive()]
    assert not still, f"threads are left: {still}"


@pytest.fixture
def readers():
    """Makes readers of numbers and closes them."""
    made = []

    def make(*args, **options):
        made.append(NumbersReader(*args, **options))
        return made[-1]

    yield make
    for reader in made:
        reader.close()


@pytest.fixture
def output():
    return NumberOutput()
