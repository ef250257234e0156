"""How other threads reach the thread that drives a reader: what to do, and that there is something."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from headgate.source.runtime.bell import Bell

Action = Callable[[], None]


class Mailbox:
    """Actions for one thread, and the signal that wakes it.

    The owner clears the signal *before* it looks at what there is, and others set it *after* they
    have put something there: so nothing is ever missed.
    """

    def __init__(self) -> None:
        self._actions: deque[Action] = deque()
        self._bell = Bell()
        self._wake_up: Action | None = None

    @property
    def has_mail(self) -> bool:
        """Whether an action waits."""
        return bool(self._actions)

    @property
    def is_signalled(self) -> bool:
        """Whether something has happened since the owner last cleared the signal."""
        return self._bell.has_rung

    def post(self, action: Action) -> None:
        """Put an action for the owner; from any thread."""
        self._actions.append(action)
        self.signal()

    def signal(self) -> None:
        """Wake the owner; from any thread."""
        if self._bell.has_rung:
            return
        self._bell.ring()
        if self._wake_up is not None:
            self._wake_up()

    def attach(self, wake_up: Action | None) -> None:
        """Call this, too, with every signal; at once if there is one."""
        self._wake_up = wake_up
        if wake_up is not None and self._bell.has_rung:
            wake_up()

    def clear(self) -> None:
        """Forget the signal; owner only, before it looks."""
        if self._bell.has_rung:
            self._bell.clear()

    def take(self) -> Action | None:
        """Return the next action, or None; owner only."""
        return self._actions.popleft() if self._actions else None

    def wait(self, timeout: float | None) -> None:
        """Block until there is a signal, at most ``timeout`` seconds, or a moment; owner only."""
        self._bell.wait(timeout)
