"""The tokens of a rate, and how they are dealt: rules without clock or I/O. Decision: ADR 0060."""

from __future__ import annotations

import heapq
import math
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

#: A task that gets tokens, and the value for which.
Holder: TypeAlias = tuple[Hashable, str]
#: Seconds of the rate that may be saved up, and that holders may have without having said that they used them; a token at least.
SAVED: Final = 0.2
DEALT: Final = 0.5
#: Seconds after which nobody uses the tokens of a holder that is lost.
LEASE: Final = 1.0
#: A rate that was lowered regains so large a part of its limit in a second.
STEP: Final = 1 / 40
#: Seconds between two times at which a rate is lowered.
ADJUST: Final = 1.0
#: Most values with tokens of their own, and pools that further values share.
MOST: Final = 1 << 16
_SHARED: Final = 1 << 10
#: So much is missing of a token by the arithmetic of floats alone.
_TINY: Final = 1e-6


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The limits of a rate, in tokens a second.

    Attributes:
        highest: the rate, unless the service asks for less.
        lowest: the one that it is never below.
    """

    highest: float
    lowest: float

    @property
    def burst(self) -> float:
        """Most tokens that are used in a time, beyond the rate times the time."""
        return most_saved(self.highest) + most_dealt(self.highest)


def most_saved(rate: float) -> float:
    """Return the most tokens of a rate that wait for a holder."""
    return max(1.0, rate * SAVED)


def most_dealt(rate: float) -> int:
    """Return the most tokens that holders may have."""
    return max(1, math.ceil(rate * DEALT))


class TokenPool:
    """The tokens of one value. Times are in seconds, of any clock.

    A token that was dealt is out until its holder says that it was used, or gives it back. Only so many are out, so the tokens that
    can be used in a time are those that were saved or out at its begin, and those that the rate has added.

    Args:
        limits: of the rate.
        now: the time.
        level: tokens to begin with.

    Attributes:
        rate: the present one. Answers that ask for less lower it by half of their share; it grows steadily.
    """

    __slots__ = (
        "_adjusted_at",
        "_at",
        "_level",
        "_limits",
        "_lost",
        "_out",
        "_slowed",
        "_total",
        "_used",
        "_wanted",
        "rate",
    )

    def __init__(self, limits: RateLimits, now: float, level: float) -> None:
        self.rate = limits.highest
        self._limits = limits
        self._level, self._at, self._adjusted_at = level, now, now
        #: Tokens that were used since then, and answers that asked for less.
        self._used = self._slowed = 0
        #: Tokens out by holder, and of all; those of lost holders with the time until which they may be used.
        self._out: dict[Holder, int] = {}
        self._total = 0
        self._lost: deque[tuple[float, int]] = deque()
        #: Tokens that holders want to have out, the holder that is next first.
        self._wanted: OrderedDict[Holder, int] = OrderedDict()

    def report(
        self, holder: Holder, now: float, *, wanted: int, used: int, returned: int, slowed: int
    ) -> None:
        """Take the report of a holder.

        Args:
            holder: see there.
            now: the time.
            wanted: how many tokens it could use soon, those that it has included.
            used: how many it has used since its last report.
            returned: how many it will not use.
            slowed: answers since then that asked for a lower rate.
        """
        self._advance(now)
        out = self._out.get(holder, 0)
        # No holder gives back more than it has.
        used_now = min(used, out)
        back = min(returned, out - used_now)
        self._set_out(holder, out - used_now - back)
        self._level = min(most_saved(self.rate), self._level + back)
        self._used += used
        self._slowed += slowed
        if wanted:
            self._wanted[holder] = wanted
        else:
            self._wanted.pop(holder, None)

    def _set_out(self, holder: Holder, number: int) -> None:
        self._total += number - self._out.get(holder, 0)
        if number:
            self._out[holder] = number
        else:
            self._out.pop(holder, None)

    def forget(self, is_lost: Callable[[Holder], bool], now: float) -> None:
        """Forget holders that are lost: what they have may be used for a while, and counts as used afterwards."""
        self._advance(now)
        for holder in [holder for holder in self._out if is_lost(holder)]:
            number = self._out.pop(holder)
            self._lost.append((now + LEASE, number))
        for holder in [holder for holder in self._wanted if is_lost(holder)]:
            del self._wanted[holder]

    def _advance(self, now: float) -> None:
        elapsed = max(0.0, now - self._at)
        self._at = max(now, self._at)
        limits = self._limits
        self.rate = min(limits.highest, self.rate + limits.highest * STEP * elapsed)
        if self._at - self._adjusted_at >= ADJUST:
            if self._slowed:
                share = min(1.0, self._slowed / max(1, self._used))
                self.rate = max(limits.lowest, self.rate * (1 - share / 2))
            self._adjusted_at, self._used, self._slowed = self._at, 0, 0
        self._level = min(most_saved(self.rate), self._level + self.rate * elapsed)
        while self._lost and self._lost[0][0] <= self._at:
            self._total -= self._lost.popleft()[1]

    def deal(self, now: float) -> dict[Holder, int]:
        """Return the tokens that holders get now: shares as equal as their wishes are, the last one first the next time."""
        self._advance(now)
        room = most_dealt(self.rate) - self._total
        number = rest = max(0, min(int(self._level + _TINY), room))
        missing = self._missing()
        dealt: dict[Holder, int] = {}
        while rest and missing:
            share = max(1, rest // len(missing))
            for holder in list(missing):
                part = min(share, missing[holder], rest)
                if part == 0:
                    break
                rest -= part
                missing[holder] -= part
                dealt[holder] = dealt.get(holder, 0) + part
                self._wanted.move_to_end(holder)
                if not missing[holder]:
                    del missing[holder]
        for holder, part in dealt.items():
            self._set_out(holder, self._out.get(holder, 0) + part)
        self._level -= number - rest
        return dealt

    def _missing(self) -> dict[Holder, int]:
        """Return how many more tokens holders want, in their turn."""
        missing = {holder: n - self._out.get(holder, 0) for holder, n in self._wanted.items()}
        return {holder: number for holder, number in missing.items() if number > 0}

    def due(self) -> float | None:
        """Return the time at which there is something to deal, or nothing to remember; None if only a report changes that."""
        at = self._at
        if self._missing():
            if self._total < most_dealt(self.rate):
                return at + max(0.0, 1 - self._level) / self.rate
            return self._lost[0][0] if self._lost else None
        if self._lost:
            return self._lost[0][0]
        if self._total or self._wanted:
            return None
        full = (most_saved(self.rate) - self._level) / self.rate
        # Its level may grow with the rate.
        regained = (self._limits.highest - self.rate) / (self._limits.highest * STEP)
        return max(at + full, at + regained, self._adjusted_at + ADJUST if self._slowed else at)

    def is_at_rest(self) -> bool:
        """Return True if a new pool would do no more."""
        limits = self._limits
        return (
            not (self._total or self._wanted or self._lost or self._slowed)
            and self.rate >= limits.highest
            and self._level >= most_saved(limits.highest) - _TINY
        )


class Tokens:
    """Deals the tokens of a rate: each value has its own.

    Values with all tokens that can be saved up are forgotten, and begin with one token. While there are too many others, further
    values share pools, by their hash: they get fewer tokens then, never more.

    Args:
        limits: of each value.
    """

    def __init__(self, limits: RateLimits) -> None:
        self.limits = limits
        self._pools: dict[str, TokenPool] = {}
        #: Values of pools whose rate is lowered.
        self._lowered: set[str] = set()
        #: The time at which each pool is looked at; entries of a pool but the one in `_times` count no more.
        self._queue: list[tuple[float, str]] = []
        self._times: dict[str, float] = {}
        #: Time at which the values that are not known were without tokens.
        self._empty_at = -math.inf

    def begin_empty(self, now: float) -> None:
        """Begin without tokens: others may have used them just before.

        Args:
            now: the time.
        """
        self._empty_at = now

    @property
    def lowest_rate(self) -> float:
        """The lowest present rate of a value."""
        rates = (self._pools[value].rate for value in self._lowered)
        return min(rates, default=self.limits.highest)

    @property
    def num_pools(self) -> int:
        """Number of values that are not forgotten."""
        return len(self._pools)

    def report(
        self,
        holder: Holder,
        now: float,
        *,
        wanted: int,
        used: int,
        returned: int,
        slowed: int,
    ) -> None:
        """Take the report of a holder; see :meth:`TokenPool.report`."""
        value = self._value(holder[1])
        pool = self._pools.get(value)
        if pool is None:
            level = min(1.0, self.limits.highest * max(0.0, now - self._empty_at))
            pool = self._pools[value] = TokenPool(self.limits, now, level)
        pool.report(holder, now, wanted=wanted, used=used, returned=returned, slowed=slowed)
        self._look(value, now)

    def _value(self, value: str) -> str:
        if value in self._pools:
            return value
        # No value has such a name: those of columns are JSON.
        shared = f"#{zlib.crc32(value.encode()) % _SHARED}"
        return shared if shared in self._pools or len(self._pools) >= MOST else value

    def _look(self, value: str, at: float | None) -> None:
        """Look at a pool at a time, and not at that of before."""
        if at is None:
            self._times.pop(value, None)
        elif self._times.get(value) != at:
            self._times[value] = at
            heapq.heappush(self._queue, (at, value))
            if len(self._queue) > 2 * len(self._times) + _SHARED:
                # A slow rate has entries that count no more for an hour.
                self._queue = [(at, value) for value, at in self._times.items()]
                heapq.heapify(self._queue)

    def forget(self, is_lost: Callable[[Holder], bool], now: float) -> None:
        """Forget holders that are lost; see :meth:`TokenPool.forget`."""
        for value, pool in self._pools.items():
            pool.forget(is_lost, now)
            self._look(value, now)

    def deal(self, now: float) -> Mapping[Holder, int]:
        """Return the tokens that holders get now."""
        dealt: dict[Holder, int] = {}
        for value in self._due(now):
            pool = self._pools[value]
            dealt |= pool.deal(now)
            if pool.rate < self.limits.highest:
                self._lowered.add(value)
            else:
                self._lowered.discard(value)
            if pool.is_at_rest():
                del self._pools[value]
                self._look(value, None)
            else:
                due = pool.due()
                self._look(value, due if due is None else max(due, math.nextafter(now, math.inf)))
        return dealt

    def _due(self, now: float) -> Iterable[str]:
        while self._queue and self._queue[0][0] <= now:
            at, value = heapq.heappop(self._queue)
            if self._times.get(value) == at:
                del self._times[value]
                yield value

    def due(self) -> float | None:
        """Return the time at which :meth:`deal` has something to do; None if only a report changes that."""
        while self._queue and self._times.get(self._queue[0][1]) != self._queue[0][0]:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else None
