"""The size of a group of rows with equal keys, in statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class GroupSize:
    """A group of rows with equal keys.

    Attributes:
        key: name of each key column -> its value as text of at most 100 characters, None for a null; binaries in hex.
        rows: rows of the group.
        bytes: their bytes in memory.
    """

    key: Mapping[str, str | None]
    rows: int
    bytes: int


def largest_of(groups: Iterable[GroupSize | None]) -> GroupSize | None:
    """Return the group with the most bytes, the first of several; None if there is none."""
    sizes = (group for group in groups if group is not None)
    return max(sizes, key=lambda group: group.bytes, default=None)
