"""Counts calls, since a test of time would depend on the machine."""

import sys


def count_calls(function):
    """Return the number of calls of Python and C functions that a function makes."""
    count = 0

    def counting(frame, event, arg):
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(counting)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count
