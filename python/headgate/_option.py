"""What one option is: a row of the table in :mod:`headgate._options`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

CONF_PREFIX: Final = "spark.headgate."
ENV_PREFIX: Final = "HEADGATE_"

Scope = Literal["environment", "exchange"]
Kind = Literal[
    "address", "bool", "choice", "directories", "duration", "int", "schema", "size", "timeout"
]


#: What values of these kinds look like; others have limits.
_IN_WORDS: Final[dict[Kind, str]] = {
    "address": '"HOST:PORT", port 0 for any free one',
    "bool": "true or false",
    "directories": "a path, several with commas between them, or a list of paths",
    "schema": "a DDL string or a StructType",
}


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table.

    Attributes:
        name: the keyword argument.
        kind: how a value is written; sizes become bytes (int), durations and timeouts
            seconds (float).
        default: as a user would write it; None when something else decides, as ``doc`` says.
        scopes: the calls that take it.
        doc: one sentence or two, for the reference page.
        minimum: smallest value, as a user would write it.
        maximum: largest value, as a user would write it.
        choices: the values of a choice.
        since: the version that brought it.
        call_only: True where a conf or a variable could not hold the value.
    """

    name: str
    kind: Kind
    default: str | int | None
    scopes: tuple[Scope, ...]
    doc: str
    minimum: str | int | None = None
    maximum: str | int | None = None
    choices: tuple[str, ...] = ()
    since: str = "0.1"
    call_only: bool = False

    @property
    def conf(self) -> str:
        """The key in a Spark session's conf."""
        first, *others = self.name.split("_")
        return CONF_PREFIX + first + "".join(part.capitalize() for part in others)

    @property
    def variable(self) -> str:
        """The environment variable."""
        return ENV_PREFIX + self.name.upper()

    @property
    def limits(self) -> str:
        """The values it takes, in words."""
        if self.choices:
            return " or ".join(f'"{choice}"' for choice in self.choices)
        if self.kind in _IN_WORDS:
            return _IN_WORDS[self.kind]
        if self.kind == "timeout":
            return f"-1, 0, or 1ms to {self.maximum}"
        if self.maximum is None:
            return f"at least {self.minimum}"
        return f"{self.minimum} to {self.maximum}"
