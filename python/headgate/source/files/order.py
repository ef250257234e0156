"""The order in which the splits of files are handed out."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from headgate.source.files.split import FileSplit, ListedFile

Order: TypeAlias = Literal["name", "modified", "size"]
ORDERS: Final = get_args(Order)

_DIGITS: Final = re.compile("([0-9]+)")


def natural(path: str) -> tuple[Any, ...]:
    """Return a key by which numbers in paths compare by their values: ``part-9`` is before ``part-10``."""
    parts = _DIGITS.split(path)
    return tuple(int(part) if at % 2 else part for at, part in enumerate(parts)), path


def key_of(order: Order) -> Callable[[ListedFile | FileSplit], Any]:
    """Return a function from a file, or from a split of it, to what orders the files."""
    if order == "size":
        # Large splits first, so that the last ones are small and all readers end at about the same time.
        return lambda file: -file.size
    if order == "modified":
        return lambda file: (file.modified or 0, natural(file.path))
    return lambda file: natural(file.path)
