"""Calls that wait: the operator of `map_async()` and its parts."""
