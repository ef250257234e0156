"""The state of a streaming job."""

from __future__ import annotations

from enum import Enum


class JobState(Enum):
    """The state of a streaming job."""

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    FINISHING = "finishing"
    FINISHED = "finished"
    """All sources have ended, and all output is committed."""
    STOPPED = "stopped"
    """It was stopped with a savepoint or checkpoint, from which it can continue."""
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """True if the job does nothing any more."""
        return self in {self.FINISHED, self.STOPPED, self.CANCELLED, self.FAILED}
