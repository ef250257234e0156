"""The mailbox of a task's thread: actions of other threads, and what wakes the thread."""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable
from contextlib import suppress

Action = Callable[[], None]


class TaskMailbox:
    """Actions for one thread, in the order in which they were posted.

    The thread waits for mail and for a descriptor of its input together, so one wait serves both.
    """

    def __init__(self) -> None:
        self._actions: deque[Action] = deque()
        self._bell: int | None = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._bell, select.POLLIN)

    @property
    def has_mail(self) -> bool:
        """True if an action waits."""
        return bool(self._actions)

    def post(self, action: Action) -> None:
        """Post an action; from any thread."""
        self._actions.append(action)
        self.wake()

    def wake(self) -> None:
        """End the thread's next wait; from any thread, also after :meth:`close`."""
        bell = self._bell
        if bell is not None:
            with suppress(OSError):  # closed meanwhile, or full of wake-ups
                os.eventfd_write(bell, 1)

    def take(self) -> Action | None:
        """Return the next action, or None; called by the thread."""
        return self._actions.popleft() if self._actions else None

    def wait(self, timeout: float | None, descriptor: int | None = None) -> None:
        """Wait for mail, or until a descriptor can be read; called by the thread.

        Args:
            timeout: seconds; None for no limit.
            descriptor: of the input.
        """
        if self._bell is None or self._actions:
            return
        if descriptor is not None:
            self._poll.register(descriptor, select.POLLIN)
        try:
            # Rounded up: a wait that ends too early would only be repeated.
            self._poll.poll(None if timeout is None else int(timeout * 1000) + 1)
        finally:
            if descriptor is not None:
                self._poll.unregister(descriptor)
        with suppress(BlockingIOError):
            os.eventfd_read(self._bell)

    def close(self) -> None:
        """Drop all actions and close the descriptor."""
        self._actions.clear()
        bell, self._bell = self._bell, None
        if bell is not None:
            os.close(bell)
