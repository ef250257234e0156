"""Random numbers of many events at once: what an event draws depends on its number alone.

The generator is xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021), seeded by
PCG32. Numbers below a bound come by a multiplication and rejections, with the limits of the crate ``rand`` 0.8. So events
equal those of the crate ``nexmark`` 0.2.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.uint64]
#: Positions of the events that draw; all of them by default.
Rows: TypeAlias = NDArray[np.intp] | slice
#: From what some of the events drew: their numbers, and which of them have to draw again.
Product: TypeAlias = Callable[[Numbers, Rows], tuple[Numbers, NDArray[np.bool_]]]

ALL: Final = slice(None)
_LOW: Final = np.uint64(2**32 - 1)
_HALF: Final = np.uint64(32)
#: The upper halves of numbers of 64 bits, as they lie in memory.
_UPPER: Final = slice(1, None, 2) if sys.byteorder == "little" else slice(0, None, 2)
_LETTERS: Final = 26
#: A product with 26 whose lower half is above this would favour a few letters.
_LETTER_ZONE: Final = 2**32 - 1 - 2**32 % _LETTERS


class Randoms:
    """One sequence of random numbers for each event of a batch.

    Args:
        seeds: the numbers of the events.
    """

    def __init__(self, seeds: NDArray[np.int64]) -> None:
        state = seeds.astype(np.uint64)
        halves = []
        for _ in range(8):
            state = state * np.uint64(6364136223846793005) + np.uint64(11634580027462260723)
            mixed = (((state >> np.uint64(18)) ^ state) >> np.uint64(27)) & _LOW
            turn = state >> np.uint64(59)
            halves.append((mixed >> turn | mixed << (_HALF - turn)) & _LOW)
        self._states = [
            low | high << _HALF for low, high in zip(halves[::2], halves[1::2], strict=True)
        ]
        self._scratch = np.empty((2, len(seeds)), np.uint64)

    def below(self, bound: int | Numbers, rows: Rows = ALL) -> NDArray[np.int64]:
        """Return a number from 0 up to and excluding a bound, by a draw of 64 bits.

        Args:
            bound: one below 2**32, or one for each row.
            rows: the events that draw.
        """
        bounds = np.asarray(bound, np.uint64)
        zone = (
            bounds << (64 - np.frexp(bounds.astype(np.float64))[1]).astype(np.uint64)
        ) - np.uint64(1)

        def product(drawn: Numbers, chosen: Rows) -> tuple[Numbers, NDArray[np.bool_]]:
            factor, most = (bounds[chosen], zone[chosen]) if bounds.ndim else (bounds, zone)
            result = (drawn & _LOW) * factor
            result >>= _HALF
            result += (drawn >> _HALF) * factor
            result >>= _HALF
            return result, drawn * factor > most

        return self._accepted(product, rows)

    def below32(self, bound: int, rows: Rows = ALL) -> NDArray[np.int64]:
        """Return a number from 0 up to and excluding a bound, by a draw of 32 bits."""
        zone = (bound << 32 - bound.bit_length()) - 1
        return self._accepted(lambda drawn, _: _narrow(drawn, bound, zone), rows)

    def letters(self, count: int, rows: Rows = ALL) -> NDArray[np.uint8]:
        """Return lower-case letters: a row of the result for each place in the texts."""
        before = [part[rows].copy() for part in self._states]
        halves = np.empty((count, self._count(rows)), np.uint32)
        for place in halves:
            place[:] = self._draw(rows).view(np.uint32)[_UPPER]
        rejected = np.flatnonzero((halves * np.uint32(_LETTERS) > _LETTER_ZONE).any(axis=0))
        letters = (halves >> 16) * np.uint32(_LETTERS)
        letters += ((halves & 0xFFFF) * np.uint32(_LETTERS)) >> 16
        letters >>= 16
        if len(rejected):  # a letter of 200 million is drawn again, and all after it move
            again = rejected if isinstance(rows, slice) else rows[rejected]
            for part, old in zip(self._states, before, strict=True):
                part[again] = old[rejected]
            for place in letters:
                place[rejected] = self._accepted(
                    lambda drawn, _: _narrow(drawn, _LETTERS, _LETTER_ZONE), again
                )
        return letters.astype(np.uint8) + np.uint8(ord("a"))

    def fraction(self) -> NDArray[np.float32]:
        """Return a multiple of 2**-24 from 0 up to and excluding 1."""
        return (self._draw(ALL) >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)

    def _count(self, rows: Rows) -> int:
        return len(self._states[0]) if isinstance(rows, slice) else len(rows)

    def _accepted(self, product: Product, rows: Rows) -> NDArray[np.int64]:
        """Draw until no event's draw is rejected."""
        result, rejected = product(self._draw(rows), ALL)
        again = np.flatnonzero(rejected)
        while len(again):
            drawn = self._draw(again if isinstance(rows, slice) else rows[again])
            result[again], rejected = product(drawn, again)
            again = again[rejected]
        numbers: NDArray[np.int64] = result.view(np.int64)
        return numbers

    def _draw(self, rows: Rows) -> Numbers:
        """Return the next 64 bits of each event, valid until the next call."""
        if isinstance(rows, slice):
            return _step(self._states, self._scratch)
        chosen = [part[rows] for part in self._states]
        drawn = _step(chosen, self._scratch[:, : len(rows)])
        for part, changed in zip(self._states, chosen, strict=True):
            part[rows] = changed
        return drawn


def _narrow(drawn: Numbers, bound: int, zone: int) -> tuple[Numbers, NDArray[np.bool_]]:
    result = (drawn >> _HALF) * np.uint64(bound)
    return result >> _HALF, (result & _LOW) > np.uint64(zone)


def _step(states: list[Numbers], scratch: NDArray[np.uint64]) -> Numbers:
    """Advance the states in place, and return what they give."""
    first, second, third, fourth = states
    drawn: Numbers = scratch[0]
    other: Numbers = scratch[1]
    np.add(first, fourth, out=drawn)
    np.right_shift(drawn, np.uint64(41), out=other)
    drawn <<= np.uint64(23)
    drawn |= other
    drawn += first
    np.left_shift(second, np.uint64(17), out=other)
    third ^= first
    fourth ^= second
    second ^= third
    first ^= fourth
    third ^= other
    np.right_shift(fourth, np.uint64(19), out=other)
    fourth <<= np.uint64(45)
    fourth |= other
    return drawn
