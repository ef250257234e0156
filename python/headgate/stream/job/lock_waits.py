"""Waits for Python's lock, of which a job tells its user: tasks that wait for each other belong into processes."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headgate.control.messages import Message
    from headgate.stream.job.attempt import Attempt
    from headgate.stream.job.notices import Notices

#: Naps of a measurement, and the seconds of each.
_NAPS: Final = 5
_NAP: Final = 0.001
#: Least wait in us that counts: Python gives the lock away each 5 ms, and an idle system wakes a thread within 0.1 ms.
_LONG: Final = 1000
#: Least sum of the shares of time in which the tasks of a worker are busy: with less, nobody waits for the other.
_BUSY: Final = 1.2
#: Reports in a row, of which there is one each second.
_REPORTS: Final = 5


def lock_wait_us() -> int:
    """Return how long this thread waits for Python's lock when it wakes up, in us: the mean of a few naps.

    Time in which the thread waits for a processor does not count, as far as the kernel tells it.
    """
    started, waited = time.perf_counter_ns(), _run_delay_ns()
    for _ in range(_NAPS):
        time.sleep(_NAP)
    took = time.perf_counter_ns() - started - (_run_delay_ns() - waited)
    return max(0, int(took / _NAPS / 1000 - _NAP * 1e6))


def _run_delay_ns() -> int:
    """Return the time for which this thread has waited for a processor; 0 if the kernel does not tell."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:  # noqa: PTH123 - each second
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


class LockWaits:
    """Notes that the tasks of a worker wait for Python's lock, once.

    Args:
        notices: of the job.
    """

    def __init__(self, notices: Notices) -> None:
        self._notices = notices
        self._is_noted = False
        #: Reports in a row by worker, in which tasks waited.
        self._reports: dict[int, int] = {}

    def note(self, attempt: Attempt, worker: int, message: Message) -> None:
        """Take a worker's report, which the attempt has."""
        wait, tasks = message["lock_wait_us"], [tuple(task["task"]) for task in message["tasks"]]
        busy = sum(_busy_share(attempt.earlier.get(task), attempt.figures[task]) for task in tasks)
        waits = wait >= _LONG and busy >= _BUSY
        self._reports[worker] = self._reports.get(worker, 0) + 1 if waits else 0
        if self._reports[worker] < _REPORTS or self._is_noted:
            return
        self._is_noted = True
        processes = max(2, min(os.cpu_count() or 2, len(attempt.worker_of)))
        self._notices.add(
            f"{len(tasks)} tasks share a process, and wait {wait / 1000:.1f} ms for Python's lock each time that they wake"
            f" up: workers={processes} runs them in processes of their own, if their functions can be pickled"
        )


def _busy_share(before: Any, now: Any) -> float:
    """Return the share of the time between two reports in which a task worked."""
    if before is None:
        return 0.0
    elapsed = now["elapsed_ms"] - before["elapsed_ms"]
    busy = now["busy_ms"] - before["busy_ms"] - (now["blocked_ms"] - before["blocked_ms"])
    return float(busy / elapsed) if elapsed > 0 else 0.0
