"""The rate of calls, as the graph of a job has it, and the way between the tasks of an operator and what deals its tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

#: Seconds between two deals of tokens, over which a task spreads those of one.
PERIOD: Final = 0.1

#: The report of a task about a value: the value, tokens wanted, used and given back, and answers that ask for a lower rate.
TokenReport: TypeAlias = tuple[str, int, int, int, int]
#: A value, and tokens for it.
TokenGrant: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class CallRate:
    """The rate of an operator's calls in all its tasks together, in calls a second.

    Attributes:
        highest: the rate, unless the service asks for less.
        lowest: the one that it is never below.
        column: each value of it has such a rate; None for one rate.
        name: operators of this driver with the same name share the rate; None for an operator of its own.
    """

    highest: float
    lowest: float
    column: str | None = None
    name: str | None = None


class TokenLink:
    """The way from an operator of a task to what deals its tokens, and back.

    Args:
        report: sends what the task says of some values; from any thread.
    """

    def __init__(self, report: Callable[[Sequence[TokenReport]], None]) -> None:
        self.report = report
        #: Takes tokens and the present rate, in any thread; the operator sets it.
        self.on_tokens: Callable[[Sequence[TokenGrant], float], None] = _nobody


def _nobody(_: Sequence[TokenGrant], __: float) -> None:
    """Drop tokens that come after the operator's end: they count as used."""
