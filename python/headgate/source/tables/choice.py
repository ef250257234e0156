"""The choice of a version, by number or time."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from headgate.source.arguments import refuse


def after_of(text: str) -> int | str:
    """Return a version, or "latest".

    Raises:
        ValueError: the text is neither.
    """
    return text if text == "latest" else int(text)


def time_of(value: Any) -> datetime:
    """Return a point in time.

    Raises:
        OptionError: the value is none, or has no zone.
    """
    takes = 'a datetime with a zone, or "2026-01-31T12:00:00Z"'
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise refuse("timestamp", value, "is no time", takes) from None
    if not isinstance(time, datetime) or time.tzinfo is None:
        raise refuse("timestamp", value, "is no time with a zone", takes)
    return time
