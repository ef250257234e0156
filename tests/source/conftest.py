"""Every test of sources leaves no thread behind."""

import threading
import time

import pytest


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
