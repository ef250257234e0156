"""The producer jobs of one run, a job per epoch. No sockets, no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.spark.driver.timing import Timing


class EpochJobs:
    """The jobs that have not ended, and those to cancel."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        #: Epochs whose jobs have not ended.
        self.left: set[int] = set()
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
        self.was_cancelled = False
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
            self._due = now + self._timing.keep_job if is_unconfirmed else now
        if now < self._due:
            return []
        self._due = now + self._timing.cancel_again
        self.was_cancelled = True
        return stale
