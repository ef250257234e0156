"""Notices for the user of a job: rows and values that operators have dropped, and what the start found."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headgate.errors import UserFunctionError
from headgate.stream.graph.operator import (
    DUPLICATES,
    EXPIRED,
    LATE_DROPPED,
    LEFT_OVER,
    UNKNOWN_DELETES,
    UNREAD,
)
from headgate.stream.job.odd_times import odd_time

if TYPE_CHECKING:
    from headgate.stream.graph.metrics import PlainMetrics

#: Figures of a tally without any text.
_NO_TALLY: Final[Mapping[str, Any]] = {"values": {}}
#: Operator -> name of a counter -> number.
Drops: TypeAlias = Mapping[str, Mapping[str, int]]

_LOG: Final = logging.getLogger("headgate.stream")
#: Log line of an attempt: its number, the job, how many more may fail, and why it failed.
FAILED: Final = "attempt %d of %s failed, %d restarts are left: %s"
#: Counter -> level of its first log line; what has happened; what to do.
_COUNTERS: Final[dict[str, tuple[int, str, str]]] = {
    LATE_DROPPED: (
        logging.WARNING,
        "rows came too late for their windows and were dropped",
        "side_output('late') · allowed_lateness= · a larger bound of the watermarks · order= of FileSource",
    ),
    LEFT_OVER: (
        logging.INFO,
        "rows were in windows of a number of rows that were not full at the end",
        "a smaller n of CountWindow · a window of time",
    ),
    EXPIRED: (
        logging.INFO,
        "values of state were older than their time to live and were dropped",
        "a longer ttl= of the state",
    ),
    UNKNOWN_DELETES: (
        logging.WARNING,
        "changes took away rows that state does not have",
        "a longer ttl= · a source whose changes begin with all rows",
    ),
    UNREAD: (
        logging.INFO,
        "rows were emitted to an output that nothing reads",
        "a sink for each output, by side_output(name)",
    ),
    DUPLICATES: (
        logging.INFO,
        "rows were dropped because their key had one shortly before, as deduplicate() is to do",
        "a shorter within=, if they are no duplicates",
    ),
}


def remedy_after_restarts(restarts: int) -> str:
    """Return what else to do about a failure behind the last restart of a job."""
    return (
        " · if what failed comes back: the same start(), which continues from the last checkpoint, or restarts= "
        f"above {restarts}"
    )


def totals(tasks: Iterable[Drops]) -> dict[str, dict[str, int]]:
    """Return the sums of numbers of tasks, by operator and name."""
    of_job: dict[str, dict[str, int]] = {}
    for task in tasks:
        for operator, numbers in task.items():
            sums = of_job.setdefault(operator, {})
            for name, number in numbers.items():
                sums[name] = sums.get(name, 0) + number
    return of_job


class Notices:
    """Notices for the user of a job: each is logged once.

    Args:
        job: name of the job.
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self._notices: list[str] = []
        self._logged: set[tuple[str, str]] = set()

    def add(self, notice: str, level: int = logging.INFO) -> None:
        """Add a sentence."""
        _LOG.log(level, "%s: %s", self._job, notice, extra={"job": self._job})
        self._notices.append(notice)

    def note(self, dropped: Drops) -> None:
        """Log what a task has dropped, if it is the first of its kind and operator."""
        for operator, counters in dropped.items():
            for name, number in counters.items():
                if number and name in _COUNTERS and (operator, name) not in self._logged:
                    self._logged.add((operator, name))
                    level, event, remedy = _COUNTERS[name]
                    _LOG.log(
                        level,
                        "%s of %s: %s, the first %d by now; query.status.dropped counts them. What helps: %s",
                        operator,
                        self._job,
                        event,
                        number,
                        remedy,
                        extra={"job": self._job, "operator": operator, "counter": name},
                    )

    def note_pauses(self, metrics: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
        """Add a notice of the first pause of an operator's calls.

        Args:
            metrics: of a task, by operator and name.
        """
        for operator, figures in metrics.items():
            has_paused = figures.get("call_pauses", {}).get("value", 0) > 0
            if has_paused and (operator, "call_pauses") not in self._logged:
                self._logged.add((operator, "call_pauses"))
                self.add(
                    f"{operator} has paused its calls, since more of them failed than breaker= allows. "
                    f"query.status.metrics[{operator!r}] has call_pauses, and calls_paused: 1 for each task that waits now",
                    logging.WARNING,
                )

    def note_loads(self, metrics: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
        """Add a notice if a task waits for what ``shared=`` loads, once for each operator.

        Args:
            metrics: of the task, by operator and name.
        """
        for operator, figures in metrics.items():
            is_loading = figures.get("shared_loading", {}).get("value", 0) > 0
            if is_loading and (operator, "shared_loading") not in self._logged:
                self._logged.add((operator, "shared_loading"))
                self.add(
                    f"{operator} loads what shared= gives, and its rows wait. query.status.metrics[{operator!r}] has "
                    "shared_loading: 1 for each task that waits now, then shared_load_seconds"
                )

    def note_watermark(self, watermark: int | None) -> None:
        """Add a notice of the first watermark of a task that is as far from our time as other units are."""
        sentence = None if watermark is None else odd_time(watermark)
        if sentence is not None and ("", "odd time") not in self._logged:
            self._logged.add(("", "odd time"))
            self.add(sentence, logging.WARNING)

    def all(self, dropped: Drops, metrics: PlainMetrics) -> list[str]:
        """Return all sentences, with one for each counter of an operator, and for each place that blocks its calls."""
        notices = list(self._notices)
        for operator, counters in dropped.items():
            for name, number in counters.items():
                if number and name in _COUNTERS:
                    _, event, remedy = _COUNTERS[name]
                    notices.append(f"{operator}: {number:,} {event}. What helps: {remedy}")
        for operator, figures in metrics.items():
            for place, (number, seconds) in figures.get("calls_blocked", _NO_TALLY)[
                "values"
            ].items():
                times = "once" if number == 1 else f"{number:,} times"
                notices.append(
                    f"[{UserFunctionError.code}] {operator}: {place} has blocked the event loop of its calls {times}, for up to "
                    f"{seconds:.2f} s: no other call of the task goes on meanwhile. What helps: a plain function, whose calls have a "
                    "thread each · await asyncio.to_thread(...)"
                )
        return notices
