"""Panes: the slices of time of which fixed windows are put together, so that a row is added once.

The idea is that of Li, Maier, Tufte, Papadimos and Tucker, "No pane, no gain: efficient evaluation of sliding-window
aggregates over data streams" (2005). Decision: ADR 0056.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headgate import _native
from headgate.stream.state.memory import ALL_IN_MEMORY, StateMemory
from headgate.stream.state.table import Slots, distinct, ranges
from headgate.stream.state.timers import NO_WATERMARK
from headgate.stream.state.zeros import normalized
from headgate.stream.windows.kinds import SlidingWindow, TumblingWindow, millis

if TYPE_CHECKING:
    from headgate.stream.state.table import Mask

#: A time after all others.
_NEVER: Final = -NO_WATERMARK
#: Codes for which a table of all is small, however few there are.
_FEW_CODES: Final = 1 << 12


class PaneTimes:
    """The times of the panes and windows of one kind, in milliseconds.

    Attributes:
        size: of a window.
        length: of a pane.
    """

    def __init__(self, window: TumblingWindow | SlidingWindow) -> None:
        self.size = millis(window.size)
        self._slide = millis(window.slide) if isinstance(window, SlidingWindow) else self.size
        self._offset = millis(window.offset)
        self.length = math.gcd(self.size, self._slide)

    def starts(self, times: Slots) -> Slots:
        """Return the starts of the panes of times."""
        return times - (times - self._offset) % self.length

    def last_ends(self, times: Slots) -> Slots:
        """Return the end of the last window with each time."""
        return times - (times - self._offset) % self._slide + self.size

    def first_ends(self, starts: Slots) -> Slots:
        """Return the end of the first window with each pane."""
        last = self.last_ends(starts)
        return last - (last - 1 - starts) // self._slide * self._slide

    def ends_after(self, times: Slots) -> Slots:
        """Return the first end of a window that is not before each time, whatever panes there are."""
        return times + (self._offset + self.size - times) % self._slide

    def ends_from_to(self, first: Slots, last: Slots) -> tuple[Slots, Slots]:
        """Return the ends of windows from one end to another for each pair, and the position of the pair of each."""
        counts = np.maximum(0, (last - first) // self._slide + 1)
        pairs = np.repeat(np.arange(len(first)), counts)
        return first[pairs] + self._slide * ranges(np.zeros(len(first), np.int64), counts), pairs

    def due(self, starts: Slots, after: int, until: int) -> Slots:
        """Return the ends of windows that the watermark passes on its way, in order, each once.

        Args:
            starts: of panes that have rows, in order.
            after: the watermark before.
            until: the watermark now.
        """
        starts = starts[np.diff(starts, prepend=NO_WATERMARK) > 0]
        last = self.last_ends(starts)
        first = np.maximum(self.first_ends(starts), self._next(after))
        # The windows of the pane before have had their turn.
        first[1:] = np.maximum(first[1:], last[:-1] + self._slide)
        return self.ends_from_to(first, np.minimum(last, min(until, _NEVER) + 1))[0]

    def wakes(self, starts: Slots, watermark: int, lateness: int) -> int:
        """Return the watermark at which the next window of panes closes, or the next pane is over."""
        if not len(starts):
            return _NEVER
        last = self.last_ends(starts)
        following = np.maximum(self.first_ends(starts), self._next(watermark))
        return int(np.where(following <= last, following - 1, last - 1 + lateness).min())

    def _next(self, watermark: int) -> int:
        """Return the end of the first window that a watermark leaves open."""
        at = max(min(watermark, _NEVER), NO_WATERMARK) + 2
        return at + (self._offset + self.size - at) % self._slide


class OpenPanes:
    """The panes that have state, by their starts, with the number of each one's key.

    Args:
        key_schema: the key columns.
        memory: of the state of the panes.
    """

    def __init__(self, key_schema: pa.Schema, memory: StateMemory = ALL_IN_MEMORY) -> None:
        self._memory = memory
        self._index = _native.KeyIndex(key_schema, memory.native)
        self._numbers: Slots = np.zeros(0, np.int64)
        #: Panes of each key, by its number.
        self._counts: Slots = np.zeros(0, np.int64)
        #: Slots of panes by their starts.
        self._queue = _native.TimeQueue(memory.native)

    def add(self, slots: Slots, starts: Slots, keys: pa.RecordBatch) -> None:
        """Add panes that are not there.

        Args:
            slots: of their state.
            starts: of the panes.
            keys: their keys.
        """
        rows, of_keys, _, _ = self._index.resolve(normalized(keys).columns)
        numbers = of_keys.to_numpy()[rows.to_numpy()]
        self._counts = self._reaching(self._counts, numbers)
        np.add.at(self._counts, numbers, 1)
        self._numbers = self._reaching(self._numbers, slots)
        self._numbers[slots] = numbers
        self._queue.push(starts, slots)

    @property
    def most_keys(self) -> int:
        """A number above those of all keys."""
        return len(self._counts)

    def numbers(self, slots: Slots) -> Slots:
        """Return the numbers of the keys of panes."""
        return self._numbers[slots]

    def until(self, time: int) -> tuple[Slots, Slots]:
        """Return the starts and the slots of the panes that start up to and including a time, in order of the starts."""
        starts, slots = (numbers.to_numpy() for numbers in self._queue.until(time))
        return starts, slots

    def first_after(self, time: int) -> Slots:
        """Return the first start after a time; none if there is no pane."""
        first = self._queue.first_after(time)
        return np.array([] if first is None else [first], np.int64)

    def remove(self, starts: Slots, slots: Slots) -> None:
        """Remove panes, which are all that start up to the last of their starts."""
        if not len(starts):
            return
        self._queue.pop(int(starts[-1]))
        numbers = self._numbers[slots]
        np.subtract.at(self._counts, numbers, 1)
        numbers = distinct(numbers)
        self._index.remove(pa.array(numbers[self._counts[numbers] == 0]))

    def _reaching(self, values: Slots, numbers: Slots) -> Slots:
        """Return an array with a place for each number."""
        needed = int(numbers.max(initial=-1)) + 1
        return values if needed <= len(values) else self._memory.wider(values, 2 * needed)


def grouped(codes: Slots, limit: int) -> tuple[Slots, Slots]:
    """Return the distinct codes in order, and the position of each code among them.

    Args:
        codes: not negative.
        limit: above all of them.
    """
    if limit > 8 * len(codes) + _FEW_CODES:
        present, places = np.unique(codes, return_inverse=True)
        return present, places
    is_there: Mask = np.zeros(limit, np.bool_)
    is_there[codes] = True
    return np.flatnonzero(is_there), (np.cumsum(is_there) - 1)[codes]


def cuts(sizes: Slots, most: int) -> Iterator[slice]:
    """Yield slices that follow each other, of which each has at most so much in all, or one member."""
    ends, first = np.cumsum(sizes), 0
    while first < len(ends):
        before = ends[first - 1] if first else 0
        stop = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield slice(first, stop)
        first = stop
