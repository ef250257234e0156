"""Frees slots when consumers hold all of them, so that producers can run. No sockets, no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate import errors
from headgate.spark.cause import Cause
from headgate.spark.members import Consumer, Effect, Warn
from headgate.spark.run import Run, RunState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headgate.spark.formation import Homes

#: Seconds that all slots are held by waiting consumers before one run is given up.
CIRCLE: Final = 2.0
#: Seconds without a task of the producer job before its run gives up slots, whoever holds the rest.
STARVED: Final = 30.0
#: The same where tasks that wait for a consumer's cached partition hold the rest.
BLOCKED: Final = 1.0


class Relief:
    """Hands subpartitions over to fewer consumers; where that is impossible, fails one run.

    Args:
        homes: which handing over is final already.
        may_hand_over: whether an exchange allows it (``on_no_slots="shuffle"``).
        effects: where to put what is to be done.
    """

    def __init__(
        self, homes: Homes, may_hand_over: Callable[[bytes], bool], effects: list[Effect]
    ) -> None:
        self._homes = homes
        self._may_hand_over = may_hand_over
        self._effects = effects
        self._held: set[int] = set()
        self._since = 0.0

    def check(
        self,
        runs: list[Run],
        consumers: Iterable[Consumer],
        slots: int,
        sharing: Mapping[int, int],
        now: float,
    ) -> None:
        """Look at who holds the slots, and free some when nothing else can.

        Args:
            runs: all of them.
            consumers: all of them.
            slots: of the application.
            sharing: stage -> running tasks, of stages that read what consumers are caching.
            now: seconds on a monotonic clock.
        """
        present = [c for c in consumers if c.is_present]
        held = {c.attempt for c in present}
        if held != self._held:
            self._held, self._since = held, now
        if any(c.leaving for c in present):
            return
        forming = [run for run in runs if run.state is RunState.FORMING]
        if len(held) < slots:
            others = _waiting_for_cache(present, sharing)
            patience = BLOCKED if len(held) + others >= slots else STARVED
            self._relieve_starved(forming, len(held) + others, slots, now, patience)
        elif not _will_move(runs, held) and not self._relieve(forming, len(held), slots):
            self._give_up(runs, len(held), slots, now)

    def _relieve_starved(
        self, forming: list[Run], held: int, slots: int, now: float, patience: float
    ) -> None:
        for run in forming:
            if now - run.started >= patience and not run.job_is_active and self._allowed(run):
                self._hand_over(run, held, slots)
                return

    def _relieve(self, forming: list[Run], held: int, slots: int) -> bool:
        return any(self._allowed(run) and self._hand_over(run, held, slots) for run in forming)

    def _allowed(self, run: Run) -> bool:
        return self._may_hand_over(run.exchange_id)

    def _hand_over(self, run: Run, held: int, slots: int) -> bool:
        homes = self._homes.of(run.exchange_id, run.stage)
        free = [index for index in run.consumers if index not in homes]
        fixed = [index for index in run.consumers if index in homes]
        if not free or len(run.consumers) < 2:
            return False
        kept = min(fixed or free)
        given = [index for index in free if index != kept]
        run.hand_over(given, kept)
        self._homes.fix(run)
        error = errors.NotEnoughSlots(
            f"partition {kept} of this result holds the rows of {len(given)} more partitions",
            asked=f"{held} consumers at the same time",
            have=f"{slots} slots, none left for a producer",
            remedy="a smaller num_partitions for each exchange · more slots",
        )
        self._effects.append(Warn(str(error)))
        return True

    def _give_up(self, runs: list[Run], held: int, slots: int, now: float) -> None:
        stuck = [r for r in runs if r.state in {RunState.FORMING, RunState.FLOWING}]
        if not stuck or now - self._since < CIRCLE:
            return
        last = max(stuck, key=lambda run: (run.state is RunState.FORMING, run.number))
        last.fail(
            Cause(
                errors.SlotsExhausted.code,
                f"all {slots} slots are held by consumers that wait for a producer",
                asked=f"{held} consumers of {len(stuck)} runs at the same time",
                have=f"{slots} slots",
            )
        )
        self._since = now


def _waiting_for_cache(present: list[Consumer], sharing: Mapping[int, int]) -> int:
    """Return how many tasks of the sharing stages are no consumers that we know."""
    return sum(
        max(0, running - len({c.attempt for c in present if c.stage == stage}))
        for stage, running in sharing.items()
    )


def _will_move(runs: list[Run], residents: set[int]) -> bool:
    """Whether a slot becomes free by itself."""
    for run in runs:
        ends = run.state in {RunState.SEALED, RunState.FINISHING, RunState.OVER}
        if ends and any(consumer.is_present for consumer in run.consumers.values()):
            return True
        # A producer in a task that is a consumer too (an exchange of an exchange) frees nothing.
        if any(p.is_present and p.attempt not in residents for p in run.producers.values()):
            return True
    return False
