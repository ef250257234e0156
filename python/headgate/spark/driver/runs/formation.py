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
    from collections.abc import Callable, Iterable, Mapping

    from headgate.spark.driver.runs.members import Consumer, StageKey
    from headgate.spark.driver.runs.run import Run
    from headgate.spark.driver.timing import Timing


@dataclass(frozen=True, slots=True)
class StageFacts:
    """A stage, as Spark's status store has it.

    Attributes:
        status: ``ACTIVE``, ``PENDING``, ``COMPLETE``, ``FAILED`` or ``SKIPPED``.
        num_tasks: tasks of the stage in this job; 1 for ``take`` on its first try.
        completed: tasks that have ended well.
        rdds: ids of the RDDs that its tasks compute.
        running: attempts that run at this moment; None if nobody has asked.
    """

    status: str
    num_tasks: int
    completed: int
    rdds: frozenset[int] = frozenset()
    running: frozenset[int] | None = None

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
        #: Of stages that Spark has and that are of their exchange.
        self.facts: dict[StageKey, StageFacts] = {}
        self._new_run = new_run
        self._attempts: dict[StageKey, set[int]] = defaultdict(set)
        self._arrived: dict[StageKey, float] = {}

    def arrive(self, consumer: Consumer, runs: Iterable[Run], now: float) -> None:
        """Add a consumer: to a run that forms, or to those that wait for one."""
        self._attempts[consumer.key].add(consumer.attempt)
        self._arrived[consumer.key] = now
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

    @property
    def keys(self) -> list[StageKey]:
        """The exchanges and stages of waiting consumers, by stage."""
        return sorted({c.key: None for c in self.waiting}, key=lambda key: key[1])

    def ended(self, consumers: Iterable[Consumer]) -> Mapping[int, set[int]]:
        """Return stage -> attempts that were consumers and have ended."""
        ended: dict[int, set[int]] = defaultdict(set)
        for consumer in consumers:
            if not consumer.is_present and consumer.key in self.facts:
                ended[consumer.stage].add(consumer.attempt)
        return ended

    def form(self, key: StageKey, ended: int, now: float, *, slots_are_held: bool) -> list[Run]:
        """Return the runs of an exchange and stage that are due, with their consumers.

        Args:
            key: the exchange and stage.
            ended: attempts in this stage that were consumers and have ended.
            now: seconds on a monotonic clock.
            slots_are_held: True if no further consumer can come.
        """
        if not slots_are_held and not self._is_due(key, ended, now):
            return []
        due = [consumer for consumer in self.waiting if consumer.key == key]
        self.waiting = [consumer for consumer in self.waiting if consumer.key != key]
        return self._group(due, key, now)

    def forget(self, stages: set[StageKey]) -> None:
        """Drop all stages but these."""
        for known in (self._attempts, self._arrived, self.facts):
            for stage in [stage for stage in known if stage not in stages]:
                del known[stage]

    def _is_due(self, key: StageKey, ended: int, now: float) -> bool:
        facts = self.facts.get(key)
        if facts is not None:
            # Tasks of all exchanges in this stage, of which others may have read another one.
            of_stage = [known for known in self.facts if known[1] == key[1]]
            arrived = set[int]().union(*(self._attempts.get(known, ()) for known in of_stage))
            if len(arrived) + max(0, facts.completed - ended) >= facts.num_tasks:
                return True
        return now - self._arrived[key] >= self._timing.quiet

    def _group(self, waiting: list[Consumer], key: StageKey, now: float) -> list[Run]:
        runs: list[Run] = []
        for consumer in waiting:
            run = next((run for run in runs if self._fits(consumer, run)), None)
            if run is None:
                run = self._new_run(*key, now)
                runs.append(run)
            run.join(consumer)
        return runs

    @staticmethod
    def _fits(consumer: Consumer, run: Run) -> bool:
        return (
            run.state is RunState.FORMING
            and run.key == consumer.key
            and consumer.index not in run.roster.consumers
        )
