"""Finds the value that keeps a job from being pickled, and its place in the user's code."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final

from headgate._kinds import kind_of

if TYPE_CHECKING:
    from headgate.stream.api.graph import JobGraph

#: Steps from an operator to a value.
_DEPTH: Final = 8


def culprit(graph: JobGraph, dumps: Callable[[Any], bytes]) -> str:
    """Return the operator and the variable that hold what cannot be pickled; empty if it is not found.

    Args:
        graph: the job.
        dumps: the pickler.
    """
    for stage in graph.stages:
        for node in stage.operators:
            for value in (node.make, node.source, node.watermarks):
                if value is not None and not _is_fine(value, dumps):
                    place, found = _deepest(value, dumps)
                    where = f"{place} of {node.uid}" if place else node.uid
                    return f"{where} is {kind_of(found)}, which cannot be pickled"
    return ""


def _deepest(value: Any, dumps: Callable[[Any], bytes]) -> tuple[str, Any]:
    """Return the last value on the way to the one that cannot be pickled, with the names of the places."""
    places: list[str] = []
    for _ in range(_DEPTH):
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
