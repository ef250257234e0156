"""What fetchers need of threads, behind one interface, so that a test can be the scheduler.

Code that may block is a generator: it yields what it waits for, or ``None`` where another thread may
come in between, and never while it holds a lock. A thread runs it with :func:`drive`; a simulator
runs many of them in one thread, in any order that it likes.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, TypeVar


class Parker(Protocol):
    """Lets one thread wait; a binary semaphore, as Java's LockSupport has it."""

    def park(self) -> None:
        """Wait for a permit and take it; may return without need."""

    def unpark(self) -> None:
        """Leave a permit, at most one; from any thread, before or after ``park``."""


R = TypeVar("R")

#: What blocking code is: it yields what to wait for, ``None`` for nothing, and returns an R.
Steps = Generator[Parker | None, None, R]


class _AtFetch:
    """Not waited for: marks the step that calls ``fetch()``, which may block by itself."""

    def park(self) -> None:
        """Go on at once."""

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
    """A parker of a real thread: a lock that is free while there is a permit."""

    __slots__ = ("_permit",)

    def __init__(self) -> None:
        self._permit = threading.Lock()
        self._permit.acquire()

    def park(self) -> None:
        """Wait for a permit and take it."""
        self._permit.acquire()

    def unpark(self) -> None:
        """Leave a permit."""
        try:
            self._permit.release()
        except RuntimeError:
            return  # there is one already


class Worker(Protocol):
    """A running thread."""

    def join(self, timeout: float) -> bool:
        """Wait for its end, at most ``timeout`` seconds; return whether it has ended."""


class _ThreadWorker:
    """A daemon thread that drives steps."""

    def __init__(self, steps: Steps[None], name: str) -> None:
        self._thread = threading.Thread(target=drive, args=(steps,), name=name, daemon=True)
        self._thread.start()

    def join(self, timeout: float) -> bool:
        self._thread.join(timeout)
        return not self._thread.is_alive()


class Threads:
    """Makes locks, parkers and threads; this one makes real ones."""

    def lock(self) -> AbstractContextManager[Any]:
        """Return a mutex that is not re-entrant."""
        return threading.Lock()

    def parker(self) -> Parker:
        """Return a parker without a permit."""
        return ThreadParker()

    def start(self, steps: Steps[None], name: str) -> Worker:
        """Run steps in a new daemon thread: one that hangs for ever must not hold the process."""
        return _ThreadWorker(steps, name)


THREADS: Final = Threads()
