"""Event times that are of no time near ours, since they are numbers of another unit, or one row has a wrong one."""

from __future__ import annotations

from typing import Final

#: From which ms on and up to which ones numbers of today's times are, if they are of another unit, and its name. Seconds are
#: those from 1973 on, which as ms are a few months of 1970; others are in years after 5000.
_UNITS: Final = (
    (10**8, 10**10, "s", "seconds"),
    (10**14, 10**17, "us", "microseconds"),
    (10**17, 1 << 62, "ns", "nanoseconds"),
)
_MS_OF_A_YEAR: Final = 31_556_952_000


def odd_time(watermark: int) -> str | None:
    """Return a sentence about a watermark if it is far from our time as other units are; None for others."""
    for first, last, unit, name in _UNITS:
        if first <= watermark < last:
            return (
                f"event time is in the year {1970 + watermark // _MS_OF_A_YEAR}, as {name} are that are taken for milliseconds. "
                f"What helps: with_timestamp_assigner(column, unit={unit!r}), and for time= a column of pa.timestamp({unit!r}) · "
                "filter() of rows with such times, behind which all others are late"
            )
    return None
