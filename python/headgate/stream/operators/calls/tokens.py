"""The tokens of a task, and the calls that wait for them: rules without clock or I/O. Decision: ADR 0060."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, Generic, TypeVar

from headgate.stream.graph.call_rates import PERIOD, TokenGrant, TokenReport

#: A call that waits.
CallT = TypeVar("CallT")
#: Seconds after which tokens that are not used are given back.
EXPIRY: Final = 2.5 * PERIOD


class _Value(Generic[CallT]):
    """The calls of a value that wait, and its tokens.

    Attributes:
        first: calls that wait and have a place already, in their turn; they go first.
        others: calls that wait for a place, too.
        held: tokens that may be used, each at its time.
        since: time from which they may be used, over a period.
        size: number of tokens at that time.
        used, returned, slowed: see :class:`TokenPool`; since the last report.
        wanted: tokens that the last report asked for.
    """

    __slots__ = (
        "first",
        "held",
        "others",
        "returned",
        "since",
        "size",
        "slowed",
        "used",
        "wanted",
    )

    def __init__(self) -> None:
        self.first: deque[CallT] = deque()
        self.others: deque[CallT] = deque()
        self.held = self.size = self.used = self.returned = self.slowed = 0
        self.wanted = 0
        self.since = 0.0

    @property
    def num_waiting(self) -> int:
        return len(self.first) + len(self.others)

    @property
    def next_at(self) -> float:
        """Time at which the next token may be used."""
        return self.since + PERIOD * (self.size - self.held) / self.size if self.held else math.inf

    @property
    def is_gone(self) -> bool:
        """True if there is nothing to remember."""
        return not (
            self.first
            or self.others
            or self.held
            or self.used
            or self.returned
            or self.slowed
            or self.wanted
        )


class CallTokens(Generic[CallT]):
    """Lets the calls of a task begin as it gets tokens, and has no more of them under way than places.

    The tokens of one deal are spread over the time until the next, so that calls come evenly. Those that are not used until they
    expire are given back. Times are in seconds, of any clock.

    Args:
        places: most calls under way.
    """

    def __init__(self, places: int) -> None:
        self._values: dict[str, _Value[CallT]] = {}
        #: Values with tokens, and those of which there is something to report.
        self._held: dict[str, _Value[CallT]] = {}
        self._changed: dict[str, _Value[CallT]] = {}
        self._places = places
        self.num_waiting = 0

    def _value(self, name: str) -> _Value[CallT]:
        value = self._values.get(name)
        if value is None:
            value = self._values[name] = _Value()
        self._changed[name] = value
        return value

    def wait(self, name: str, call: CallT, *, has_place: bool) -> None:
        """Let a call wait.

        Args:
            name: its value.
            call: see there.
            has_place: True for a further attempt of a call that is under way.
        """
        value = self._value(name)
        (value.first if has_place else value.others).append(call)
        self.num_waiting += 1

    def leave(self) -> None:
        """Note that a call is no longer under way."""
        self._places += 1

    def take(self, tokens: Iterable[TokenGrant], now: float) -> None:
        """Take tokens of some values."""
        for name, number in tokens:
            value = self._value(name)
            value.held += number
            value.size, value.since = value.held, now
            self._held[name] = value

    def put_back(self, name: str) -> None:
        """Give back the token of a call that does not begin after all; the call keeps its place."""
        value = self._value(name)
        if value.used:  # else it is reported, and lost
            value.used -= 1
            value.returned += 1

    def slow_down(self, name: str) -> None:
        """Note an answer that asks for a lower rate."""
        self._value(name).slowed += 1

    def begin(self, now: float) -> Iterator[CallT]:
        """Yield the calls that begin now."""
        for name, value in list(self._held.items()):
            while value.held and value.next_at <= now:
                if value.first:
                    call = value.first.popleft()
                elif value.others and self._places:
                    self._places -= 1
                    call = value.others.popleft()
                else:
                    break
                value.held -= 1
                value.used += 1
                self.num_waiting -= 1
                self._changed[name] = value
                yield call
            if value.held and now >= value.since + EXPIRY:
                value.returned += value.held
                value.held = 0
                self._changed[name] = value
            if not value.held:
                del self._held[name]

    def due(self) -> float | None:
        """Return the time at which :meth:`begin` may have something to do; None if only an event changes that."""
        times = [
            value.next_at
            if value.first or (value.others and self._places)
            else value.since + EXPIRY
            for value in self._held.values()
        ]
        return min(times, default=None)

    @property
    def has_news(self) -> bool:
        """True if there may be something to report."""
        return bool(self._changed)

    def report(self) -> list[TokenReport]:
        """Return what is new of each value since the last call of this."""
        changed, self._changed = self._changed, {}
        reports: list[TokenReport] = []
        for name, value in changed.items():
            waiting = value.num_waiting
            # Calls of a quick service end and follow each other: more tokens are used than calls wait at any time.
            wanted = value.held + waiting + (2 * value.used if waiting else 0)
            if value.used or value.returned or value.slowed or wanted != value.wanted:
                reports.append((name, wanted, value.used, value.returned, value.slowed))
            value.used = value.returned = value.slowed = 0
            value.wanted = wanted
            if value.is_gone:
                del self._values[name]
        return reports
