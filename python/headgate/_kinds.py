"""A wrong argument in the words of an error."""

from __future__ import annotations

from typing import Any, Final

#: Libraries whose classes have the names of others: each has a DataFrame.
_NAMED: Final = ("pandas", "polars", "pyarrow", "pyspark")
#: Letters whose names begin with a vowel: an RDD.
_SPOKEN: Final = "AEFHILMNORSX"
#: The reason for which nothing comes of a coroutine function.
NOT_AWAITED: Final = (
    "it is a coroutine function, and only map_async() and sink_async() of a stream await those"
)


def kind_of(value: object) -> str:
    """Return what a value is, such as "an int", "a DataFrame of pandas", "the class FileSource" or "None"."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    library = type(value).__module__.partition(".")[0]
    vowel = name[0] in _SPOKEN if name.isupper() else name[0].lower() in "aeiou"
    return f"{'an' if vowel else 'a'} {name}" + (f" of {library}" if library in _NAMED else "")


def is_coroutine_function(function: Any) -> bool:
    """Return True if calls of a function or of an object return coroutines."""
    from inspect import iscoroutinefunction  # noqa: PLC0415 - slow to import

    return iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - of an object


def why_no_call(function: Any, number: int) -> str:
    """Return why a plain call of a function with a number of arguments gives nothing; empty if it may, or is not known."""
    return NOT_AWAITED if is_coroutine_function(function) else parameters_taken(function, number)


def parameters_taken(function: Any, number: int) -> str:
    """Return why a function cannot be called with a number of arguments; empty if it can, or is not known."""
    import inspect  # noqa: PLC0415 - slow to import

    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ""
    try:
        signature.bind(*range(number))
    except TypeError:
        return f"its parameters are {signature}"
    return ""
