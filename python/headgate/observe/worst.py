"""A choice of the tasks that tell most about a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")


def worst(sides: tuple[Sequence[T], Sequence[T]], most: int) -> tuple[list[T], list[T]]:
    """Return the first tasks of producers and consumers alike, at most ``most`` in all, and the others.

    Args:
        sides: the tasks of each, in the order of what they tell.
        most: how many. A short side leaves its places to the other one.
    """
    ours, theirs = sides
    places = max(most // 2, most - len(theirs)), max(most // 2, most - len(ours))
    pairs = list(zip(sides, places, strict=True))
    return [t for side, n in pairs for t in side[:n]], [t for side, n in pairs for t in side[n:]]
