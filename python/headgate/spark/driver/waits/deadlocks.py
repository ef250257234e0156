"""Ends a run if consumers that wait for producers hold all slots. No sockets, no Spark.

Until kept exchanges it freed slots instead: ADR 0003.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headgate import errors
from headgate.control.cause import Cause
from headgate.spark.driver.runs.epochs import RunState
from headgate.spark.driver.waits.waiting import SERVED, Snapshot, held_by

if TYPE_CHECKING:
    from headgate.spark.driver.runs.run import Run
    from headgate.spark.driver.timing import Timing
    from headgate.spark.driver.waits.waiting import SlotFacts


@dataclass(slots=True)
class Deadlocks:
    """The time since which waiting consumers hold all slots."""

    timing: Timing
    _holders: tuple[set[int], int, int] = field(default_factory=lambda: (set(), 0, 0))
    _since: float = 0.0

    def check(self, seen: Snapshot, now: float) -> None:
        """Fail one run if no slot will become free by itself.

        Args:
            seen: all runs and consumers, and the slots.
            now: seconds on a monotonic clock.
        """
        residents = seen.residents
        holders = (residents, seen.blocked, seen.slots.there)
        if holders != self._holders:
            self._holders, self._since = holders, now
        if self._is_full(seen.slots, seen.held, now) and not _will_move(seen.runs, residents):
            self._fail_one(seen, now)

    def _is_full(self, slots: SlotFacts, held: int, now: float) -> bool:
        """Return True if waiting consumers hold every slot and no further slot will come."""
        if not held or slots.busy < slots.there or slots.busy > held:
            return False  # a free slot, or a task of another job, which ends by itself
        return not slots.to_come or now - self._since >= slots.patience

    def _fail_one(self, seen: Snapshot, now: float) -> None:
        stuck, slots = [run for run in seen.runs if run.state not in SERVED], seen.slots
        if not stuck or now - self._since < self.timing.deadlock:
            return
        late = f"; waited {now - self._since:.0f} s for those" if slots.to_come else ""
        last = max(stuck, key=lambda run: (run.state is RunState.FORMING, run.number))
        last.fail(
            Cause(
                errors.SlotsExhausted.code,
                f"all {slots.there} slots are held by consumers that wait for a producer",
                asked=f"{slots.busy} tasks of {len(stuck)} runs at the same time, and one producer",
                have=f"{held_by(last, replace(seen, runs=stuck))}{late}",
                remedy=errors.SlotsExhausted.default_remedy,
            )
        )
        self._since = now


def _will_move(runs: list[Run], residents: set[int]) -> bool:
    """Return True if a slot becomes free by itself."""
    for run in runs:
        if run.state in SERVED and any(
            consumer.is_present for consumer in run.roster.consumers.values()
        ):
            return True
        # A producer in a task that is a consumer too (an exchange of an exchange) frees nothing.
        producers = run.roster.producers.values()
        if any(p.is_present and p.attempt not in residents for p in producers):
            return True
    return False
