"""Numbers as people read them: with units, in percent, as spans."""

from __future__ import annotations


def count(number: float | None) -> str:
    """Return a number of rows with a unit: ``950``, ``12.3K``, ``4.0M``; ``-`` if it is not known."""
    return "-" if number is None else _scaled(number, ("", "K", "M", "G", "T"))


def size(number: float | None) -> str:
    """Return a number of bytes with a unit: ``950 B``, ``12.3 kB``, ``4.0 GB``; ``-`` if it is not known."""
    return "-" if number is None else _scaled(number, (" B", " kB", " MB", " GB", " TB"))


def seconds(ms: float | None) -> str:
    """Return a number of ms as seconds: ``12.3 s``; ``-`` if it is not known."""
    return "-" if ms is None else f"{ms / 1000:.1f} s"


def share(part: float) -> str:
    """Return a part of 1 in percent: ``38 %``, ``< 1 %``."""
    if 0 < part < 0.01:
        return "< 1 %"
    return f"{100 * part:.0f} %"


def span(first: int, last: int) -> str:
    """Return the numbers of neighbours: ``3`` for one, ``4-7`` for more."""
    return str(first) if first == last else f"{first}-{last}"


def _scaled(number: float, units: tuple[str, ...]) -> str:
    index = 0
    while number >= 999.5 and index < len(units) - 1:
        number /= 1000
        index += 1
    digits = 0 if index == 0 or number >= 99.95 else 1
    return f"{number:.{digits}f}{units[index]}"
