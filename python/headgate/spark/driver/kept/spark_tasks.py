"""The tasks of kept exchanges that run or failed, for those who look at them.

A task reports when it has succeeded. Of all others only Spark knows.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.observe.record import Failure

T = TypeVar("T")

_LOG: Final = logging.getLogger("headgate.spark")
_NOT_LISTED: Final = (
    "tasks that run or failed are not listed from now on, Spark did not tell them: %s"
)
#: Seconds for which an answer is good, so that Spark is not asked more often, however many look.
_FRESH: Final = 1.0


@dataclass(frozen=True, slots=True)
class RunningTask:
    """A task that runs.

    Attributes:
        task: its Spark partition.
        attempt: id of Spark's task attempt.
        host: the host of its executor, as Spark names it.
        launched: when it was launched, in seconds since 1970 by the clock of Spark's driver.
    """

    task: int
    attempt: int
    host: str
    launched: float


class SparkTasks:
    """Spark's tasks by stage. Any thread may call it.

    Args:
        running: returns the tasks that run of a stage's attempt.
        failed: returns attempts that failed at the tasks of a stage's attempt.
    """

    def __init__(
        self,
        running: Callable[[int, int], Sequence[RunningTask]],
        failed: Callable[[int, int], Sequence[Failure]],
    ) -> None:
        self._ask_running = running
        self._ask_failed = failed
        self._is_off = False
        #: Stage and attempt -> when it was asked for, and the answer.
        self._running: dict[tuple[int, int], tuple[float, Sequence[RunningTask]]] = {}

    def running(self, stage: int, attempt: int) -> Sequence[RunningTask]:
        """Return the tasks that run of a stage's attempt; none if Spark cannot tell, after one warning."""
        now = time.monotonic()
        fresh = {key: old for key, old in list(self._running.items()) if now - old[0] < _FRESH}
        if (stage, attempt) not in fresh:
            fresh[stage, attempt] = now, self._answer(self._ask_running, stage, attempt)
        self._running = fresh
        return fresh[stage, attempt][1]

    def failed(self, stage: int, attempt: int) -> Sequence[Failure]:
        """Return attempts that failed at the tasks of a stage's attempt; none if Spark cannot tell."""
        return self._answer(self._ask_failed, stage, attempt)

    def _answer(
        self, ask: Callable[[int, int], Sequence[T]], stage: int, attempt: int
    ) -> Sequence[T]:
        if self._is_off:
            return ()
        try:
            return ask(stage, attempt)
        except Exception as error:  # noqa: BLE001 - py4j raises anything
            self._is_off = True
            _LOG.warning(_NOT_LISTED, error)
            return ()
