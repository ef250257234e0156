"""Bytes from each producer to each consumer, in a matrix of at most 64 x 64.

Decision: ADR 0040.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Most rows, and most columns, of the matrix.
MOST: Final = 64


def width(tasks: int) -> int:
    """Return how many neighbours share a row or column: the smallest power of two that suffices."""
    each = 1
    while -(-tasks // each) > MOST:
        each *= 2
    return each


def folded(sizes: Sequence[int]) -> tuple[int, list[int]]:
    """Return the bytes for each consumer, added up for neighbours if there are more than 64 consumers.

    Args:
        sizes: bytes for each consumer.

    Returns:
        The number of neighbours that are added up, and at most 64 sums.
    """
    each = width(len(sizes))
    return each, [sum(sizes[first : first + each]) for first in range(0, len(sizes), each)]


def matrix(rows: Iterable[tuple[int, int, Sequence[int]]]) -> dict[str, Any] | None:
    """Return the matrix of a run; None if no producer has told its bytes.

    Args:
        rows: number of each producer that has told them, and what :func:`folded` returned for it. Rows
            of another length than most others are left out. Rows of the same number are added up.

    Returns:
        ``producers`` and ``consumers`` have the first number of each row and column, ``producers_each``
        and ``consumers_each`` how many neighbours share one, ``bytes`` a list for each row.
    """
    reported = [row for row in rows if row[2]]
    shapes = Counter((each, len(sums)) for _, each, sums in reported)
    if not shapes:
        return None
    (each, columns), _ = shapes.most_common(1)[0]
    reported = [row for row in reported if (row[1], len(row[2])) == (each, columns)]
    producers_each = width(1 + max(number for number, _, _ in reported))
    totals: dict[int, list[int]] = {}
    for number, _, sums in sorted(reported, key=lambda row: row[0]):
        row = totals.setdefault(number - number % producers_each, [0] * columns)
        row[:] = [total + more for total, more in zip(row, sums, strict=True)]
    return {
        "producers": list(totals),
        "consumers": [column * each for column in range(columns)],
        "producers_each": producers_each,
        "consumers_each": each,
        "bytes": list(totals.values()),
    }
