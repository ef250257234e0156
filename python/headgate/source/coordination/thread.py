"""The one thread of control of all enumerators of a process, its timers and its pool.

What several threads say to it goes through a ``SimpleQueue``, whose ``put`` may be called anywhere,
in the middle of a garbage collection too; everything else belongs to the thread alone.
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

#: Most threads that run what may block.
POOL: Final = 4
#: Longest wait in seconds; a lock takes no longer ones everywhere.
_LONGEST: Final = 3600.0


class Scheduled:
    """An action that runs later, once or again and again; only its thread looks into it."""

    __slots__ = ("action", "due", "is_cancelled", "period")

    def __init__(self, due: float, period: float | None, action: Action) -> None:
        self.due = due
        self.period = period
        self.action = action
        self.is_cancelled = False

    def cancel(self) -> None:
        """Never run it again; may be called from any thread, twice too."""
        self.is_cancelled = True


class CoordinatorThread:
    """Runs actions one after the other in a thread named ``headgate-enumerators``.

    It is a daemon, started by the first action. An exception that escapes an action is logged and
    ends nothing: other coordinators live here too.

    Args:
        clock: seconds, for timers; after moving one of a test's own, :meth:`execute` something.
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
        """Whether it was closed; it runs nothing any more then."""
        return self._is_closed

    @property
    def is_current(self) -> bool:
        """Whether the caller is this thread."""
        return threading.current_thread() is self._thread

    def execute(self, action: Action) -> bool:
        """Run an action, after all that were given before; from any thread.

        Returns:
            False if this thread is closed: the action is dropped.
        """
        if self._is_closed:
            return False
        if self._thread is None:
            self._start()
        self._inbox.put(action)
        return True

    def schedule(self, delay: float, period: float | None, action: Action) -> Scheduled:
        """Run an action in ``delay`` seconds, then every ``period`` seconds; None for once.

        Times that have passed while the thread was busy are left out.

        Raises:
            ValueError: a period that is not positive.
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
        """Run ``work`` on the pool, then ``callback(result, error)`` here; dropped once closed."""
        if self.is_current:
            self._submit(work, callback)
        else:
            self.execute(lambda: self._submit(work, callback))

    def call_when_idle(self, action: Action) -> None:
        """Run an action as soon as nothing waits here and nothing runs on the pool.

        Timers that are not due do not count.
        """
        self.execute(lambda: self._idlers.append(action))

    def add_closer(self, key: object, action: Action) -> None:
        """Let an action run when this thread ends; called on this thread."""
        self._closers[key] = action

    def remove_closer(self, key: object) -> None:
        """Take a closer away; called on this thread."""
        self._closers.pop(key, None)

    def close(self, timeout: float = 30.0) -> None:
        """Drop what waits, run the closers, end the thread and the pool; may be called twice.

        Args:
            timeout: seconds to wait for both; a longer action or work is named in the log and left
                to end by itself. On this thread itself nothing is waited for.
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
            _LOG.warning("still at work %g s after it was closed: %s", timeout, ", ".join(late))

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
                del action  # what it holds must not live until the next one
            self._run_timers()
        for closer in list(self._closers.values()):
            _run_logged(closer)
        self._closers.clear()
        self._timers.clear()
        self._idlers.clear()

    def _next(self) -> Action | None:
        """Wait for an action, or for the first timer."""
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
            except BaseException as error:  # noqa: BLE001 - the callback's to judge
                failure = error
                self.execute(lambda: done(None, failure))
            else:
                self.execute(lambda: done(result, None))

        self._pool.run(run)


class _Pool:
    """Daemon threads for work that may block; unlike an executor's, no exit waits for them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._work: queue.SimpleQueue[Action | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._is_ended = False
        self.threads: list[threading.Thread] = []

    def run(self, work: Action) -> None:
        """Run it soon; called by one thread."""
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
        """Drop what waits; threads end after what they are at."""
        self._is_ended = True
        self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None and not self._is_ended:
            work()
            del work
            self._idle.release()
        self._work.put(None)  # for the next thread


def _run_logged(action: Action) -> None:
    try:
        action()
    except BaseException:  # noqa: BLE001 - logged, and others live on this thread
        _LOG.exception("an action of the coordinator failed")
