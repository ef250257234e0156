"""Checks of arguments, each with an error that says what the argument takes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from headgate._kinds import kind_of, parameters_taken
from headgate._units import parse_duration, parse_size
from headgate._values import parse_path
from headgate.errors import OptionError

_LARGEST: Final = 2**63 - 1
#: The longest ``timedelta``, in seconds.
_LONGEST: Final = timedelta.max.total_seconds()


def refuse(name: str, value: object, wrong: str, takes: str, remedy: str = "") -> OptionError:
    """Return the error for an argument's invalid value."""
    return OptionError(
        f"{name}={value!r} {wrong}",
        asked=f"{name}={value!r}",
        have=f"{name} takes {takes}",
        remedy=remedy or f"give {takes}",
        details={"option": name, "value": repr(value)},
    )


def whole_number(name: str, value: object, minimum: int, maximum: int = _LARGEST) -> int:
    """Return a whole number that is within its limits.

    Raises:
        OptionError: the value is not a whole number, or is outside the limits.
    """
    takes = f"a whole number from {minimum} to {maximum}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise refuse(name, value, "is not a whole number", takes)
    if not minimum <= value <= maximum:
        raise refuse(name, value, f"is outside {minimum} to {maximum}", takes)
    return value


def size(name: str, value: object, minimum: int) -> int:
    """Return a size in bytes, given as ``"64m"`` or as a number.

    Raises:
        OptionError: the value is not a size, or is too small.
    """
    takes = f'at least {minimum} bytes, written as "64m", "256k" or a number'
    try:
        parsed = parse_size(value)
    except (TypeError, ValueError) as error:
        raise refuse(name, value, f"is {error}", takes) from None
    if parsed < minimum:
        raise refuse(name, value, f"is below the limit of {minimum}", takes)
    return parsed


def duration(name: str, value: object, minimum: float) -> float:
    """Return a duration in seconds, given as ``"5s"``, as a number or as a ``timedelta``.

    Raises:
        OptionError: the value is not a duration, or is too short.
    """
    takes = f'at least {minimum:g} seconds, written as "5s", "500ms" or a number'
    try:
        parsed = parse_duration(value)
    except (TypeError, ValueError) as error:
        raise refuse(name, value, f"is {error}", takes) from None
    if parsed < minimum:
        raise refuse(name, value, f"is below the limit of {minimum:g}", takes)
    if parsed >= _LONGEST:
        raise refuse(name, value, "is longer than all time", takes)
    return parsed


def milliseconds(name: str, value: object, minimum: int = 1) -> int:
    """Return a duration in whole ms, given as for :func:`duration`.

    Raises:
        OptionError: the value is not a duration, or is shorter than ``minimum`` ms.
    """
    return round(duration(name, value, minimum / 1000) * 1000)


def span(name: str, value: object, minimum: int = 0) -> timedelta:
    """Return a length of event time, given as ``"1 minute"`` or as a ``timedelta``.

    A number is refused: event times are in ms, other durations in seconds.

    Args:
        name: of the argument.
        value: to check.
        minimum: in ms.

    Raises:
        OptionError: the value is not a length of time, or is too short.
    """
    takes = f'at least {minimum} ms, written as "1 minute" or timedelta(minutes=1)'
    has_unit = isinstance(value, timedelta) or (isinstance(value, str) and not value.isdecimal())
    if not has_unit:
        what = f'{value!r} without a unit: "{value}s" or "{value}ms"?'
        is_number = isinstance(value, (int, float, str)) and not isinstance(value, bool) and value
        wrong = f"is {what}" if is_number else f"is {kind_of(value)}"
        raise refuse(name, value, wrong, takes)
    seconds = duration(name, value, minimum / 1000)
    return value if isinstance(value, timedelta) else timedelta(seconds=seconds)


def text(name: str, value: object, takes: str = "a text") -> str:
    """Return a text that is not empty.

    Raises:
        OptionError: the value is no text, or an empty one.
    """
    if not isinstance(value, str) or not value:
        raise refuse(name, value, "is not a text" if value != "" else "is empty", takes)
    return value


def path(name: str, value: object) -> str:
    """Return a path or a URI as text.

    Raises:
        OptionError: the value is none.
    """
    try:
        return parse_path(value)
    except (TypeError, ValueError) as error:
        raise refuse(name, value, f"is {error}", "a folder or a URI") from None


def wait(name: str, value: object) -> float | None:
    """Return how long to wait, in seconds; None for no limit.

    Raises:
        OptionError: the value is not a duration.
    """
    return None if value is None else min(duration(name, value, 0), threading.TIMEOUT_MAX)


def flag(name: str, value: object) -> bool:
    """Return a flag.

    Raises:
        OptionError: the value is neither True nor False.
    """
    if not isinstance(value, bool):
        raise refuse(name, value, "is neither True nor False", "True or False")
    return value


def function(name: str, value: Any, parameters: int, remedy: str) -> Callable[..., Any]:
    """Return a function that can be called with a number of arguments.

    Raises:
        OptionError: the value is none.
    """
    takes = f"a function of {parameters} argument{'s' * (parameters != 1)}"
    if not callable(value):
        raise refuse(name, value, f"is {kind_of(value)}, which cannot be called", takes, remedy)
    wrong = parameters_taken(value, parameters)
    if wrong:
        raise refuse(name, value, f"cannot be called: {wrong}", takes, remedy)
    return value  # type: ignore[no-any-return]
