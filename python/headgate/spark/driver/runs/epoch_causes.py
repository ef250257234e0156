"""Why the epochs of a run ended, and whether another one may begin. No sockets, no Spark."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.control.cause import Cause
    from headgate.spark.driver.runs.members import Member
    from headgate.spark.driver.timing import Timing


@dataclass(frozen=True, slots=True)
class Retries:
    """How often Spark and the coordinator try again, as Spark is configured.

    Attributes:
        tasks: attempts that Spark gives a task: 1 in ``local[n]``, where a lost consumer is final.
        epochs: of a run: ``spark.task.maxFailures``.
    """

    tasks: int = 4
    epochs: int = 4


class EpochCauses:
    """The causes of one run, one per epoch that has ended.

    A cause is unconfirmed while it is only what a worker saw of a peer: the loss of a process reaches
    its peers as a broken connection, often before Spark or the coordinator knows of it.

    Args:
        retries: how often to try again.
        timing: how long to wait.
    """

    def __init__(self, retries: Retries, timing: Timing) -> None:
        self.retries = retries
        self._timing = timing
        self.causes: list[Cause] = []
        #: Why no further epoch helps, in words; empty while one may begin.
        self.refusal = ""
        self._is_unconfirmed = False
        #: The member whose loss ended the last epoch, if one is known.
        self._member: Member | None = None
        self._deadline = 0.0
        #: Why Spark gave up the job of the last epoch, if it did so by itself.
        self._job: Cause | None = None

    def epoch_ended(self, cause: Cause, member: Member | None, *, is_unconfirmed: bool) -> None:
        """Add the cause of an epoch's end.

        Args:
            cause: why it ended.
            member: the member that was lost, if one is known.
            is_unconfirmed: True if a worker reported it of a peer.
        """
        self.causes.append(cause)
        self._member, self._is_unconfirmed, self._deadline = member, is_unconfirmed, 0.0
        self._job = None
        if len(self.causes) >= self.retries.epochs:
            self.refuse(f"given up after {len(self.causes)} epochs")

    def refuse(self, why: str) -> None:
        """Allow no further epoch; the first reason stays."""
        self.refusal = self.refusal or why

    def replace(self, cause: Cause, member: Member | None) -> None:
        """Replace the last cause if it is unconfirmed, or of the same member."""
        if self.causes and (self._is_unconfirmed or member is self._member):
            self.causes[-1] = cause
            self._is_unconfirmed, self._member = False, member

    def job_failed(self, cause: Cause) -> None:
        """Record why Spark gave up the job of the last epoch."""
        self._job = cause
        if self._is_unconfirmed:
            self.replace(cause, None)

    def replace_for_now(self, cause: Cause) -> None:
        """Replace the last cause by an unconfirmed one; by that of the job where Spark gave it up."""
        self.causes[-1] = self._job or cause
        self._is_unconfirmed, self._deadline = self._job is None, 0.0

    @property
    def is_unconfirmed(self) -> bool:
        """True while the last cause is only what a worker saw of a peer."""
        return self._is_unconfirmed

    def is_of(self, member: Member) -> bool:
        """Return True if the last epoch ended by this member's loss."""
        return self._member is member

    def is_explained(self, now: float) -> bool:
        """Return True if the last cause is confirmed, or has waited long enough for a better one."""
        if self._is_unconfirmed and not self._deadline:
            self._deadline = now + self._timing.better_cause
        return not self._is_unconfirmed or now >= self._deadline

    @property
    def last(self) -> Cause:
        """The cause of the last epoch's end."""
        return self.causes[-1]

    @property
    def verdict(self) -> Cause:
        """The first cause, with the number of further epochs and how the last one ended."""
        first, tries = self.causes[0], len(self.causes)
        if tries == 1 or self.last.is_cancelled:
            return self.last
        have = f"{self.refusal or f'{tries} epochs ended'}; the last by: {self.last.summary}"
        return dataclasses.replace(first, have=have)
