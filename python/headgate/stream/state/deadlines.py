"""Numbers by time, taken out in order of time, many at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from headgate.stream.state.table import Slots


class Deadlines:
    """Runs of times and numbers, each in order of time. A run is longer than all behind it, so that few are searched."""

    def __init__(self) -> None:
        self._runs: list[tuple[Slots, Slots]] = []

    def push(self, times: Slots, numbers: Slots) -> None:
        """Add numbers, each with its time."""
        if not len(times):
            return
        self._runs.append(_in_order(times, numbers))
        while len(self._runs) > 1 and len(self._runs[-2][0]) <= 2 * len(self._runs[-1][0]):
            self._runs[-2:] = [_joined(self._runs[-2:])]

    def pop(self, until: int) -> tuple[Slots, Slots]:
        """Remove the numbers up to and including a time; return their times and the numbers, in order of time."""
        due, left = [(_NOTHING, _NOTHING)], []
        for times, numbers in self._runs:
            cut = int(np.searchsorted(times, until, side="right"))
            if cut:
                due.append((times[:cut], numbers[:cut]))
            if cut < len(times):
                left.append((times[cut:], numbers[cut:]))
        self._runs = left
        return due[-1] if len(due) == 2 else _joined(due)

    def clear(self) -> None:
        """Remove all."""
        self._runs = []

    def __len__(self) -> int:
        """Return the number of all that was pushed and not popped."""
        return sum(len(times) for times, _ in self._runs)


_NOTHING = np.zeros(0, np.int64)


def _joined(runs: list[tuple[Slots, Slots]]) -> tuple[Slots, Slots]:
    times, numbers = (np.concatenate(columns) for columns in zip(*runs, strict=True))
    return _in_order(times, numbers)


def _in_order(times: Slots, numbers: Slots) -> tuple[Slots, Slots]:
    if np.all(times[1:] >= times[:-1]):
        return times, numbers
    order = np.argsort(times, kind="stable")
    return times[order], numbers[order]
