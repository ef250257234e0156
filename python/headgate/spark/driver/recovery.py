"""Why the epochs of a run ended, and whether it may begin again. No sockets, no Spark."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.spark.driver.members import Member
    from headgate.spark.wire.cause import Cause

#: Seconds that what a worker heard of a peer waits for better words: which process was lost, and why.
GRACE: Final = 2.0


@dataclass(frozen=True, slots=True)
class Retries:
    """How often things are tried again, as Spark is configured.

    Attributes:
        tasks: attempts that Spark gives a task: 1 in ``local[n]``, where a lost consumer is final.
        epochs: of a run: ``spark.task.maxFailures``.
    """

    tasks: int = 4
    epochs: int = 4


class Recovery:
    """The causes of one run, an entry per epoch that has ended, and what they allow.

    Args:
        retries: how often things are tried.
    """

    def __init__(self, retries: Retries) -> None:
        self.retries = retries
        self.causes: list[Cause] = []
        #: Why no further epoch helps, in words; empty while one may.
        self.refusal = ""
        self._is_hearsay = False
        self._member: Member | None = None
        self._deadline = 0.0
        #: Why Spark gave up the job of the last epoch, where it did so by itself.
        self._job: Cause | None = None

    def epoch_ended(self, cause: Cause, member: Member | None, *, is_hearsay: bool) -> None:
        """Open an entry: what ended an epoch.

        Args:
            cause: why.
            member: whose loss it is.
            is_hearsay: a worker heard it from a peer; others may know better.
        """
        self.causes.append(cause)
        self._member, self._is_hearsay, self._deadline = member, is_hearsay, 0.0
        self._job = None
        if len(self.causes) >= self.retries.epochs:
            self.refuse(f"given up after {len(self.causes)} epochs")

    def refuse(self, why: str) -> None:
        """Take note that no further epoch helps."""
        self.refusal = self.refusal or why

    def known_better(self, cause: Cause, member: Member | None) -> None:
        """Take better words for what ended the last epoch: of the same loss, or instead of hearsay."""
        if self.causes and (self._is_hearsay or member is self._member):
            self.causes[-1] = cause
            self._is_hearsay, self._member = False, member

    def job_failed(self, cause: Cause) -> None:
        """Take note of why Spark gave up the job of the last epoch."""
        self._job = cause
        if self._is_hearsay:
            self.known_better(cause, None)

    def doubt(self, cause: Cause) -> None:
        """Take words for the last epoch's end that others may know better."""
        self.causes[-1] = self._job or cause
        self._is_hearsay, self._deadline = self._job is None, 0.0

    @property
    def is_hearsay(self) -> bool:
        """Whether the last epoch ended by what a worker heard of a peer."""
        return self._is_hearsay

    def is_of(self, member: Member) -> bool:
        """Whether the last epoch ended by this member's loss."""
        return self._member is member

    def is_explained(self, now: float) -> bool:
        """Whether nobody is waited for who may know better."""
        if self._is_hearsay and not self._deadline:
            self._deadline = now + GRACE
        return not self._is_hearsay or now >= self._deadline

    @property
    def last(self) -> Cause:
        """What ended the last epoch."""
        return self.causes[-1]

    @property
    def verdict(self) -> Cause:
        """The first cause, with what became of the further tries."""
        first, tries = self.causes[0], len(self.causes)
        if tries == 1 or self.last.is_cancelled:
            return self.last
        have = f"{self.refusal or f'{tries} epochs ended'}; the last by: {self.last.summary}"
        return replace(first, have=have)
