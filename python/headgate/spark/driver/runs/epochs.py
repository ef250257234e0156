"""The begin and the end of the epochs of a run, and of the run itself. No sockets, no Spark.

The loss of a member ends an epoch. Producers stop. Consumers begin again, in place or as a further
attempt of their task. Then a new producer job begins the next epoch (docs/adr/0010-epochs.md).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from headgate.control.cause import CANCELLED, Cause
from headgate.spark.driver.runs.epoch_causes import EpochCauses, Retries
from headgate.spark.driver.runs.epoch_jobs import EpochJobs
from headgate.spark.driver.runs.members import (
    Cancel,
    Consumer,
    Effect,
    Ended,
    EpochEnded,
    Member,
    State,
    Submit,
)

if TYPE_CHECKING:
    from headgate.spark.driver.runs.roster import Roster
    from headgate.spark.driver.timing import Timing


class RunState(Enum):
    """The life of a run, in order."""

    FORMING = auto()
    """No producer has a slot yet: consumers may still join."""
    FLOWING = auto()
    """Consumers are started, producers come and go."""
    SEALED = auto()
    """The producer job has ended well; consumers need no other member any more."""
    RECOVERING = auto()
    """An epoch has ended: its tasks stop, and Spark starts lost consumers again."""
    FINISHING = auto()
    """No consumer needs more rows; the producer job is asked to end."""
    OVER = auto()
    """Ended; ``cause`` is None if it ended well."""


class Epochs:
    """The epochs of a run: their jobs, why they ended, and how the run ends.

    Args:
        run: number of the run.
        roster: the members of the run.
        effects: the list to append effects to.
        retries: how often to try again.
        timing: how long to wait.
    """

    def __init__(
        self, run: int, roster: Roster, effects: list[Effect], retries: Retries, timing: Timing
    ) -> None:
        self._timing = timing
        self._run = run
        self._roster = roster
        self._effects = effects
        self.state = RunState.FORMING
        self.causes = EpochCauses(retries, timing)
        self.jobs = EpochJobs(timing)
        #: Why the run failed; None before its end and after a good one.
        self.cause: Cause | None = None
        self._deadline = 0.0

    @property
    def is_over(self) -> bool:
        """True once the run has ended; only its tasks and jobs are left to end."""
        return self.state is RunState.OVER

    @property
    def job_ended(self) -> bool:
        """True while the run has no producer job."""
        return not self.jobs.left

    @property
    def is_cancelled(self) -> bool:
        """True if the run was cancelled from outside."""
        return self.cause is not None and self.cause.is_cancelled

    def is_awaited(self, consumer: Consumer) -> bool:
        """Return True if a consumer, or a further attempt of its task, may need rows."""
        comes_back = self.state is RunState.RECOVERING and consumer.state is State.FAILED
        return consumer.is_present or comes_back

    def submit(self) -> None:
        """Start the producer job of the epoch."""
        self.jobs.submitted(self._roster.epoch)
        self._effects.append(Submit(self._run))

    def flow(self) -> None:
        """Start the consumers of the epoch, once."""
        if self.state is not RunState.FORMING:
            return
        self.state = RunState.FLOWING
        for consumer in self._roster.live_consumers:
            consumer.started = True
            self._roster.send(consumer, "START")

    def seal(self, producers: int) -> None:
        """Tell the consumers that there is no further producer.

        Args:
            producers: number of producers whose rows were taken.
        """
        self.flow()
        self.state = RunState.SEALED
        for consumer in self._roster.live_consumers:
            self._roster.send(consumer, "SEALED", {"producers": producers})

    def end_epoch(self, cause: Cause, member: Member | None, *, is_unconfirmed: bool) -> bool:
        """End the epoch for all members; the next one begins when all are ready.

        Args:
            cause: why it ends.
            member: the member that was lost, if one is known.
            is_unconfirmed: True if only a worker reported it, about a peer.

        Returns:
            False if no epoch was running; ``cause`` may explain the end of the last one.
        """
        roster = self._roster
        if self.state is RunState.RECOVERING and not is_unconfirmed:
            self.causes.replace(cause, member)
        if self.state not in {RunState.FORMING, RunState.FLOWING}:
            return False
        self.causes.epoch_ended(cause, member, is_unconfirmed=is_unconfirmed)
        producers = [*roster.producers.values(), *roster.parked]
        started = [c for c in roster.live_consumers if c.started]
        roster.tell_all([*started, *producers], "EPOCH_ENDED", cause.fields())
        for consumer in started:
            consumer.started = consumer.ready = False
        for producer in producers:
            if producer.state in {State.LIVE, State.PARKED}:
                producer.state = State.ENDING
        self._effects.append(EpochEnded(self._run, roster.epoch, cause))
        self.state = RunState.RECOVERING
        self.jobs.epoch_ended()
        roster.begin_epoch()
        return True

    def finish(self) -> None:
        """End the run well, after its producer job."""
        if self.job_ended:
            self._end(None)
            return
        self.state = RunState.FINISHING
        roster = self._roster
        roster.tell_all([*roster.live_producers, *roster.parked], "FINISH", {})

    def fail(self, cause: Cause) -> None:
        """End the run; only the first cause counts."""
        if self.is_over:
            return
        self._roster.tell_all(self._roster.members, "ABORT", cause.fields())
        self._end(cause)

    def cancel(self) -> None:
        """End the run as cancelled; by the first cause if no further epoch was allowed."""
        is_last = self.state is RunState.RECOVERING and self.causes.refusal
        self.fail(self.causes.verdict if is_last else CANCELLED)

    def stage_failed(self) -> None:
        """End the run because its stage failed: by the cause of the last epoch's end, if there is one."""
        self.fail(self.causes.verdict if self.state is RunState.RECOVERING else CANCELLED)

    def tick(self, now: float) -> None:
        """Do what time makes due."""
        if self.state is RunState.RECOVERING:
            self._recover(now)
        if self.state is RunState.FINISHING:
            self._deadline = self._deadline or now + self._timing.finish
            if now >= self._deadline:
                self._end(None)
        current = None if self.is_over else self._roster.epoch
        is_unconfirmed = current is not None and self.causes.is_unconfirmed
        stale = self.jobs.to_cancel(current, now, is_unconfirmed=is_unconfirmed)
        self._effects += [Cancel(self._run, epoch) for epoch in stale]

    def _recover(self, now: float) -> None:
        if self._roster.asks_spark:
            return
        is_explained = self.causes.is_explained(now)
        if self.causes.last.is_cancelled or self.causes.refusal:
            if is_explained:
                self.fail(self.causes.verdict)
            return
        awaited = [c for c in self._roster.consumers.values() if self.is_awaited(c)]
        for consumer in awaited:
            if consumer.state is State.LIVE and consumer.yielded:
                self._roster.send(consumer, "ABORT", self.causes.last.fields())
                consumer.state = State.FAILED
        if self.job_ended and all(c.state is State.LIVE and c.ready for c in awaited):
            self.state = RunState.FORMING
            self.submit()

    def _end(self, cause: Cause | None) -> None:
        self.state = RunState.OVER
        self.cause = cause
        self._effects.append(Ended(self._run, cause))
