"""The trace: the last native events of this process, as lines for people. The option ``trace`` chooses their kinds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.errors import HeadgateError

#: Most events of a report, of a process in the doctor's, and of an error.
IN_REPORT: Final = 1000
IN_DOCTOR: Final = 40
IN_ERROR: Final = 20


def lines(most: int) -> list[str]:
    """Return the newest events, the newest last, and before them how many others there were.

    Args:
        most: number of events.

    Returns:
        A line for each; none while nothing is recorded and nothing was.
    """
    from headgate._native import trace_events  # noqa: PLC0415 - loads the native module

    kinds, events, missing = trace_events(most)
    shown = [
        f"{datetime.fromtimestamp(at, UTC).isoformat(' ', 'milliseconds')[:23]} {kind:<4} {text}"
        for at, kind, text in events
    ]
    if missing:
        return [f"{missing} older events are not shown", *shown]
    return shown or ([f"no event of {', '.join(kinds)}"] if kinds else [])


def note(error: HeadgateError) -> None:
    """Add the newest events to an error of the native module, which calls this while it records any."""
    error.with_trace(lines(IN_ERROR))
