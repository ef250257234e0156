"""Arguments of a source, read from string options."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from headgate._arguments import duration as duration  # noqa: PLC0414 - part of this module's API
from headgate._arguments import names as _names_of
from headgate._arguments import refuse as refuse  # noqa: PLC0414 - part of this module's API
from headgate._arguments import size as size  # noqa: PLC0414 - part of this module's API
from headgate._arguments import whole_number as whole_number  # noqa: PLC0414 - part of this module's API
from headgate._kinds import kind_of
from headgate._matches import close_matches
from headgate._values import parse_bool
from headgate.errors import OptionError

if TYPE_CHECKING:
    import pyarrow.compute as pc

T = TypeVar("T")


class Texts:
    """String options, read by name; as in Spark, the case of a name does not matter.

    Args:
        source: the source's name, for errors.
        options: the options as strings.
        names: the names of all options of the source, in lower camel case.

    Raises:
        OptionError: an option is not one of ``known``.
    """

    def __init__(self, source: str, options: Mapping[str, str], names: Sequence[str]) -> None:
        folded = {name.casefold(): name for name in names}
        self._texts: dict[str, str] = {}
        for name, text in options.items():
            if name.casefold() not in folded:
                near = close_matches(name, names)
                raise OptionError(
                    f"{name!r} is no option of {source}",
                    asked=name,
                    have=", ".join(names),
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
        return self.get(name, parse_bool, default, "true or false")

    def texts(self, name: str, *, may_be_empty: bool = False) -> list[str] | None:
        """Return a list of strings, given with commas or as a JSON list.

        Args:
            name: of the option.
            may_be_empty: True if nothing between two commas is an empty string; else it is left out.
        """
        texts = self.get(name, _texts, None, 'values separated by commas, or a list ["a", "b"]')
        is_json = self._texts.get(name, "").lstrip().startswith("[")
        return texts if texts is None or may_be_empty or is_json else [*filter(None, texts)]


def _texts(text: str) -> list[str] | None:
    if not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",")]
    texts = json.loads(text)
    if not isinstance(texts, list) or not all(isinstance(part, str) for part in texts):
        raise ValueError
    return texts


def arrow_expression(value: Any, argument: str = "filter") -> pc.Expression:
    """Return an argument that is an expression, or has some.

    Raises:
        OptionError: it is no expression of Arrow.
    """
    import pyarrow.compute as pc  # noqa: PLC0415 - slow, and only filters need it

    if not isinstance(value, pc.Expression):
        takes = 'an expression such as pyarrow.compute.field("n") > 5'
        raise refuse(argument, value, f"is {kind_of(value)}, not an Arrow expression", takes)
    return value


def distinct_names(columns: Sequence[str]) -> tuple[str, ...]:
    """Return an argument ``columns``.

    Raises:
        OptionError: it is none, or names a column twice.
    """
    names = _names_of("columns", columns)
    if len(set(names)) != len(names):
        raise refuse("columns", list(names), "names a column twice", "each column once")
    return names
