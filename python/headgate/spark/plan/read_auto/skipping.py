"""Filters on floats by which Spark's reader of Parquet may drop rows for which they are true.

It drops row groups by their statistics, which other writers keep without NaN, and by their dictionaries, in which
-0.0 is not 0.0. Its answer then depends on the files, so it may differ from that of the filter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.spark.plan.read_auto.scan import Unsure

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from headgate.spark.plan.read_auto.values import Risk

#: Comparisons that are false for NaN.
_FALSE_FOR_NAN: Final = {"EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual"}
#: Comparisons with which -0.0 and 0.0 are alike, whichever is meant.
_ALIKE_FOR_ZERO: Final = {"LessThan", "GreaterThan"}
#: Writer whose statistics count for nothing if there is a NaN.
_COUNTS_NAN: Final = "parquet-mr"


def risks_of(kind: str, column: str, values: Sequence[pa.Scalar]) -> frozenset[Risk]:
    """Return the risks of a comparison of a column of floats with each of some values."""
    numbers = [value.as_py() for value in values if value.is_valid]
    is_odd = any(
        number != number or (number == 0 and kind not in _ALIKE_FOR_ZERO)  # noqa: PLR0124
        for number in numbers
    )
    if is_odd:
        return frozenset({(column, "always")})
    return frozenset({(column, "negated" if kind in _FALSE_FOR_NAN else "nan")})


def negated(risks: Iterable[Risk]) -> frozenset[Risk]:
    """Return the risks of a condition whose negation has these."""
    return frozenset((column, "nan" if when == "negated" else when) for column, when in risks)


def column_with_nan(risks: Iterable[Risk]) -> str:
    """Return a column by whose NaN Spark's reader may skip rows of some writers' files; empty if there is none.

    Args:
        risks: of a filter.

    Raises:
        Unsure: It may skip rows of the files of all writers.
    """
    sorted_risks = sorted(risks)
    for column, when in sorted_risks:
        if when == "always":
            raise Unsure(
                f"its filter compares {column!r} with NaN or 0.0, by which Spark may skip rows that match",
                "isnan(), or a filter in map",
            )
    return next((column for column, when in sorted_risks if when == "nan"), "")


def check_writer(created_by: str, column: str) -> None:
    """Return if Spark's reader skips no row of a writer's files by the NaN of a column.

    Raises:
        Unsure: It may.
    """
    if not created_by.startswith(_COUNTS_NAN):
        raise Unsure(
            f"its filter on {column!r} is true for NaN, which Spark may skip in a file by {writer_of(created_by)}",
            "a filter in map, or files that Spark has written",
        )


def writer_of(created_by: str) -> str:
    """Return the name of a writer of files, without its version."""
    return created_by.partition(" version")[0] or "an unknown writer"
