"""The handle of a running job."""

from __future__ import annotations

import copy
import os
import threading
import time
from concurrent.futures import TimeoutError as FutureTimeoutError
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from headgate._arguments import flag, wait, whole_number
from headgate._arguments import path as checked_path
from headgate.errors import ForkError, HeadgateError, OptionError, StreamError
from headgate.stream.job.run_record import record_of
from headgate.stream.job.status import JobState
from headgate.stream.job.store import CheckpointStore
from headgate.stream.state.locations import absolute

if TYPE_CHECKING:
    from headgate.observe.record import Run
    from headgate.stream.job.master import JobMaster


class Restart(Protocol):
    """Starts a job again as it was started, with other tasks."""

    #: Folder of its checkpoints.
    checkpoint: str | None

    def check(self, parallelism: int) -> None:
        """Refuse a parallelism that the job cannot have."""

    def start(self, parallelism: int, workers: int | None, savepoint: str | None) -> StreamingQuery:
        """Start the job from its last checkpoint, or from a savepoint."""


class StreamingQuery:
    """A running job. Made by :meth:`StreamingJob.start`; as a context manager it cancels the job at the end.

    Args:
        master: runs the job.
        restart: for :meth:`rescale`.
    """

    def __init__(self, master: JobMaster, restart: Restart) -> None:
        self._master = master
        self._restart = restart
        #: Held while the job stops and starts again, so that nobody who waits for its end takes that for it.
        self._rescaling = threading.RLock()
        self._process = os.getpid()

    def _here(self) -> JobMaster:
        """Return the coordinator, whose thread no forked child has."""
        if os.getpid() != self._process:
            raise ForkError(
                f"the job runs in process {self._process}, and this is its child {os.getpid()}",
                remedy="stop(), cancel() and wait in the process that started the job",
            )
        return self._master

    @property
    def state(self) -> JobState:
        """The state of the job."""
        return self._master.state

    @property
    def status(self) -> Run:
        """The record of the job so far: state, tasks, checkpoints, verdict. Figures of tasks are at most a second old."""
        return record_of(self._master)

    def await_termination(self, timeout: float | str | None = None) -> bool:
        """Wait until the job is over.

        Args:
            timeout: seconds, or text such as ``"1m"``; no limit if not given.

        Returns:
            False if the time ran out first.

        Raises:
            HeadgateError: the job failed.
            ForkError: another process started the job.
        """
        limit = wait("timeout", timeout)
        deadline = None if limit is None else time.monotonic() + limit
        while True:
            master = self._here()
            if not master.wait(None if deadline is None else max(0.0, deadline - time.monotonic())):
                return False
            with self._rescaling:
                if master is self._master:
                    break
        if self._master.failure is not None:
            # One of its own: it gets the calls that it comes through, which refer to this job.
            raise copy.copy(self._master.failure)
        return True

    def savepoint(self, path: str, timeout: float | str | None = 600.0) -> str:
        """Take a savepoint, and go on. It has all state, and no output: rows before it are committed by this job.

        Args:
            path: a new folder, or its URI.
            timeout: seconds, or text such as ``"1m"`` to wait for it.

        Returns:
            The folder.

        Raises:
            CheckpointError: it was given up.
            TimeoutError: it is not complete in time; it may be later.
        """
        folder = _savepoint_folder("path", path)
        limit = wait("timeout", timeout)
        return self._here().request(JobState.RUNNING, folder).result(limit)

    def stop(
        self,
        *,
        savepoint: str | None = None,
        drain: bool = False,
        timeout: float | str | None = 600.0,
    ) -> str | None:
        """Take a last checkpoint, commit all output before it, and end the job.

        Args:
            savepoint: a new folder for the last checkpoint, with all state; None for the job's checkpoints.
            drain: True to end for good: sources end, windows close, and all rows are committed. The state that is left is
                of no use to a job that goes on.
            timeout: seconds, or text such as ``"1m"`` to wait for the end.

        Returns:
            The folder of the savepoint.

        Raises:
            HeadgateError: the job failed.
            CheckpointError: the savepoint failed, and the job goes on; a job that is drained ends without it. Or the job
                ended before the savepoint was taken.
            TimeoutError: the job does not end in time; it may later.
        """
        timeout = wait("timeout", timeout)
        goal = JobState.FINISHED if flag("drain", drain) else JobState.STOPPED
        folder = None if savepoint is None else _savepoint_folder("savepoint", savepoint)
        deadline = None if timeout is None else time.monotonic() + timeout
        answer = self._here().request(goal, folder)
        try:
            # It may fail, and the job go on; or the job may have ended by itself before.
            written = answer.result(timeout) if savepoint is not None else None
            rest = None if deadline is None else max(0.0, deadline - time.monotonic())
            is_over = self.await_termination(rest)
        except FutureTimeoutError:
            is_over = False
        if not is_over:
            raise TimeoutError(f"the job has not ended within {timeout} s")
        return written

    def rescale(
        self,
        parallelism: int,
        *,
        workers: int | None = None,
        savepoint: str | None = None,
        timeout: float | str | None = 600.0,
    ) -> None:
        """Go on with another number of tasks: stop with a last checkpoint, and start from it with the same sinks.

        Each row counts once. This query is that of the new tasks afterwards.

        Args:
            parallelism: tasks of operators that have no parallelism of their own.
            workers: processes or Spark tasks; None for as many as :meth:`StreamingJob.start` was told.
            savepoint: a new folder for the last checkpoint; needed for a job without ``checkpoint=``.
            timeout: seconds, or text such as ``"1m"`` to wait for the stop.

        Raises:
            OptionError: a number is outside its limits, or there is no place for the state. The job goes on.
            CheckpointError: the savepoint failed, and the job goes on.
            StreamError: all sources had ended, so that nothing is left to do.
            HeadgateError: the job is stopped and cannot start again; ``remedy`` names what it continues from.
            TimeoutError: the job does not stop in time; it may later.
        """
        restart, place = self._restart, savepoint or self._restart.checkpoint
        restart.check(parallelism)
        if workers is not None:
            whole_number("workers", workers, 0)
        if place is None:
            raise OptionError(
                "rescale() needs a place for the state of the job",
                asked=f"rescale({parallelism}) of a job without checkpoint=",
                remedy='rescale(..., savepoint="folder") · start(checkpoint="folder")',
            )
        with self._rescaling:
            self.stop(savepoint=savepoint, timeout=timeout)
            if self.state is not JobState.STOPPED:
                raise StreamError(
                    f"the job has ended as {self.state.value}, so it cannot go on with other tasks",
                    have="all rows of its sources are done",
                )
            try:
                is_own = restart.checkpoint is not None
                again = restart.start(parallelism, workers, None if is_own else savepoint)
            except HeadgateError as error:
                option = "checkpoint" if is_own else "savepoint"
                goes_on = f"the job is stopped, and start({option}={place!r}, ...) goes on"
                error.remedy = " · ".join(filter(None, (error.remedy, goes_on)))
                raise
            self._master, self._restart = again._master, again._restart  # noqa: SLF001 - of this class

    def cancel(self, timeout: float | str | None = 60.0) -> None:
        """End the job at once. Output since the last checkpoint is dropped; the job can continue from there."""
        limit = wait("timeout", timeout)
        if not self.state.is_over:
            self._here().request(JobState.CANCELLED, None)
        self._here().wait(limit)

    def __enter__(self) -> Self:
        """Return the query itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Cancel the job, unless it is over."""
        self.cancel()


def _savepoint_folder(option: str, value: str) -> str:
    """Return the folder of a new savepoint.

    Raises:
        OptionError: the value is no path.
        CheckpointError: the folder has something already.
    """
    folder = absolute(checked_path(option, value))
    CheckpointStore.refuse_savepoint(folder)
    return folder
