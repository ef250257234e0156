"""Clocks of a task in a worker: the states of its thread, in Flink's terms."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

#: Waits for its input. Idle.
INPUT: Final = 0
#: Runs the user's function. Busy.
FUNCTION: Final = 1
#: Writes rows into pages. Busy, except for the time in which it waits for segments.
EMIT: Final = 2
#: Waits for the receiver of its output. Back-pressured.
BLOCKED: Final = 3

_MS: Final = 1_000_000


class Clock:
    """Adds up the time of one thread by state; the states' sum is the time since its start.

    One thread calls :meth:`enter`, any thread reads. A read between two assignments is off by one
    short state at most, and the next one is right again.

    Args:
        now: a clock in ns.
    """

    __slots__ = ("_now", "_since", "_spent", "_state", "blocked_ns")

    def __init__(self, now: Callable[[], int] = time.perf_counter_ns) -> None:
        self._now = now
        self._state = INPUT
        self._spent = [0, 0, 0, 0]
        self._since = now()
        #: Returns the ns of EMIT that were waits for segments.
        self.blocked_ns: Callable[[], int] = lambda: 0

    def enter(self, state: int) -> None:
        """Let the time from now on count for ``state``."""
        now = self._now()
        self._spent[self._state] += now - self._since
        self._since = now
        self._state = state

    def fields(self) -> dict[str, int]:
        """Return the whole ms of each state, as a PROGRESS message names them."""
        spent = list(self._spent)
        spent[self._state] += max(0, self._now() - self._since)
        blocked = min(self.blocked_ns(), spent[EMIT])
        return {
            "input_ms": spent[INPUT] // _MS,
            "function_ms": spent[FUNCTION] // _MS,
            "emit_ms": (spent[EMIT] - blocked) // _MS,
            "blocked_ms": (spent[BLOCKED] + blocked) // _MS,
        }


def yielded(batches: Iterator[pa.RecordBatch], clock: Clock) -> Iterator[pa.RecordBatch]:
    """Yield the batches; the time until the next one is asked for counts as back-pressured."""
    for batch in batches:
        clock.enter(BLOCKED)
        yield batch
        clock.enter(FUNCTION)
    clock.enter(INPUT)  # other threads of the task may go on
