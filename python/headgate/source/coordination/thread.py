"""The executor of enumerators, and a thread that is one.

Other threads send the thread actions through a ``SimpleQueue``, whose ``put`` is safe anywhere, even during
a garbage collection. All other state belongs to the thread alone.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

_LOG: Final = logging.getLogger("headgate.source")

WorkT = TypeVar("WorkT")
Action = Callable[[], None]

#: Most threads for work that may block.
POOL: Final = 4
#: Longest wait in seconds; some platforms do not support longer timeouts of a lock.
_LONGEST: Final = 3600.0


class Cancellable(Protocol):
    """An action that runs later."""

    def cancel(self) -> None:
        """Drop the action; may be called twice."""


class EnumeratorExecutor(Protocol):
    """Runs the callbacks of enumerators one at a time, on one thread, in the order of their calls."""

    @property
    def is_current(self) -> bool:
        """True if the caller runs on the executor's thread."""

    def execute(self, action: Action) -> bool:
        """Run an action after all earlier ones; from any thread. Return False if the executor is closed."""

    def call_later(self, delay: float, action: Action) -> Cancellable:
        """Run an action in ``delay`` seconds; called on the executor's thread."""

    def submit(
        self,
        work: Callable[[], WorkT],
        callback: Callable[[WorkT | None, BaseException | None], None],
    ) -> None:
        """Run ``work`` on another thread, then ``callback(result, error)`` here; called on the executor's thread."""


class _Timer:
    """An action that runs later."""

    __slots__ = ("action",)

    def __init__(self, action: Action) -> None:
        self.action: Action | None = action

    def cancel(self) -> None:
        """Drop the action."""
        self.action = None


class CoordinatorThread:
    """Runs actions one at a time in a daemon thread named ``headgate-enumerators``.

    The first action starts the thread. An exception that escapes an action is logged, because
    other coordinators share the thread.

    Args:
        clock: in seconds, for timers. A test that advances its own clock has to call
            :meth:`execute` afterwards.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._inbox: queue.SimpleQueue[Action | None] = queue.SimpleQueue()
        self._timers: list[tuple[float, int, _Timer]] = []
        self._order = itertools.count()
        self._idlers: list[Action] = []
        self._outstanding = 0
        self._is_closed = False
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._work: queue.SimpleQueue[Action | None] = queue.SimpleQueue()
        self._workers: list[threading.Thread] = []

    @property
    def is_current(self) -> bool:
        """True if the caller runs on this thread."""
        return threading.current_thread() is self._thread

    def execute(self, action: Action) -> bool:
        """Run an action after all earlier ones; from any thread. Return False if this thread is closed."""
        if self._is_closed:
            return False
        if self._thread is None:
            self._start()
        self._inbox.put(action)
        return True

    def call_later(self, delay: float, action: Action) -> Cancellable:
        """Run an action in ``delay`` seconds; called on this thread."""
        timer = _Timer(action)
        heapq.heappush(self._timers, (self._clock() + delay, next(self._order), timer))
        return timer

    def submit(
        self,
        work: Callable[[], WorkT],
        callback: Callable[[WorkT | None, BaseException | None], None],
    ) -> None:
        """Run ``work`` on one of at most four threads, then ``callback(result, error)`` here.

        The threads are daemons: unlike an executor's, they do not delay an exit. What waits once this thread is
        closed is dropped.
        """
        self._outstanding += 1

        def done(result: WorkT | None, error: BaseException | None) -> None:
            self._outstanding -= 1
            callback(result, error)

        def run() -> None:
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - passed to the callback
                failure = error
                self.execute(lambda: done(None, failure))
            else:
                self.execute(lambda: done(result, None))

        self._work.put(run)
        if len(self._workers) < min(POOL, self._outstanding):
            name = f"headgate-call-async-{len(self._workers)}"
            self._workers.append(threading.Thread(target=self._serve, name=name, daemon=True))
            self._workers[-1].start()

    def call_when_idle(self, action: Action) -> None:
        """Run an action once no action waits on this thread and no submitted work runs; from any thread.

        Timers that are not due do not count.
        """
        self.execute(lambda: self._idlers.append(action))

    def close(self, timeout: float = 30.0) -> None:
        """Drop waiting actions and end the threads; may be called twice.

        Args:
            timeout: seconds to wait for the threads; those that still run are logged and end by
                themselves. A call on this thread does not wait.
        """
        with self._starting:
            self._is_closed = True
            threads = [self._thread] if self._thread is not None else []
        self._inbox.put(None)
        for _ in range(POOL):
            self._work.put(None)
        if self.is_current:
            return
        deadline = time.monotonic() + timeout
        for thread in (waited := [*threads, *self._workers]):
            thread.join(max(0.0, deadline - time.monotonic()))
        if late := [thread.name for thread in waited if thread.is_alive()]:
            _LOG.warning("still running %g s after close: %s", timeout, ", ".join(late))

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(
                    target=self._run, name="headgate-enumerators", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        while not self._is_closed:
            action = self._next()
            if action is not None and not self._is_closed:
                _run_logged(action)
            del action  # Its objects must not live until the next action.
        # Actions refer to coordinators, which refer to this thread.
        self._timers.clear()
        self._idlers.clear()
        while not self._inbox.empty():
            self._inbox.get_nowait()

    def _serve(self) -> None:
        while (work := self._work.get()) is not None and not self._is_closed:
            work()
            del work  # Its objects must not live until the next one.

    def _next(self) -> Action | None:
        """Wait for an action, a timer that is due, or idleness."""
        while self._timers and self._timers[0][2].action is None:
            heapq.heappop(self._timers)
        wait = min(_LONGEST, self._timers[0][0] - self._clock()) if self._timers else _LONGEST
        if wait <= 0:
            return heapq.heappop(self._timers)[2].action
        if self._idlers and not self._outstanding and self._inbox.empty():
            return self._idlers.pop(0)
        try:
            return self._inbox.get(timeout=wait)
        except queue.Empty:
            return None


def _run_logged(action: Action) -> None:
    try:
        action()
    except BaseException:  # noqa: BLE001 - logged; other coordinators share this thread
        _LOG.exception("an action of the coordinator failed")
