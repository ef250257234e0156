"""The mailbox of one thread: actions from other threads, and the wake-up of the thread."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

Action = Callable[[], None]

#: Longest sleep of the main thread in seconds: Python handles signals, such as Ctrl-C, there, and when it wakes.
_NAP: Final = 0.5
#: Longest sleep of other threads in seconds: timers are due by the wall clock, which may be set.
_SLEEP: Final = 60.0


class Mailbox:
    """Actions for one thread, and the signal that wakes it, with calls that no signal of the system can interrupt.

    The owner clears the signal *before* it takes actions, and others set it *after* they have
    posted one, so no action is missed.
    """

    def __init__(self) -> None:
        self._actions: deque[Action] = deque()
        # A threading.Event is Python code that holds a lock: Ctrl-C at the wrong moment leaves the lock held for ever.
        self._signals: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._wake_ups: tuple[Action, ...] = ()
        self._is_closed = False

    def post(self, action: Action) -> None:
        """Post an action for the owner; from any thread."""
        self._actions.append(action)
        if self._is_closed:
            self._actions.clear()
        self.signal()

    def signal(self) -> None:
        """Wake the owner, or end its next wait at once; from any thread."""
        if not self._signals.empty():
            return
        self._signals.put(None)
        for wake_up in self._wake_ups:
            wake_up()

    def attach(self, wake_up: Action) -> None:
        """Call ``wake_up`` with every signal too, and at once if the signal is set."""
        self._wake_ups += (wake_up,)
        if not self._signals.empty():
            wake_up()

    def clear(self) -> None:
        """Clear the signal; called by the owner before it takes actions."""
        while not self._signals.empty():
            self._signals.get()

    def take(self) -> Action | None:
        """Return the next action, or None; called by the owner."""
        return self._actions.popleft() if self._actions else None

    def close(self) -> None:
        """Drop all actions, those to come too: they refer to the owner, as it does to its mailbox."""
        self._is_closed = True
        self._actions.clear()
        self._wake_ups = ()

    def wait(self, timeout: float | None) -> None:
        """Wait for a signal, at most ``timeout`` seconds; called by the owner. It may return earlier."""
        most = _NAP if threading.current_thread() is threading.main_thread() else _SLEEP
        with suppress(queue.Empty):
            self._signals.get(timeout=most if timeout is None else min(timeout, most))
