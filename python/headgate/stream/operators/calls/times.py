"""Times of the calls of a task by what they wait for, up to the moment at which somebody asks."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.stream.graph.metrics import Metrics

#: What calls wait for: an answer of the service, a token of the rate, the end of a pause, their next attempt.
#: And what the operator waits for: room, as results wait for others before them; room, as bytes are full; any room.
Wait: TypeAlias = Literal["service", "rate", "breaker", "retries", "order", "bytes", "full"]
_WAITS: Final[tuple[Wait, ...]] = (
    "service",
    "rate",
    "breaker",
    "retries",
    "order",
    "bytes",
    "full",
)


class CallTimes:
    """Adds up ms of calls by what they wait for, and the ms for which their event loop works.

    A number of calls that wait for so long counts as that time times the number, so that a difference over a second is the mean number.
    The figures are a tally ``call_ms``. Any thread may call all methods.

    Args:
        metrics: has the tally.
        clock: in seconds.
    """

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._tally = metrics.tally("call_ms")
        self._tally.refresh = self._refresh
        self._clock = clock
        self._changing = threading.Lock()
        self._numbers: dict[Wait, int] = dict.fromkeys(_WAITS, 0)
        self._since: dict[Wait, float] = dict.fromkeys(_WAITS, clock())
        self._seconds: dict[Wait, float] = dict.fromkeys(_WAITS, 0.0)
        #: Ms that the tally has.
        self._told: dict[str, int] = {}
        #: Clock of the processor time of the loop's thread.
        self._processor: int | None = None

    def note_loop(self) -> None:
        """Take this thread for that of the event loop; its processor time is not known everywhere."""
        with suppress(AttributeError, OSError):
            self._processor = time.pthread_getcpuclockid(threading.get_ident())

    def add(self, wait: Wait, number: int) -> None:
        """Note that further calls wait, or with a negative number fewer."""
        with self._changing:
            self._set(wait, self._numbers[wait] + number)

    def set(self, wait: Wait, number: int) -> None:
        """Note how many calls wait; 1 or 0 for the operator."""
        if number != self._numbers[wait]:
            with self._changing:
                self._set(wait, number)

    def note_room(self, is_full: bool, is_heavy: bool, has_results: bool) -> None:
        """Note if rows wait for room in the operator.

        Args:
            is_full: True if they do.
            is_heavy: True if the bytes of calls and results are full.
            has_results: True if results wait for others before them.
        """
        self.set("full", int(is_full))
        self.set("order", int(is_full and is_heavy and has_results))
        self.set("bytes", int(is_full and is_heavy and not has_results))

    def _set(self, wait: Wait, number: int) -> None:
        now = self._clock()
        self._seconds[wait] += self._numbers[wait] * (now - self._since[wait])
        self._since[wait], self._numbers[wait] = now, number

    def _refresh(self) -> None:
        with self._changing:
            for wait in _WAITS:
                self._set(wait, self._numbers[wait])
            seconds: dict[str, float] = dict(self._seconds.items())
            if self._processor is not None:
                with suppress(OSError):  # the thread has ended
                    seconds["loop"] = time.clock_gettime(self._processor)
            for wait_or_loop, number in seconds.items():
                before = self._told.get(wait_or_loop, 0)
                self._told[wait_or_loop] = now = max(before, int(1000 * number))
                self._tally.add(wait_or_loop, now - before)
