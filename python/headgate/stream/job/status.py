"""What is known of a streaming job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.errors import HeadgateError
    from headgate.stream.job.bottleneck import Bottleneck, Shares
    from headgate.stream.job.history import CheckpointStats


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


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """Figures of one task since the start of the attempt, at most a second old.

    Attributes:
        name: its operators.
        index: number of the task, from 0.
        rows: rows of its input.
        batches: batches of its input.
        watermark: in ms since 1970; None before the first.
        busy: ms in operators, waits for outputs included.
        blocked: ms of these in which it waited for the next stage.
        shares: what it did in the last seconds; None before two reports.
        dropped: rows and values that its operators have dropped: operator -> counter -> number.
    """

    name: str
    index: int
    rows: int = 0
    batches: int = 0
    watermark: int | None = None
    busy: int = 0
    blocked: int = 0
    shares: Shares | None = None
    dropped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """One worker that is connected.

    Attributes:
        number: of the worker, from 0.
        host: name of its host.
        pid: of its process there.
    """

    number: int
    host: str
    pid: int


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    """An attempt that has failed.

    Attributes:
        attempt: its number, from 1.
        code: of the error, such as ``"HG-6001"``.
        summary: one line that says why.
    """

    attempt: int
    code: str
    summary: str


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A snapshot of a job.

    Attributes:
        state: what it does.
        attempt: number of the attempt, from 1.
        restarts: number of failures after which it was started anew.
        tasks: figures of each task.
        checkpoints: figures of the last checkpoints, the oldest first.
        failure: why it failed, if it has.
        bottleneck: the stage that others wait for; None if nobody waits.
        workers: the processes that run it, as far as they are connected.
        ended_attempts: the last attempts that failed, at most 16, the oldest first.
        dropped: rows and values that were dropped since the start of the attempt: operator -> counter -> number.
        notices: sentences about what the user should know, such as late rows.
    """

    state: JobState
    attempt: int
    restarts: int
    tasks: Sequence[TaskStatus]
    checkpoints: Sequence[CheckpointStats]
    failure: HeadgateError | None
    bottleneck: Bottleneck | None
    workers: Sequence[WorkerStatus] = ()
    ended_attempts: Sequence[EndedAttempt] = ()
    dropped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    notices: Sequence[str] = ()
