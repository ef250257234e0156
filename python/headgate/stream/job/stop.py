"""The end of a job as its user wants it."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from headgate.stream.job.status import JobState


@dataclass(slots=True)
class Stop:
    """The end of a job that its user wants: state, savepoint, and how far that is. The coordinator's thread uses it.

    Attributes:
        goal: the state that the user wants the job to end in; None if it ends with its sources.
        savepoint: folder of the last checkpoint; None for the job's own.
        answer: gets the folder.
        attempt: number of the attempt that takes the last checkpoint; 0 if none does.
        checkpoint: id of the last checkpoint when all tasks have acknowledged it: it may be in the log before it is
            committed. The thread of files sets this one and the next.
        written: folder of a last savepoint that is written, and may not be in the log.
    """

    goal: JobState | None = None
    savepoint: str | None = None
    answer: Future[str] | None = None
    attempt: int = 0
    checkpoint: int | None = None
    written: str | None = None

    @property
    def end(self) -> JobState:
        """The state that the job ends in."""
        return self.goal or JobState.FINISHED

    def give_up(self) -> None:
        """Forget a savepoint that failed, so that the job goes on; one that is drained ends without it."""
        self.savepoint = self.answer = None
        self.attempt = 0
        if self.goal is not JobState.FINISHED:
            self.goal = None
