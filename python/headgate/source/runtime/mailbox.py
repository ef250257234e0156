"""The mailbox of the thread that drives a reader: actions from other threads, and a signal."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from headgate.source.runtime.bell import Bell

Action = Callable[[], None]


class Mailbox:
    """Actions for one thread, and the signal that wakes it.

    The owner clears the signal *before* it takes actions, and others set it *after* they have
    posted one, so no action is missed.
    """

    def __init__(self) -> None:
        self._actions: deque[Action] = deque()
        self._bell = Bell()
        self._wake_up: Action | None = None
        self._is_closed = False

    @property
    def has_mail(self) -> bool:
        """True if an action waits."""
        return bool(self._actions)

    @property
    def is_signalled(self) -> bool:
        """True if the signal was set since the owner last cleared it."""
        return self._bell.has_rung

    def post(self, action: Action) -> None:
        """Post an action for the owner; from any thread."""
        self._actions.append(action)
        if self._is_closed:
            self._actions.clear()
        self.signal()

    def signal(self) -> None:
        """Wake the owner; from any thread."""
        if self._bell.has_rung:
            return
        self._bell.ring()
        if self._wake_up is not None:
            self._wake_up()

    def attach(self, wake_up: Action | None) -> None:
        """Call ``wake_up`` with every signal, and at once if the signal is set."""
        self._wake_up = wake_up
        if wake_up is not None and self._bell.has_rung:
            wake_up()

    def clear(self) -> None:
        """Clear the signal; called by the owner before it takes actions."""
        if self._bell.has_rung:
            self._bell.clear()

    def take(self) -> Action | None:
        """Return the next action, or None; called by the owner."""
        return self._actions.popleft() if self._actions else None

    def close(self) -> None:
        """Drop all actions, those to come too: they refer to the owner, as it does to its mailbox."""
        self._is_closed = True
        self._actions.clear()
        self.attach(None)

    def wait(self, timeout: float | None) -> None:
        """Wait for a signal; called by the owner.

        Returns after ``timeout`` or half a second at the latest, even without a signal.
        """
        self._bell.wait(timeout)
