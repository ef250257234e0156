"""Log lines about waiting runs and the holders of slots. No sockets, no Spark."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headgate.spark.driver.runs.epochs import RunState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headgate.spark.driver.runs.members import Consumer
    from headgate.spark.driver.runs.run import Run
    from headgate.spark.driver.timing import Timing

#: Most runs in one report, and most stages of other jobs in one line.
MAX_RUNS: Final = 3
MAX_STAGES: Final = 3
_MAX_NAME: Final = 60
#: States in which a run needs no further slot.
SERVED: Final = frozenset({RunState.SEALED, RunState.FINISHING, RunState.OVER})


@dataclass(frozen=True, slots=True)
class SlotFacts:
    """The slots of one moment, as Spark's scheduler has them.

    Attributes:
        there: slots that run a task or may take one; of a leaving executor those with a task.
        busy: running tasks of all jobs.
        to_come: further slots, of executors that Spark requests or may request.
        patience: seconds to wait for those.
        words: the origin of the slots, for error texts.
        locality_wait: seconds that a task waits for a slot near its data, on each level.
    """

    there: int
    busy: int
    to_come: int = 0
    patience: float = 0.0
    words: str = ""
    locality_wait: float = 0.0

    @property
    def free(self) -> int:
        """Slots without a task."""
        return max(0, self.there - self.busy)


@dataclass(frozen=True, slots=True)
class StageTasks:
    """A stage with tasks to run or to start.

    Attributes:
        stage: Spark's stage id.
        tasks: running tasks.
        words: the description of its job.
        tags: of its job.
        pending: tasks that Spark has yet to start.
        is_barrier: True if Spark starts all of them at once or none.
        has_other_profile: True if they need executors of another resource profile.
    """

    stage: int
    tasks: int
    words: str = ""
    tags: frozenset[str] = frozenset()
    pending: int = 0
    is_barrier: bool = False
    has_other_profile: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The runs, consumers, slots and stages of one moment.

    Attributes:
        runs: all, or those that have not ended.
        consumers: all of them.
        blocked: tasks that wait for a cached partition that a consumer computes.
        slots: as Spark's scheduler has them.
        stages: those of all jobs; empty if nobody names them.
        name: returns the description of a run.
        excluded: ids of the executors that Spark gives no task to.
    """

    runs: list[Run]
    consumers: list[Consumer]
    blocked: int
    slots: SlotFacts
    stages: list[StageTasks] = field(default_factory=list)
    name: Callable[[Run], str] = str
    excluded: tuple[str, ...] = ()

    @property
    def residents(self) -> set[int]:
        """The task attempts that are consumers."""
        return {consumer.attempt for consumer in self.consumers if consumer.is_present}

    @property
    def held(self) -> int:
        """The number of slots that consumers hold, or tasks that wait for a consumer's partition."""
        found = {c.attempt for c in self.consumers if c.is_present and c.holds_slot}
        return len(found) + self.blocked


@dataclass(slots=True)
class Waiting:
    """The time since which each run has waited."""

    timing: Timing
    _since: dict[int, float] = field(default_factory=dict)
    _said: float = 0.0

    def is_due(self, runs: Iterable[Run], now: float) -> bool:
        """Update the waiting runs; return True if a report is due."""
        waiting = {run.number for run in runs if has_no_producer(run)}
        self._since = {number: self._since.get(number, now) for number in sorted(waiting)}
        every = self.timing.report
        longest = now - min(self._since.values(), default=now)
        if longest < every or now - self._said < every:
            return False
        self._said = now
        return True

    def lines(self, seen: Snapshot, now: float) -> list[tuple[int, str]]:
        """Return a report: logging levels and lines."""
        found = []
        for run in seen.runs:
            waited = now - self._since.get(run.number, now)
            words = (
                waits_for(run, seen)
                if waited >= self.timing.report and has_no_producer(run)
                else ""
            )
            if words:
                level = logging.WARNING if waited >= self.timing.worrying else logging.INFO
                text = f"run {run.number} ({seen.name(run)}) waits {waited:.0f} s for {words}"
                found.append((level, text))
        if len(found) > MAX_RUNS:
            more = f"{len(found) - MAX_RUNS} more runs wait"
            found = [*found[:MAX_RUNS], (found[0][0], more)]
        return found


def has_no_producer(run: Run) -> bool:
    """Return True if a run needs producers and none is present."""
    if run.state in SERVED or not any(c.is_present for c in run.roster.consumers.values()):
        return False
    return not any(p.is_present for p in run.roster.producers.values())


def is_of_job(tags: Iterable[str], run: Run) -> bool:
    """Return True if one of these tags is that of a producer job of the run, in any epoch."""
    own = f"headgate-{run.exchange_id.hex()}-{run.number}"
    return any(tag == own or tag.startswith(f"{own}-") for tag in tags)


def waits_for(run: Run, seen: Snapshot) -> str:
    """Return the reason why a run without a producer waits; empty if its job has tasks of its own."""
    residents = _residents(seen.consumers)
    own = [stage for stage in seen.stages if is_of_job(stage.tags, run)]
    if any(stage.tasks > len(residents.get(stage.stage, ())) for stage in own):
        return ""  # computes what its producers read
    inner = inner_runs(run, seen)
    if inner:
        return f"run {', '.join(map(str, sorted(inner)))}, whose rows its producers read"
    return f"a slot: {held_by(run, seen)}"


def inner_runs(run: Run, seen: Snapshot) -> set[int]:
    """Return the runs whose consumers are tasks of this run's producer job."""
    stages = {stage.stage for stage in seen.stages if is_of_job(stage.tags, run)}
    return {c.run for c in seen.consumers if c.stage in stages and c.run}


def held_by(run: Run | None, seen: Snapshot) -> str:
    """Return the holders of the slots.

    Args:
        run: the run whose own consumers are called so; None for none.
        seen: the runs, consumers, slots and stages.
    """
    slots = seen.slots
    parts = [*_of_runs(run, seen), *_of_others(seen)]
    words = f"{min(slots.busy, slots.there)} of {slots.there} slots held"
    if parts:
        words += f": {', '.join(parts)}"
    if slots.free:
        words += f"; Spark does not use the other {slots.free} yet"
    if seen.excluded:
        words += f"; executors {', '.join(seen.excluded)} are excluded"
    if slots.to_come:
        words += f"; {slots.to_come} more may come ({slots.words})"
    return words


def _of_runs(asking: Run | None, seen: Snapshot) -> list[str]:
    counts = Counter(_by_attempt(seen.consumers).values())
    parts = []
    for number, count in sorted(counts.items()):
        if not number:
            parts.append(f"consumers that have no run yet {count}")
        elif asking is not None and number == asking.number:
            parts.append(f"its own consumers {count}")
        else:
            parts.append(f"run {number}'s consumers {count}")
    if seen.blocked:
        parts.append(f"tasks that wait for a cached partition {seen.blocked}")
    return parts


def _of_others(seen: Snapshot) -> list[str]:
    residents = _residents(seen.consumers)
    left = seen.blocked
    parts, others = [], []
    for stage in seen.stages:
        tasks = stage.tasks - len(residents.get(stage.stage, ()))
        owner = next((run for run in seen.runs if is_of_job(stage.tags, run)), None)
        if tasks <= 0:
            continue
        if owner is not None:
            parts.append(f"run {owner.number}'s producers {tasks}")
            continue
        waits, left = min(left, tasks), max(0, left - tasks)  # counted as blocked already
        if tasks > waits:
            others.append((tasks - waits, stage))
    if others:
        number = sum(tasks for tasks, _ in others)
        named = ", ".join(_named(stage) for _, stage in others[:MAX_STAGES])
        more = f" and {len(others) - MAX_STAGES} more stages" if len(others) > MAX_STAGES else ""
        parts.append(f"{number} {_tasks(number)} of other jobs ({named}{more})")
    return parts


def _named(stage: StageTasks) -> str:
    words = " ".join(stage.words.split())
    if len(words) > _MAX_NAME:
        words = words[: _MAX_NAME - 3] + "..."
    return f"stage {stage.stage} '{words}'" if words else f"stage {stage.stage}"


def _tasks(number: int) -> str:
    return "task" if number == 1 else "tasks"


def _by_attempt(consumers: Iterable[Consumer]) -> dict[int, int]:
    """Return attempt of a task with a slot -> number of the run that its consumer is in, 0 for none."""
    present = (c for c in consumers if c.is_present and c.holds_slot)
    return {c.attempt: c.run for c in present}


def _residents(consumers: Iterable[Consumer]) -> dict[int, set[int]]:
    """Return stage -> attempts of the consumers that wait in it."""
    found: dict[int, set[int]] = {}
    for consumer in consumers:
        if consumer.is_present:
            found.setdefault(consumer.stage, set()).add(consumer.attempt)
    return found
