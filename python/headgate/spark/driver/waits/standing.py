"""Log lines on runs that have begun and whose rows do not move: who waits for whom. No sockets, no Spark."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headgate.spark.driver.runs.epochs import RunState
from headgate.spark.driver.waits.waiting import MAX_RUNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headgate.spark.driver.runs.members import Member
    from headgate.spark.driver.runs.run import Run
    from headgate.spark.driver.timing import Timing

#: Most tasks that a line names for each thing that they do.
_MAX_TASKS: Final = 3
#: Seconds between two looks, as tasks report once per second.
_LOOK: Final = 1.0
_TIMES: Final = ("input_ms", "function_ms", "emit_ms", "blocked_ms")
#: What a producer and a consumer do in each of these times.
_DOES: Final = {
    "map": ("waiting for input", "in your map", "writing rows", "waiting for consumers"),
    "reduce": ("waiting for rows", "in your reduce", "", "waiting for Spark to take rows"),
}
_IS_SILENT: Final = "not heard of"
#: From the cause to the victims: what others wait for comes first.
_ORDER: Final = (
    "in your reduce",
    "in your map",
    _IS_SILENT,
    "waiting for Spark to take rows",
    "writing rows",
    "waiting for input",
    "waiting for consumers",
    "waiting for rows",
)


@dataclass(slots=True)
class _Run:
    """What was seen of a run when a row moved the last time, and when a line was due the last time."""

    moved: object = None
    since: float = 0.0
    times: dict[Member, tuple[int, ...]] = field(default_factory=dict)
    said: float | None = None


@dataclass(slots=True)
class Standing:
    """The runs whose rows stand still, and since when.

    Args:
        timing: how long rows may stand still, and how often the log says so.
    """

    timing: Timing
    _runs: dict[int, _Run] = field(default_factory=dict)
    _looked: float | None = None

    def lines(
        self, runs: Iterable[Run], now: float, name: Callable[[Run], str]
    ) -> list[tuple[int, str]]:
        """Return the lines that are due, with their logging levels.

        Args:
            runs: those that have not ended.
            now: seconds on a monotonic clock.
            name: returns the description of a run.
        """
        if self._looked is not None and now - self._looked < _LOOK:
            return []
        self._looked = now
        begun = {run.number: run for run in runs if _has_begun(run)}
        self._runs = {number: self._runs.get(number, _Run()) for number in begun}
        due = [run for run in begun.values() if self._is_due(run, now)]
        found = [self._line(run, now, name(run)) for run in due[:MAX_RUNS]]
        if len(due) > MAX_RUNS:
            found.append((logging.INFO, f"waiting: {len(due) - MAX_RUNS} more runs stand still"))
        return found

    def _is_due(self, run: Run, now: float) -> bool:
        seen, moved = self._runs[run.number], _position(run)
        if moved != seen.moved:
            times = {member: _times(member) for member in _live(run)}
            self._runs[run.number] = _Run(moved, now, times, seen.said)
            return False
        if now - seen.since < self.timing.report:
            return False
        if seen.said is not None and now - seen.said < self.timing.repeat:
            return False
        seen.said = now
        return True

    def _line(self, run: Run, now: float, name: str) -> tuple[int, str]:
        seen = self._runs[run.number]
        doing: dict[str, list[str]] = {}
        for role, task, member in _numbered(run):
            before = seen.times.get(member, (0, 0, 0, 0))
            words = _doing(role, member, before, seen.since)
            where = f" on {member.hostname}" if member.hostname else ""
            doing.setdefault(words, []).append(f"{role} {task}{where}")
        parts = [_tasks(doing[words], words) for words in _ORDER if words in doing]
        waited = now - seen.since
        works = any(words.startswith("in your") for words in doing)
        is_worrying = waited >= self.timing.worrying and not works
        text = f"waiting: run {run.number} ({name}) has moved no row for {waited:.0f} s"
        level = logging.WARNING if is_worrying else logging.INFO
        return level, "; ".join([text, *parts])


def _has_begun(run: Run) -> bool:
    """Return True if rows may move: producers have come, and consumers want rows."""
    return run.state in {RunState.FLOWING, RunState.SEALED} and bool(run.roster.producers)


def _live(run: Run) -> list[Member]:
    return [*run.roster.live_producers, *run.roster.live_consumers]


def _numbered(run: Run) -> list[tuple[str, int, Member]]:
    """Return role, number and task of the live ones, by number."""
    producers = sorted(run.roster.live_producers, key=lambda producer: producer.partition)
    consumers = sorted(run.roster.live_consumers, key=lambda consumer: consumer.index)
    return [
        *(("map", producer.partition, producer) for producer in producers),
        *(("reduce", consumer.index, consumer) for consumer in consumers),
    ]


def _position(run: Run) -> tuple[object, ...]:
    """Return what changes if a row moves or a task comes or goes."""
    producers, consumers = run.roster.producers.values(), run.roster.consumers.values()
    return (
        run.epoch,
        run.state,
        run.splits_done,
        [(member.connection, member.state, member.rows) for member in (*producers, *consumers)],
    )


def _times(member: Member) -> tuple[int, ...]:
    return tuple(getattr(member, name) for name in _TIMES)


def _doing(role: str, member: Member, before: tuple[int, ...], since: float) -> str:
    """Return what a task has done most of the time since its last row moved."""
    spent = [now - then for now, then in zip(_times(member), before, strict=True)]
    if member.heard <= since or max(spent) <= 0:
        return _IS_SILENT
    return _DOES[role][spent.index(max(spent))] or _IS_SILENT


def _tasks(names: list[str], words: str) -> str:
    named = ", ".join(names[:_MAX_TASKS])
    more = f" and {len(names) - _MAX_TASKS} more" if len(names) > _MAX_TASKS else ""
    return f"{words}: {named}{more}"
