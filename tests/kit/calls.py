"""Counts calls, since a test of time would depend on the machine."""

import gc
import sys


def count_calls(function):
    """Return the number of calls of Python and C functions that a function makes."""
    count = 0

    def counting(frame, event, arg):
        nonlocal count
        count += event in {"call", "c_call"}

    # A collection would count the finalizers of what other tests have left.
    gc.collect()
    gc.disable()
    sys.setprofile(counting)
    try:
        function()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count
