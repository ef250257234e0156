"""Groups waiting consumers into runs. No sockets, no Spark: its status comes as plain values.

A run is formed once every task of the stage has connected, all slots are held, or no consumer has come
for a second. The rows do not depend on which consumers share a run: a late consumer gets its own.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.spark.driver.runs.epochs import RunState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headgate.spark.driver.runs.members import Consumer
    from headgate.spark.driver.runs.run import Run
    from headgate.spark.driver.timing import Timing


@dataclass(frozen=True, slots=True)
class StageFacts:
    """A stage, as Spark's status store has it.

    Attributes:
        status: ``ACTIVE``, ``PENDING``, ``COMPLETE``, ``FAILED`` or ``SKIPPED``.
        num_tasks: tasks of the stage in this job; 1 for ``take`` on its first try.
        completed: tasks that have ended well.
    """

    status: str
    num_tasks: int
    completed: int

    @property
    def has_ended(self) -> bool:
        """True once none of its tasks needs anything."""
        return self.status in {"COMPLETE", "FAILED", "SKIPPED"}


@dataclass(frozen=True, slots=True)
class ExchangeFacts:
    """An exchange, as far as the coordinator needs it.

    Attributes:
        num_partitions: consumers, if all of them run.
        heartbeat_timeout: seconds of silence after which a task counts as lost.
        holds_slots: True if each consumer holds a slot, False if it takes a share of a core.
    """

    num_partitions: int
    heartbeat_timeout: float = 10.0
    holds_slots: bool = True


class Formation:
    """The consumers that wait for a run.

    Args:
        new_run: makes an empty run for an exchange and a stage.
        timing: how long to wait.
    """

    def __init__(self, new_run: Callable[[bytes, int, float], Run], timing: Timing) -> None:
        self._timing = timing
        self.waiting: list[Consumer] = []
        self.facts: dict[int, StageFacts] = {}
        self._new_run = new_run
        self._attempts: dict[int, set[int]] = defaultdict(set)
        self._arrived: dict[int, float] = {}

    def arrive(self, consumer: Consumer, runs: Iterable[Run], now: float) -> None:
        """Add a consumer: to a run that forms, or to those that wait for one."""
        self._attempts[consumer.stage].add(consumer.attempt)
        self._arrived[consumer.stage] = now
        consumer.since = now
        for run in runs:
            if self._fits(consumer, run):
                run.join(consumer)
                return
        self.waiting.append(consumer)

    def drop(self, consumer: Consumer) -> None:
        """Remove a waiting consumer."""
        if consumer in self.waiting:
            self.waiting.remove(consumer)

    def form(self, consumers: Iterable[Consumer], slots_are_held: bool, now: float) -> list[Run]:
        """Return the runs that are due, with their consumers."""
        ended = defaultdict(set)
        for consumer in consumers:
            if not consumer.is_present:
                ended[consumer.stage].add(consumer.attempt)
        formed: list[Run] = []
        for stage in sorted({c.stage for c in self.waiting}):
            if slots_are_held or self._is_due(stage, len(ended[stage]), now):
                formed += self._group([c for c in self.waiting if c.stage == stage], stage, now)
                self.waiting = [c for c in self.waiting if c.stage != stage]
        return formed

    def forget(self, stages: set[int]) -> None:
        """Drop all stages but these."""
        for known in (self._attempts, self._arrived, self.facts):
            for stage in [stage for stage in known if stage not in stages]:
                del known[stage]

    def _is_due(self, stage: int, ended: int, now: float) -> bool:
        facts = self.facts.get(stage)
        if facts is not None:
            others = max(0, facts.completed - ended)
            if len(self._attempts[stage]) + others >= facts.num_tasks:
                return True
        return now - self._arrived[stage] >= self._timing.quiet

    def _group(self, waiting: list[Consumer], stage: int, now: float) -> list[Run]:
        runs: list[Run] = []
        for consumer in waiting:
            run = next((run for run in runs if self._fits(consumer, run)), None)
            if run is None:
                run = self._new_run(consumer.exchange_id, stage, now)
                runs.append(run)
            run.join(consumer)
        return runs

    @staticmethod
    def _fits(consumer: Consumer, run: Run) -> bool:
        return (
            run.state is RunState.FORMING
            and run.exchange_id == consumer.exchange_id
            and run.stage == consumer.stage
            and consumer.index not in run.roster.consumers
        )
