"""The producer jobs of one run, a job per epoch. No sockets, no Spark."""

from __future__ import annotations

from typing import Final

#: Seconds that an epoch which ended by hearsay keeps its job: Spark's words for a task that it was
#: told to kill would hide that its process was gone before.
PATIENCE: Final = 0.5
#: Seconds between two cancellations: a job may be submitted after its tag was cancelled.
_AGAIN: Final = 1.0


class EpochJobs:
    """Which jobs have not ended, and which of them must be cancelled."""

    def __init__(self) -> None:
        #: Epochs whose jobs have not ended.
        self.left: set[int] = set()
        #: Whether Spark runs a task of the newest one.
        self.is_active = False
        #: Whether the one of the epoch that ended last was told to end.
        self.was_cancelled = False
        self._due: float | None = None

    def submitted(self, epoch: int) -> None:
        """Take note of a job that is about to start."""
        self.left.add(epoch)

    def ended(self, epoch: int) -> None:
        """Take note of the end of a job."""
        self.left.discard(epoch)

    def epoch_ended(self) -> None:
        """Take note that the newest job is of no use any more."""
        self.is_active = self.was_cancelled = False
        self._due = None

    def to_cancel(self, current: int | None, now: float, *, is_unconfirmed: bool) -> list[int]:
        """Return the epochs whose jobs are to be told to end, now or again.

        Args:
            current: the epoch whose job may go on; None for none.
            now: seconds on a monotonic clock.
            is_unconfirmed: nobody has said yet what ended the last epoch.
        """
        stale = sorted(self.left - {current})
        if not stale:
            return []
        if self._due is None:
            self._due = now + PATIENCE if is_unconfirmed else now
        if now < self._due:
            return []
        self._due = now + _AGAIN
        self.was_cancelled = True
        return stale
