"""What wakes a thread that has nothing to do."""

from __future__ import annotations

import queue
from contextlib import suppress
from typing import Final

#: Longest sleep in seconds, see Bell.wait.
_NAP: Final = 0.5


class Bell:
    """Wakes one thread that waits, from any other; made of C calls that nothing can interrupt.

    A ``threading.Event`` is Python code with a lock inside: Ctrl-C at the wrong moment leaves it
    held for ever.
    """

    __slots__ = ("_rung",)

    def __init__(self) -> None:
        self._rung: queue.SimpleQueue[None] = queue.SimpleQueue()

    @property
    def has_rung(self) -> bool:
        """Whether it rang since it was last cleared or waited for."""
        return not self._rung.empty()

    def ring(self) -> None:
        """Wake the thread that waits, or that will next."""
        if self._rung.empty():
            self._rung.put(None)

    def clear(self) -> None:
        """Forget that it rang."""
        while not self._rung.empty():
            self._rung.get()

    def wait(self, timeout: float | None) -> None:
        """Wait until it rings, at most ``timeout`` seconds, and never longer than half a second.

        A signal that comes while a thread goes to sleep is only seen when it wakes: so it wakes.
        """
        with suppress(queue.Empty):
            self._rung.get(timeout=_NAP if timeout is None else min(timeout, _NAP))
