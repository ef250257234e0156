"""Finds the value that keeps a function from being pickled, and its place in the user's code."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Final

from headgate._kinds import kind_of

#: Steps from an object to a value that it holds.
_DEPTH: Final = 8
#: Libraries whose objects stay on the driver as a whole: what they hold says nothing to a user.
_WHOLE: Final = frozenset({"pyspark", "py4j"})


def culprit(owned: Iterable[tuple[str, Any]], dumps: Callable[[Any], bytes]) -> str:
    """Return the owner and the variable that hold what cannot be pickled; empty if it is not found.

    Args:
        owned: names of owners, such as operators, each with an object of it.
        dumps: the pickler.
    """
    for owner, value in owned:
        if value is not None and not _is_fine(value, dumps):
            place, deepest = _deepest(value, dumps)
            where = " of ".join(name for name in (place, owner) if name)
            return f"{where} is {kind_of(deepest)}, which cannot be pickled"
    return ""


def _deepest(value: Any, dumps: Callable[[Any], bytes]) -> tuple[str, Any]:
    """Return the last value on the way to the one that cannot be pickled, with the names of the places."""
    places: list[str] = []
    for _ in range(_DEPTH):
        if type(value).__module__.partition(".")[0] in _WHOLE:
            break
        for place, inner in _parts(value):
            if not _is_fine(inner, dumps):
                if place:
                    places.append(place)
                value = inner
                break
        else:
            break
    return ", ".join(reversed(places)), value


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, partial):
        for inner in (*value.args, *value.keywords.values()):
            yield "", inner
    elif isinstance(value, MethodType):
        yield "", value.__self__
    elif isinstance(value, FunctionType):
        variables = inspect.getclosurevars(value)
        for name, inner in (*variables.nonlocals.items(), *variables.globals.items()):
            yield f"variable {name!r} of {value.__name__}()", inner
    elif isinstance(value, dict):
        yield from ((f"entry {key!r}", inner) for key, inner in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((f"item {at}", inner) for at, inner in enumerate(value))
    elif not isinstance(value, type):
        for name, inner in getattr(value, "__dict__", {}).items():
            yield f"attribute {name!r} of {kind_of(value)}", inner


def _is_fine(value: Any, dumps: Callable[[Any], bytes]) -> bool:
    try:
        dumps(value)
    except Exception:  # noqa: BLE001 - a user's class may raise anything
        return False
    return True
