"""Checks of a source's arguments, and their values read from string options."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from headgate._matches import close_matches
from headgate._units import parse_duration, parse_size
from headgate.errors import OptionError

T = TypeVar("T")

_LARGEST: Final = 2**63 - 1


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
    """Return a duration in seconds, given as ``"5s"`` or as a number.

    Raises:
        OptionError: the value is not a duration, or is too short.
    """
    takes = f'at least {minimum} seconds, written as "5s", "500ms" or a number'
    try:
        parsed = parse_duration(value)
    except (TypeError, ValueError) as error:
        raise refuse(name, value, f"is {error}", takes) from None
    if not minimum <= parsed < float("inf"):
        raise refuse(name, value, f"is below the limit of {minimum}", takes)
    return parsed


class Texts:
    """String options, read by name; as in Spark, the case of a name does not matter.

    Args:
        source: the source's name, for errors.
        options: the options as strings.
        known: the names of all options of the source, in lower camel case.

    Raises:
        OptionError: an option is not one of ``known``.
    """

    def __init__(self, source: str, options: Mapping[str, str], known: Sequence[str]) -> None:
        folded = {name.casefold(): name for name in known}
        self._texts: dict[str, str] = {}
        for name, text in options.items():
            if name.casefold() not in folded:
                near = close_matches(name, known)
                raise OptionError(
                    f"{name!r} is no option of {source}",
                    asked=name,
                    have=", ".join(known),
                    remedy=" · ".join(near) or f"leave {name} out · use one of the known options",
                    details={"option": name, "close": near},
                )
            self._texts[folded[name.casefold()]] = text

    def get(self, name: str, read: Callable[[str], T], default: T, takes: str) -> T:
        """Return an option, parsed by ``read``.

        Raises:
            OptionError: ``read`` raised a ValueError.
        """
        text = self._texts.get(name)
        if text is None:
            return default
        try:
            return read(text)
        except OptionError:
            raise
        except ValueError:
            raise refuse(name, text, "cannot be read", takes) from None

    def integer(self, name: str, default: int | None = None) -> Any:
        """Return a whole number."""
        return self.get(name, int, default, "a whole number")

    def number(self, name: str, default: float | None = None) -> Any:
        """Return a number."""
        return self.get(name, float, default, "a number")

    def text(self, name: str, default: str | None = None) -> Any:
        """Return a string as it is."""
        return self._texts.get(name, default)

    def boolean(self, name: str, default: bool) -> bool:
        """Return a boolean, given as ``true`` or ``false``."""
        return self.get(name, _boolean, default, "true or false")

    def texts(self, name: str) -> list[str] | None:
        """Return a list of strings, given with commas or as a JSON list."""
        return self.get(name, _texts, None, 'values separated by commas, or a list ["a", "b"]')


def _boolean(text: str) -> bool:
    folded = text.strip().casefold()
    if folded not in {"true", "false"}:
        raise ValueError
    return folded == "true"


def _texts(text: str) -> list[str] | None:
    if not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    found = json.loads(text)
    if not isinstance(found, list) or not all(isinstance(part, str) for part in found):
        raise ValueError
    return found
