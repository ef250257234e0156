"""The thread that runs all enumerators of a process, with its timers and its pool.

Other threads send it actions through a ``SimpleQueue``, whose ``put`` is safe anywhere, even during
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
from typing import Final, TypeVar

_LOG: Final = logging.getLogger("headgate.source")

WorkT = TypeVar("WorkT")
Action = Callable[[], None]

#: Most threads for work that may block.
POOL: Final = 4
#: Longest wait in seconds; some platforms do not support longer timeouts of a lock.
_LONGEST: Final = 3600.0


class Scheduled:
    """An action that runs later, once or periodically; used by the coordinator's thread only."""

    __slots__ = ("action", "due", "is_cancelled", "period")

    def __init__(self, due: float, period: float | None, action: Action) -> None:
        self.due = due
        self.period = period
        self.action = action
        self.is_cancelled = False

    def cancel(self) -> None:
        """Cancel all further runs; may be called from any thread, and twice."""
        self.is_cancelled = True


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
        self._timers: list[tuple[float, int, Scheduled]] = []
        self._order = itertools.count()
        self._idlers: list[Action] = []
        self._closers: dict[object, Action] = {}
        self._outstanding = 0
        self._is_closed = False
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pool = _Pool(POOL)

    @property
    def is_closed(self) -> bool:
        """True once the thread was closed; it runs no further action then."""
        return self._is_closed

    @property
    def is_current(self) -> bool:
        """True if the caller runs on this thread."""
        return threading.current_thread() is self._thread

    def execute(self, action: Action) -> bool:
        """Run an action after all earlier ones; from any thread.

        Returns:
            False if the action was dropped because this thread is closed.
        """
        if self._is_closed:
            return False
        if self._thread is None:
            self._start()
        self._inbox.put(action)
        return True

    def schedule(self, delay: float, period: float | None, action: Action) -> Scheduled:
        """Run an action in ``delay`` seconds, then every ``period`` seconds; None to run it once.

        Runs that were missed while the thread was busy are skipped.

        Raises:
            ValueError: the period is not positive.
        """
        if period is not None and not period > 0:
            raise ValueError(f"period={period}: a period is a number of seconds greater than 0")
        timer = Scheduled(self._clock() + max(0.0, delay), period, action)
        self.execute(lambda: self._arm(timer))
        return timer

    def submit(
        self,
        work: Callable[[], WorkT],
        callback: Callable[[WorkT | None, BaseException | None], None],
    ) -> None:
        """Run ``work`` on the pool, then ``callback(result, error)`` on this thread.

        Both are dropped once the thread is closed.
        """
        if self.is_current:
            self._submit(work, callback)
        else:
            self.execute(lambda: self._submit(work, callback))

    def call_when_idle(self, action: Action) -> None:
        """Run an action once no action waits on this thread and no work runs on the pool.

        Timers that are not due do not count.
        """
        self.execute(lambda: self._idlers.append(action))

    def add_closer(self, key: object, action: Action) -> None:
        """Add an action to run when this thread ends; called on this thread."""
        self._closers[key] = action

    def remove_closer(self, key: object) -> None:
        """Remove a closer; called on this thread."""
        self._closers.pop(key, None)

    def close(self, timeout: float = 30.0) -> None:
        """Drop waiting actions, run the closers, end the thread and the pool; may be called twice.

        Args:
            timeout: seconds to wait for the threads; those that still run are logged and end by
                themselves. A call on this thread does not wait.
        """
        with self._starting:
            self._is_closed = True
            thread = self._thread
        self._inbox.put(None)
        self._pool.end()
        if self.is_current:
            return
        deadline = time.monotonic() + timeout
        if thread is not None:
            thread.join(timeout)
        waited = [*([thread] if thread else []), *self._pool.threads]
        for one in waited:
            one.join(max(0.0, deadline - time.monotonic()))
        if late := [one.name for one in waited if one.is_alive()]:
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
            if self._is_closed:
                break
            if action is not None:
                _run_logged(action)
                del action  # Its objects must not live until the next action.
            self._run_timers()
        for closer in list(self._closers.values()):
            _run_logged(closer)
        self._closers.clear()
        self._timers.clear()
        self._idlers.clear()
        # Actions refer to coordinators, which refer to this thread.
        while not self._inbox.empty():
            self._inbox.get_nowait()

    def _next(self) -> Action | None:
        """Wait for an action; return None when the first timer is due."""
        wait = min(_LONGEST, self._timers[0][0] - self._clock()) if self._timers else _LONGEST
        if self._idlers and not self._outstanding and self._inbox.empty() and wait > 0:
            return self._idlers.pop(0)
        try:
            return self._inbox.get(timeout=wait) if wait > 0 else self._inbox.get_nowait()
        except queue.Empty:
            return None

    def _run_timers(self) -> None:
        now = self._clock()
        while self._timers and self._timers[0][0] <= now and not self._is_closed:
            timer = heapq.heappop(self._timers)[2]
            if timer.is_cancelled:
                continue
            _run_logged(timer.action)
            if timer.period is not None:
                timer.due += (max(0.0, now - timer.due) // timer.period + 1) * timer.period
                self._arm(timer)

    def _arm(self, timer: Scheduled) -> None:
        if not timer.is_cancelled:
            heapq.heappush(self._timers, (timer.due, next(self._order), timer))

    def _submit(
        self,
        work: Callable[[], WorkT],
        callback: Callable[[WorkT | None, BaseException | None], None],
    ) -> None:
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

        self._pool.run(run)


class _Pool:
    """Daemon threads for work that may block; unlike an executor's, they do not delay an exit."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._work: queue.SimpleQueue[Action | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._is_ended = False
        self.threads: list[threading.Thread] = []

    def run(self, work: Action) -> None:
        """Run work on a thread of the pool; called by one thread."""
        if self._is_ended:
            return
        self._work.put(work)
        if not self._idle.acquire(blocking=False) and len(self.threads) < self._most:
            thread = threading.Thread(
                target=self._serve, name=f"headgate-call-async-{len(self.threads)}", daemon=True
            )
            self.threads.append(thread)
            thread.start()

    def end(self) -> None:
        """Drop waiting work; the threads end after their current work."""
        self._is_ended = True
        self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None and not self._is_ended:
            work()
            del work
            self._idle.release()
        self._work.put(None)  # Ends the next thread.


def _run_logged(action: Action) -> None:
    try:
        action()
    except BaseException:  # noqa: BLE001 - logged; other coordinators share this thread
        _LOG.exception("an action of the coordinator failed")
