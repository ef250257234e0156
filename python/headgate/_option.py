"""One option: a row of the table in :mod:`headgate._option_table`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

CONF_PREFIX: Final = "spark.headgate."
ENV_PREFIX: Final = "HEADGATE_"

Scope = Literal["environment", "exchange"]
Kind = Literal[
    "address",
    "bool",
    "choice",
    "directories",
    "duration",
    "int",
    "path",
    "schema",
    "size",
    "timeout",
]


#: The values of the kinds that have no minimum and maximum.
_IN_WORDS: Final[dict[Kind, str]] = {
    "address": '"HOST:PORT", port 0 for any free one',
    "bool": "true or false",
    "directories": "a path, several with commas between them, or a list of paths",
    "path": "a path",
    "schema": "a DDL string, a StructType or a pyarrow.Schema",
}


def conf_of(name: str) -> str:
    """Return the key of an option in a Spark session's conf."""
    first, *others = name.split("_")
    return CONF_PREFIX + first + "".join(part.capitalize() for part in others)


def variable_of(name: str) -> str:
    """Return the environment variable of an option."""
    return ENV_PREFIX + name.upper()


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table.

    Attributes:
        name: name of the keyword argument.
        kind: notation of a value. Sizes are parsed to bytes (int), durations and timeouts to
            seconds (float).
        default: default in a user's notation; None if ``doc`` says how the value is found.
        scopes: the calls that take the option.
        doc: one or two sentences for the reference page.
        minimum: smallest value in a user's notation.
        maximum: largest value in a user's notation.
        choices: the values of a choice.
        former: values that it took once -> what to do instead.
        since: the first version that has the option.
        call_only: True if a conf or an environment variable cannot hold the value.
    """

    name: str
    kind: Kind
    default: str | int | None
    scopes: tuple[Scope, ...]
    doc: str
    minimum: str | int | None = None
    maximum: str | int | None = None
    choices: tuple[str, ...] = ()
    former: Mapping[str, str] = field(default_factory=dict)
    since: str = "0.1"
    call_only: bool = False

    @property
    def conf(self) -> str:
        """The key in a Spark session's conf."""
        return conf_of(self.name)

    @property
    def variable(self) -> str:
        """The environment variable."""
        return variable_of(self.name)

    @property
    def limits(self) -> str:
        """The values that the option takes, for people to read."""
        if self.choices:
            return " or ".join(f'"{choice}"' for choice in self.choices)
        if self.kind in _IN_WORDS:
            return _IN_WORDS[self.kind]
        if self.kind == "timeout":
            return f"-1, 0, or 1ms to {self.maximum}"
        if self.maximum is None:
            return f"at least {self.minimum}"
        return f"{self.minimum} to {self.maximum}"
