"""Frees slots when consumers hold all of them, so that producers can run. No sockets, no Spark.

See docs/adr/0003-handing-over-subpartitions.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate import errors
from headgate.spark.driver.epochs import RunState
from headgate.spark.driver.members import Consumer, Effect, Warn
from headgate.spark.driver.waiting import SERVED, Snapshot, held_by
from headgate.spark.wire.cause import Cause

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.spark.driver.formation import SubpartitionOwners
    from headgate.spark.driver.run import Run
    from headgate.spark.driver.slots import SlotFacts

#: Seconds for which waiting consumers hold all slots before one run fails.
CIRCLE: Final = 2.0
#: Seconds without a task of its producer job after which a run gives up slots.
STARVED: Final = 30.0


class Relief:
    """Hands subpartitions over to fewer consumers; fails one run if that is impossible.

    Args:
        owners: the consumers that are fixed already.
        may_hand_over: returns True if an exchange allows it (``on_no_slots="shuffle"``).
        effects: the list to append effects to.
    """

    def __init__(
        self,
        owners: SubpartitionOwners,
        may_hand_over: Callable[[bytes], bool],
        effects: list[Effect],
    ) -> None:
        self._owners = owners
        self._may_hand_over = may_hand_over
        self._effects = effects
        self._seen: tuple[set[int], int, int] = (set(), 0, 0)
        self._since = 0.0

    def check(
        self,
        runs: list[Run],
        consumers: list[Consumer],
        blocked: int,
        slots: SlotFacts,
        now: float,
    ) -> None:
        """Free slots if nothing else will.

        Args:
            runs: all of them.
            consumers: all of them.
            blocked: tasks that wait for a cached partition that a consumer computes.
            slots: as Spark's scheduler has them.
            now: seconds on a monotonic clock.
        """
        present = [c for c in consumers if c.is_present]
        residents = {c.attempt for c in present}
        seen = (residents, blocked, slots.there)
        if seen != self._seen:
            self._seen, self._since = seen, now
        if any(c.leaving for c in present):
            return
        held = len(residents) + blocked
        forming = [r for r in runs if r.state is RunState.FORMING and self._allowed(r)]
        if not self._is_full(slots, held, now):
            starved = [
                r for r in forming if now - r.started >= STARVED and not r.epochs.jobs.is_active
            ]
            self._relieve(starved, held, slots.there)
        elif not _will_move(runs, residents) and not self._relieve(forming, held, slots.there):
            self._give_up(runs, consumers, blocked, slots, now)

    def _is_full(self, slots: SlotFacts, held: int, now: float) -> bool:
        """Return True if waiting consumers hold every slot and no further slot will come."""
        if not held or slots.busy < slots.there or slots.busy > held:
            return False  # a free slot, or a task of another job, which ends by itself
        return not slots.to_come or now - self._since >= slots.patience

    def _relieve(self, forming: list[Run], held: int, slots: int) -> bool:
        return any(self._hand_over(run, held, slots) for run in forming) or any(
            self._merge(run, other, held, slots)
            for run in forming
            for other in forming
            if run.number < other.number and run.exchange_id == other.exchange_id
        )

    def _allowed(self, run: Run) -> bool:
        return self._may_hand_over(run.exchange_id)

    def _hand_over(self, run: Run, held: int, slots: int) -> bool:
        owners = self._owners.of(run.exchange_id, run.stage)
        free = [index for index in run.roster.consumers if index not in owners]
        fixed = [index for index in run.roster.consumers if index in owners]
        if not free or len(run.roster.consumers) < 2:
            return False
        kept = min(fixed or free)
        given = [index for index in free if index != kept]
        run.roster.hand_over(given, kept)
        self._owners.fix(run)
        self._tell(kept, len(given), held, slots)
        return True

    def _merge(self, run: Run, other: Run, held: int, slots: int) -> bool:
        """Let a run serve the subpartitions of another run, if both read the same rows from a cache."""
        owners = self._owners.of(other.exchange_id, other.stage)
        given = [
            i for i in other.roster.consumers if i not in owners and i not in run.roster.indexes
        ]
        if not self._owners.is_persisting or not given:
            return False
        kept = min(run.roster.consumers)
        other.dismiss(given)
        run.roster.adopt(given, kept)
        self._owners.fix(run)
        self._owners.fix_given(other, given, kept)
        self._tell(kept, len(given), held, slots)
        return True

    def _tell(self, kept: int, given: int, held: int, slots: int) -> None:
        error = errors.NotEnoughSlots(
            f"partition {kept} of this result gets the rows of {given} more partitions, because "
            "no slot is left for a producer",
            asked=f"{held} waiting consumers at the same time",
            have=f"{slots} slots",
            remedy="a smaller num_partitions for each exchange · more slots",
        )
        self._effects.append(Warn(str(error)))

    def _give_up(
        self,
        runs: list[Run],
        consumers: list[Consumer],
        blocked: int,
        slots: SlotFacts,
        now: float,
    ) -> None:
        stuck = [run for run in runs if run.state not in SERVED]
        if not stuck or now - self._since < CIRCLE:
            return
        held = slots.busy
        seen = Snapshot(stuck, consumers, blocked, slots, [], lambda _: "")
        late = f"; waited {now - self._since:.0f} s for those" if slots.to_come else ""
        last = max(stuck, key=lambda run: (run.state is RunState.FORMING, run.number))
        last.fail(
            Cause(
                errors.SlotsExhausted.code,
                f"all {slots.there} slots are held by consumers that wait for a producer",
                asked=f"{held} tasks of {len(stuck)} runs at the same time, and one producer",
                have=f"{held_by(last, seen)}{late}",
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
        if any(p.is_present and p.attempt not in residents for p in run.roster.producers.values()):
            return True
    return False
