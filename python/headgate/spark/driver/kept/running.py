"""The tasks of kept exchanges that run at this moment, for those who look at them.

A task reports when it has ended. Until then only Spark knows of it.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LOG: Final = logging.getLogger("headgate.spark")
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


class RunningTasks:
    """The tasks that run, by stage. Any thread may call it.

    Args:
        ask: returns the tasks that run of a stage's attempt.
    """

    def __init__(self, ask: Callable[[int, int], Sequence[RunningTask]]) -> None:
        self._ask = ask
        self._is_off = False
        #: Stage and attempt -> when it was asked for, and the answer.
        self._found: dict[tuple[int, int], tuple[float, Sequence[RunningTask]]] = {}

    def of(self, stage: int, attempt: int) -> Sequence[RunningTask]:
        """Return the tasks that run of a stage's attempt; none if Spark cannot tell, after one warning."""
        now = time.monotonic()
        found = {key: one for key, one in list(self._found.items()) if now - one[0] < _FRESH}
        if (stage, attempt) not in found and not self._is_off:
            try:
                found[stage, attempt] = now, self._ask(stage, attempt)
            except Exception as error:  # noqa: BLE001 - py4j raises anything
                self._is_off = True
                words = "tasks that run are not listed from now on, Spark did not tell them: %s"
                _LOG.warning(words, error)
        self._found = found
        return found.get((stage, attempt), (now, ()))[1]
