"""Waiting for a condition, with a bound."""

import time


def wait_until(condition, what, seconds=20.0):
    """Wait for a condition.

    Raises:
        AssertionError: the condition did not come true within so many seconds.
    """
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not so after {seconds} s"
        time.sleep(0.02)
