"""Ends a run that waits although slots are free and nothing runs. No sockets, no Spark.

deadlocks.py handles consumers that hold all slots. Here slots are free, so Spark could start a task at
any moment, but does not: its driver waits for an event that never comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate import errors
from headgate.control.cause import Cause
from headgate.spark.driver.runs.epochs import RunState
from headgate.spark.driver.waits.waiting import (
    SERVED,
    Snapshot,
    has_no_producer,
    held_by,
    inner_runs,
    is_of_job,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.spark.driver.runs.run import Run
    from headgate.spark.driver.timing import Timing
    from headgate.spark.driver.waits.waiting import SlotFacts

#: Looks at the driver's threads in those seconds.
_SAMPLES: Final = 6
#: Most seconds that one look counts for: a driver that was stopped has seen nothing meanwhile.
_MAX_STEP: Final = 2.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """The state of the driver at one moment.

    Attributes:
        seen: the runs, the slots and the stages.
        computes: True if a thread of Spark's driver computes or waits for the network.
        stacks: the stacks of the threads of Spark's driver; they change while the threads progress.
        jobs: run number -> step of the thread that runs its producer job.
    """

    seen: Snapshot
    computes: bool
    stacks: str
    jobs: Mapping[int, JobThread]


@dataclass(frozen=True, slots=True)
class JobThread:
    """The thread of a producer job: its step in words, and its stack in Python."""

    step: str
    stack: str


@dataclass(slots=True)
class Stalls:
    """The time for which nothing has moved, summed over the looks at Spark's slots."""

    timing: Timing
    _quiet: float = 0.0
    _looked: float | None = None
    _sampled: float = 0.0
    _moving: object = None
    _stacks: str | None = None
    _samples: int = 0

    def look(self, seen: Snapshot, now: float) -> bool:
        """Take a look at Spark's slots into account; return True when evidence is due.

        Args:
            seen: the runs that have not ended, and the slots, just read from Spark's scheduler.
            now: seconds on a monotonic clock.
        """
        runs, slots, residents = seen.runs, seen.slots, seen.residents
        step = 0.0 if self._looked is None else min(_MAX_STEP, now - self._looked)
        self._looked = now
        moving = (
            residents,
            seen.blocked,
            slots.there,
            slots.busy,
            [_position(run) for run in runs],
        )
        is_idle = (
            slots.free > 0
            and slots.busy <= seen.held
            and any(stands_still(run) for run in runs)
            and not any(is_at_work(run, residents) for run in runs)
        )
        if not is_idle or moving != self._moving:
            self._restart(moving)
            return False
        self._quiet += step
        if self._quiet - self._sampled < self._limit(slots) / _SAMPLES:
            return False
        self._sampled = self._quiet
        return True

    def judge(self, evidence: Evidence) -> None:
        """End a run, unless something may still move."""
        starts_executors = any(stage.has_other_profile for stage in evidence.seen.stages)
        has_moved = self._stacks not in {None, evidence.stacks}
        if evidence.computes or starts_executors or has_moved:
            self._restart(self._moving)
            return
        self._stacks = evidence.stacks
        self._samples += 1
        if self._quiet < self._limit(evidence.seen.slots) or self._samples < _SAMPLES:
            return
        stalled = [run for run in evidence.seen.runs if stands_still(run)]
        if not stalled:
            return
        # Of a chain the innermost: the others wait for its rows.
        run = max(stalled, key=lambda run: (not inner_runs(run, evidence.seen), run.number))
        run.fail(_cause(run, evidence, self._quiet))
        self._restart(None)

    def _limit(self, slots: SlotFacts) -> float:
        """Return the seconds without movement after which a run fails.

        A task set may wait for a place near its data on each of three levels.
        """
        return max(self.timing.stall, 3 * slots.locality_wait)

    def _restart(self, moving: object) -> None:
        self._quiet = self._sampled = 0.0
        self._moving, self._stacks, self._samples = moving, None, 0


def stands_still(run: Run) -> bool:
    """Return True if a run cannot go on before Spark starts a task or ends a job."""
    if run.state is RunState.RECOVERING:
        return not run.roster.asks_spark and all(c.ready for c in run.roster.live_consumers)
    return run.state in {RunState.FORMING, RunState.FLOWING} and has_no_producer(run)


def is_at_work(run: Run, residents: set[int]) -> bool:
    """Return True if a task of the run may be computing, which has no time limit."""
    if run.state is RunState.RECOVERING and not stands_still(run):
        return True
    if run.state in SERVED and any(c.is_present for c in run.roster.consumers.values()):
        return True
    return any(p.is_present and p.attempt not in residents for p in run.roster.producers.values())


def _position(run: Run) -> tuple[object, ...]:
    producers = run.roster.producers
    done = sum(producer.is_done for producer in producers.values())
    return (run.number, run.epoch, run.state, len(producers), done, len(run.roster.parked))


def _cause(run: Run, evidence: Evidence, quiet: float) -> Cause:
    seen, job = evidence.seen, evidence.jobs.get(run.number)
    return Cause(
        errors.RunStalled.code,
        f"run {run.number} ({seen.name(run)}) waits for {_awaited(run, evidence)}; "
        f"{seen.slots.free} slots are free and no task has started for {quiet:.0f} s",
        have=held_by(run, seen),
        remedy=errors.RunStalled.default_remedy,
        text="" if job is None else f"The driver's thread of this producer job:\n{job.stack}",
    )


def _awaited(run: Run, evidence: Evidence) -> str:
    """Return a description of the event that a run waits for."""
    if run.state is RunState.RECOVERING and run.epochs.job_ended:
        lost = sorted(c.index for c in run.roster.consumers.values() if not c.is_present)
        return f"Spark to start consumers {', '.join(map(str, lost[:8]))} again"
    pending = [s for s in evidence.seen.stages if s.pending and is_of_job(s.tags, run)]
    if pending:
        stage = pending[0]
        words = f"Spark to start {stage.pending} tasks of stage {stage.stage} of its producer job"
        needed = stage.pending + stage.tasks
        return f"{words}, a barrier stage: all {needed} at once" if stage.is_barrier else words
    inner = inner_runs(run, evidence.seen)
    if inner:
        return f"run {', '.join(map(str, sorted(inner)))}, whose rows its producers read"
    job = evidence.jobs.get(run.number)
    return "the end of its last producer job" if job is None else job.step
