"""The producer jobs of one run, a job per epoch. No sockets, no Spark."""

from __future__ import annotations

from typing import Final

#: Seconds before the job of an epoch with an unconfirmed cause is cancelled. Afterwards Spark reports
#: each task as killed, also one whose process was lost before.
PATIENCE: Final = 0.5
#: Seconds between two cancellations: Spark may submit a job after its tag was cancelled.
_AGAIN: Final = 1.0


class EpochJobs:
    """The jobs that have not ended, and those to cancel."""

    def __init__(self) -> None:
        #: Epochs whose jobs have not ended.
        self.left: set[int] = set()
        #: True once Spark has run a task of the newest job.
        self.is_active = False
        #: True once the job of the epoch that ended last was cancelled.
        self.was_cancelled = False
        self._due: float | None = None

    def submitted(self, epoch: int) -> None:
        """Add a job that is about to start."""
        self.left.add(epoch)

    def ended(self, epoch: int) -> None:
        """Remove a job that has ended."""
        self.left.discard(epoch)

    def epoch_ended(self) -> None:
        """Let the newest job be cancelled: its epoch has ended."""
        self.is_active = self.was_cancelled = False
        self._due = None

    def to_cancel(self, current: int | None, now: float, *, is_unconfirmed: bool) -> list[int]:
        """Return the epochs whose jobs are to be cancelled now, or once more.

        Args:
            current: the epoch whose job may go on; None for none.
            now: seconds on a monotonic clock.
            is_unconfirmed: True while the cause of the last epoch's end is unconfirmed.
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
