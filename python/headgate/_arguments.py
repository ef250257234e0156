"""Checks of arguments, each with an error that says what the argument takes."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import wraps
from types import FunctionType
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

from headgate._kinds import kind_of, why_no_call
from headgate._matches import close_matches
from headgate._units import parse_duration, parse_rate, parse_size
from headgate._values import parse_path
from headgate.errors import OptionError

P = ParamSpec("P")
R = TypeVar("R")
N = TypeVar("N", int, float)
#: Gets the name of an argument and its value, and raises an OptionError.
Check: TypeAlias = Callable[[str, Any], object]

_LARGEST: Final = 2**63 - 1
#: The longest ``timedelta``, in seconds.
_LONGEST: Final = timedelta.max.total_seconds()
#: In times a second.
_LOWEST_RATE: Final = 1 / 86_400
_HIGHEST_RATE: Final = 1e6


def refuse(name: str, value: object, wrong: str, takes: str, remedy: str = "") -> OptionError:
    """Return the error for an argument's invalid value."""
    # The address in a function's repr says nothing.
    shown = value.__name__ if isinstance(value, FunctionType) else repr(value)
    return OptionError(
        f"{name}={shown} {wrong}",
        asked=f"{name}={shown}",
        have=f"{name} takes {takes}",
        remedy=remedy or f"give {takes}",
        details={"option": name, "value": shown},
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
        OptionError: the value is not a size, or is too small or too large.
    """
    takes = f'at least {minimum} bytes, written as "64m", "256k" or a number'
    parsed = _parsed(parse_size, name, value, minimum, takes)
    if parsed > _LARGEST:
        raise refuse(name, value, f"is above {_LARGEST}", takes)
    return parsed


def _parsed(parse: Callable[[object], N], name: str, value: object, minimum: N, takes: str) -> N:
    try:
        parsed = parse(value)
    except (TypeError, ValueError) as error:
        raise refuse(name, value, f"is {error}", takes) from None
    if parsed < minimum:
        # A float without its ".0": limits are written as users would write them.
        limit = str(minimum).removesuffix(".0")
        raise refuse(name, value, f"is below the limit of {limit}", takes)
    return parsed


def duration(name: str, value: object, minimum: float) -> float:
    """Return a duration in seconds, given as ``"5s"``, as a number or as a ``timedelta``.

    Raises:
        OptionError: the value is not a duration, or is too short.
    """
    return _seconds(
        name, value, minimum, f'at least {minimum:g} seconds, written as "5s", "500ms" or a number'
    )


def _seconds(name: str, value: object, minimum: float, takes: str) -> float:
    parsed = _parsed(parse_duration, name, value, minimum, takes)
    if parsed >= _LONGEST:
        raise refuse(name, value, "is longer than all time", takes)
    return parsed


def rate(name: str, value: object) -> float:
    """Return a rate in times a second, given as ``"500/s"``, ``"30/min"`` or ``"1000/h"``.

    Raises:
        OptionError: the value is not a rate, or is outside its limits.
    """
    takes = 'a number in a time, written as "500/s", "30/min" or "1000/h"'
    per_second = _parsed(parse_rate, name, value, 0.0, takes)
    if not _LOWEST_RATE <= per_second <= _HIGHEST_RATE:
        raise refuse(name, value, 'is outside "1/day" to "1000000/s"', takes)
    return per_second


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
    seconds = _seconds(name, value, minimum / 1000, takes)
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
    wrong = why_no_call(value, parameters)
    if wrong:
        raise refuse(name, value, f"cannot be called: {wrong}", takes, remedy)
    return value  # type: ignore[no-any-return]


def integer(name: str, value: object) -> int:
    """Return a whole number of any size.

    Raises:
        OptionError: the value is none.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise refuse(name, value, "is not a whole number", "a whole number")
    return value


def whole(minimum: int = 0, maximum: int = _LARGEST) -> Check:
    """Return the check of a whole number within limits."""
    return lambda name, value: whole_number(name, value, minimum, maximum)


def patience(seconds: float | None) -> float | None:
    """Return a timeout as native code takes it: None for one that is longer than all time."""
    return None if seconds is None or seconds > _LONGEST else seconds


def amount(name: str, value: Any) -> float:
    """Return a finite number of at least 0.

    Raises:
        OptionError: the value is none.
    """
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value < _LARGEST:
        raise refuse(name, value, "is not a number of at least 0", "a number, such as 0.5")
    return float(value)


def timeout(name: str, value: Any) -> float:
    """Return seconds to wait, which may be infinite.

    Raises:
        OptionError: the value is no number, or below 0.
    """
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not value >= 0:
        wrong = "is below 0" if is_number and value < 0 else "is not a number of seconds"
        raise refuse(name, value, wrong, "seconds, at least 0")
    return math.inf if value > _LONGEST else float(value)


def octets(length: int | None = None) -> Check:
    """Return the check of bytes, of any length if it is None; the error does not show them."""
    takes = "bytes" if length is None else f"{length} bytes"

    def check(name: str, value: Any) -> None:
        right = isinstance(value, (bytes, bytearray))
        if right and length in {None, len(value)}:
            return
        wrong = f"has {len(value)} bytes" if right else f"is {kind_of(value)}"
        raise OptionError(
            f"{name} {wrong}, it needs {takes}",
            remedy=f"{name}=secrets.token_bytes({length})" if length else f'{name}=b"..."',
            details={"option": name},
        )

    return check


def one_of(*choices: str) -> Check:
    """Return the check of a text that is one of several."""

    def check(name: str, value: object) -> None:
        if not isinstance(value, str) or value not in choices:
            takes = " or ".join(f'"{choice}"' for choice in choices)
            near = (close_matches(value, choices) if isinstance(value, str) else []) or choices
            remedy = " · ".join(f'{name}="{choice}"' for choice in near)
            raise refuse(
                name,
                value,
                f"is {kind_of(value)}" if not isinstance(value, str) else "is unknown",
                takes,
                remedy,
            )

    return check


def names(name: str, value: Any) -> tuple[str, ...]:
    """Return names of columns, from one or several.

    Raises:
        OptionError: the value has something else.
    """
    several = (value,) if isinstance(value, str) else value
    is_several = isinstance(several, Iterable) and not isinstance(
        several, (bytes, bytearray, Mapping)
    )
    columns = tuple(several) if is_several else ()
    if not is_several or not all(isinstance(column, str) and column for column in columns):
        takes = "the name of a column, or several"
        raise refuse(
            name, value, "is no name of a column", takes, f'{name}="user" · {name}=["user", "day"]'
        )
    return columns


def instance(takes: str, *kinds: type, remedy: str = "") -> Check:
    """Return the check of an object's class."""

    def check(name: str, value: object) -> None:
        if not isinstance(value, kinds):
            raise refuse(name, value, f"is {kind_of(value)}", takes, remedy)

    return check


#: The check of a text, which may be empty.
any_text: Final = instance("a text", str)


def arrow_schema(name: str, value: Any) -> None:
    """Check a schema.

    Raises:
        OptionError: the value is no schema of Arrow.
    """
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    if not isinstance(value, pa.Schema):
        remedy = f'{name}=pyarrow.schema([("user", "string"), ("n", "int64")])'
        raise refuse(name, value, f"is {kind_of(value)}", "a pyarrow.Schema", remedy)


def optional(check: Check) -> Check:
    """Return a check that takes None too, for a parameter without a default."""
    return lambda name, value: None if value is None else check(name, value)


def calls(parameters: int, remedy: str) -> Check:
    """Return the check of a function that can be called with a number of arguments."""
    return lambda name, value: function(name, value, parameters, remedy)


def check_fields(of: Any, **checks: Check) -> None:
    """Check fields of a dataclass; a default is not checked."""
    for name, check in checks.items():
        value = getattr(of, name)
        if value is not of.__dataclass_fields__[name].default:
            check(name, value)


def takes(**checks: Check) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that checks arguments before each call; a default is not checked."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        code: Any = function.__code__
        parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        last = parameters[: code.co_argcount][::-1]
        defaults: dict[str, object] = {**(function.__kwdefaults__ or {})}
        defaults.update(zip(last, (function.__defaults__ or ())[::-1], strict=False))
        places = [(parameters.index(name), name, check) for name, check in checks.items()]

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            for place, name, check in places:
                if name in kwargs:
                    value = kwargs[name]
                elif place < min(len(args), code.co_argcount):
                    value = args[place]
                else:
                    continue
                if name not in defaults or value is not defaults[name]:
                    check(name, value)
            return function(*args, **kwargs)

        return checked

    return decorate
