"""The answers of services: Retry-After, and the status that the exceptions of HTTP clients have. Decision: ADR 0060."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from headgate.stream.graph.call_functions import Retry

#: Too Many Requests; and the statuses whose Retry-After counts, with Service Unavailable.
TOO_MANY: Final = 429
_BUSY: Final = frozenset({TOO_MANY, 503})
#: Where clients of HTTP have the status: in the exception, or in its response.
_STATUS: Final = ("status", "status_code", "code")
#: Headers that have a wait, and their values of a second. The first one is of some services alone, and more exact.
_WAITS: Final = (("retry-after-ms", 1000), ("retry-after", 1))


def asks_for_less(error: BaseException) -> bool:
    """Return True for an answer of a service that gets too many calls: a Retry with a time, or a status of 429."""
    if isinstance(error, Retry) and error.after is not None:
        return True
    return _has_status(error, frozenset({TOO_MANY}))


def asked_wait(error: BaseException) -> float | None:
    """Return the seconds for which a service asks to wait: those of a Retry, or the header of an answer of 429 or 503."""
    if isinstance(error, Retry) and error.after is not None:
        return error.after
    if not _has_status(error, _BUSY):
        return None
    for place in _places(error):
        with suppress(Exception):  # headers of a user's exception may be anything
            headers = {str(name).lower(): value for name, value in place.headers.items()}
            for name, second in _WAITS:
                seconds = None if name not in headers else seconds_of(headers[name], second)
                if seconds is not None:
                    return seconds
    return None


def seconds_of(value: str | None, second: int = 1) -> float | None:
    """Return how long a header asks to wait: a number, or a date; None if it says neither.

    Args:
        value: of the header.
        second: a second in its unit.
    """
    if value is None:
        return None
    if value.strip().replace(".", "", 1).isdecimal():
        return float(value) / second
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _places(error: BaseException) -> list[Any]:
    """Return the objects that may have the status and the headers of an answer."""
    response = None
    with suppress(Exception):  # an exception of a user may have attributes that raise
        response = getattr(error, "response", None)
    return [error] if response is None else [error, response]


def _has_status(error: BaseException, statuses: frozenset[int]) -> bool:
    with suppress(Exception):
        return any(
            getattr(place, name, None) in statuses for place in _places(error) for name in _STATUS
        )
    return False
