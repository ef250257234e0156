"""Sizes and durations as Spark writes them: ``64m``, ``256k``, ``100ms``, ``10s``, ``1 minute``; and rates: ``500/s``."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Any, Final

#: Bytes per unit. As in Spark, k and kb both mean 1024.
_SIZES: Final[dict[str, int]] = {
    unit: 1024**power
    for power, units in enumerate((("", "b"), ("k", "kb"), ("m", "mb"), ("g", "gb"), ("t", "tb")))
    for unit in units
}

#: Seconds per unit. As in Spark, m and min both mean a minute, and the words of its intervals are units too.
_DURATIONS: Final[dict[str, float]] = {
    unit: seconds
    for seconds, units in (
        (1e-6, ("us", "microsecond", "microseconds")),
        (1e-3, ("ms", "millisecond", "milliseconds")),
        (1.0, ("", "s", "second", "seconds")),
        (60.0, ("m", "min", "minute", "minutes")),
        (3600.0, ("h", "hour", "hours")),
        (86_400.0, ("d", "day", "days")),
        (604_800.0, ("week", "weeks")),
    )
    for unit in units
}

#: The shortest timeout above 0, in seconds.
_SHORTEST_TIMEOUT: Final = 0.001

_NUMBER: Final = re.compile(r"([0-9]+)\s*([a-z]*)", re.ASCII)
_RATE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*/\s*([a-z]+)", re.ASCII)


def parse_size(raw: Any) -> int:
    """Return bytes; a number, or a string of digits, is taken as bytes.

    Raises:
        TypeError: neither a string nor an integer.
        ValueError: the text is not a size.
    """
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    number, unit = _split(raw, "size")
    if unit not in _SIZES:
        raise ValueError("not a size")
    return number * _SIZES[unit]


def parse_duration(raw: Any) -> float:
    """Return seconds; a number, or a string of digits, is taken as seconds.

    Raises:
        TypeError: neither a string nor a number nor a ``timedelta``.
        ValueError: the text is not a duration, or the number is NaN, infinite or too large for a float.
    """
    if isinstance(raw, timedelta):
        return raw.total_seconds()
    if isinstance(raw, (int, float)) and not isinstance(raw, bool):
        try:
            seconds = float(raw)
        except OverflowError:
            seconds = math.inf
        if not math.isfinite(seconds):
            raise ValueError("not a duration")
        return seconds
    number, unit = _split(raw, "duration")
    if unit not in _DURATIONS:
        raise ValueError("not a duration")
    return number * _DURATIONS[unit]


def parse_timeout(raw: Any) -> float:
    """Return seconds: a duration of 1 ms or more, 0, or -1 for never.

    Raises:
        TypeError: neither a string nor a number.
        ValueError: the text is not a duration, or it is below 1 ms and neither 0 nor -1.
    """
    text = raw.strip() if isinstance(raw, str) else ""
    seconds = -1.0 if text == "-1" else parse_duration(text.removeprefix("-") or raw)
    if seconds < -1 or (text.startswith("-") and text != "-1"):
        raise ValueError("below the limit of -1")
    if seconds in {-1.0, 0.0} or seconds >= _SHORTEST_TIMEOUT:
        return seconds
    raise ValueError("below the limit of 1ms, and neither 0 nor -1")


def parse_rate(raw: Any) -> float:
    """Return a number per second, from text such as ``500/s``, ``30/min`` or ``0.5/h``.

    Raises:
        TypeError: not a string.
        ValueError: the text is not a rate.
    """
    if not isinstance(raw, str):
        raise TypeError("not a rate")
    match = _RATE.fullmatch(raw.strip().lower())
    if match is None or match[2] not in _DURATIONS:
        raise ValueError("not a rate")
    return float(match[1]) / _DURATIONS[match[2]]


def rate_text(per_second: float) -> str:
    """Return a number per second as ``500/s``, or per minute, hour or day if it is less than one."""
    for unit in ("s", "min", "h"):
        number = per_second * _DURATIONS[unit]
        if number >= 1:
            return f"{number:.6g}/{unit}"
    return f"{per_second * _DURATIONS['day']:.6g}/day"


def size_text(size: int) -> str:
    """Return bytes in the largest unit that divides them: 262144 as ``256k``."""
    for unit in ("t", "g", "m", "k"):
        if size and size % _SIZES[unit] == 0:
            return f"{size // _SIZES[unit]}{unit}"
    return str(size)


def duration_text(seconds: float) -> str:
    """Return seconds as ``10s``, or ``100ms`` below one second."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:g}ms"
    return f"{seconds:g}s"


def _split(raw: Any, quantity: str) -> tuple[int, str]:
    if not isinstance(raw, str):
        raise TypeError(f"not a {quantity}")
    match = _NUMBER.fullmatch(raw.strip().lower())
    if match is None:
        raise ValueError(f"not a {quantity}")
    return int(match[1]), match[2]
