"""The wake-up of a waiting thread."""

from __future__ import annotations

import queue
from contextlib import suppress
from typing import Final

#: Longest sleep in seconds; see :meth:`Bell.wait`.
_NAP: Final = 0.5


class Bell:
    """Wakes one waiting thread from any other thread, with calls that no signal can interrupt.

    A ``threading.Event`` is Python code that holds a lock: Ctrl-C at the wrong moment leaves the
    lock held for ever. A ``SimpleQueue`` is implemented in C.
    """

    __slots__ = ("_rung",)

    def __init__(self) -> None:
        self._rung: queue.SimpleQueue[None] = queue.SimpleQueue()

    @property
    def has_rung(self) -> bool:
        """True if it rang since the last clear or wait."""
        return not self._rung.empty()

    def ring(self) -> None:
        """Wake the waiting thread, or end its next wait at once."""
        if self._rung.empty():
            self._rung.put(None)

    def clear(self) -> None:
        """Reset the bell."""
        while not self._rung.empty():
            self._rung.get()

    def wait(self, timeout: float | None) -> None:
        """Wait until it rings, at most ``timeout`` seconds, and never longer than half a second.

        Python handles a signal such as Ctrl-C only when the thread wakes, so it wakes regularly.
        """
        with suppress(queue.Empty):
            self._rung.get(timeout=_NAP if timeout is None else min(timeout, _NAP))
