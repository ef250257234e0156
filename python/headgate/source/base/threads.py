"""Locks, parkers and threads for fetchers, behind one interface that a test can replace.

Code that may block is a generator. It yields a parker to wait for, or ``None`` at a point where
another thread may run, and never yields while it holds a lock. A thread runs the generator with
:func:`drive`; a simulator runs many of them in one thread, in an order of its choice.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, TypeVar


class Parker(Protocol):
    """Blocks one thread; a binary semaphore like Java's ``LockSupport``."""

    def park(self) -> None:
        """Wait for the permit and take it; may return spuriously."""

    def unpark(self) -> None:
        """Make the permit available; from any thread, before or after ``park``."""


R = TypeVar("R")

#: Blocking code: yields a parker to wait for or None, and returns an R.
Steps = Generator[Parker | None, None, R]


class _AtFetch:
    """Marks the step that calls ``fetch()``, which may block by itself; never waits."""

    def park(self) -> None:
        """Return at once."""

    def unpark(self) -> None:
        """Do nothing."""


AT_FETCH: Final[Parker] = _AtFetch()


def drive(steps: Steps[R]) -> R:
    """Run blocking code in the calling thread and return its result."""
    try:
        while True:
            wait = next(steps)
            if wait is not None:
                wait.park()
    except StopIteration as end:
        result: R = end.value
        return result


class ThreadParker:
    """A parker for a real thread: a lock that is unlocked while the permit is available."""

    __slots__ = ("_permit",)

    def __init__(self) -> None:
        self._permit = threading.Lock()
        self._permit.acquire()

    def park(self) -> None:
        """Wait for the permit and take it."""
        self._permit.acquire()

    def unpark(self) -> None:
        """Make the permit available."""
        try:
            self._permit.release()
        except RuntimeError:
            return  # The permit is available already.


class Worker(Protocol):
    """A running thread."""

    def join(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds; return True if the thread has ended."""


class _ThreadWorker:
    """A daemon thread that drives steps."""

    def __init__(self, steps: Steps[None], name: str) -> None:
        self._thread = threading.Thread(target=drive, args=(steps,), name=name, daemon=True)
        self._thread.start()

    def join(self, timeout: float) -> bool:
        self._thread.join(timeout)
        return not self._thread.is_alive()


class Threads:
    """Makes real locks, parkers and threads."""

    def lock(self) -> AbstractContextManager[Any]:
        """Return a mutex that is not re-entrant."""
        return threading.Lock()

    def parker(self) -> Parker:
        """Return a parker without a permit."""
        return ThreadParker()

    def start(self, steps: Steps[None], name: str) -> Worker:
        """Run steps in a new daemon thread, which does not delay the exit of the process."""
        return _ThreadWorker(steps, name)


THREADS: Final = Threads()
