"""Waiting for a condition, with a bound."""

import time


def wait_until(condition, what="the condition", seconds=60.0):
    """Wait for a condition.

    Raises:
        AssertionError: the condition was not true within ``seconds``.
    """
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not true after {seconds} s"
        time.sleep(0.01)
