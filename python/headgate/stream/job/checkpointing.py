"""Carries out what the machine of checkpoints decides: triggers, files, commits, and answers to those who asked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

from headgate.control.cause import Cause
from headgate.errors import CheckpointError
from headgate.stream.job.checkpoints import Abort, Complete, FailJob, Trigger
from headgate.stream.job.history import CheckpointHistory
from headgate.stream.job.messages import text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from headgate.errors import HeadgateError
    from headgate.stream.job.attempt import Attempt
    from headgate.stream.job.checkpoints import Effect
    from headgate.stream.job.config import JobConfig
    from headgate.stream.job.files import JobFiles
    from headgate.stream.job.messages import StreamMessage


class CheckpointingHost(Protocol):
    """What checkpoints need of the coordinator, on its thread."""

    def to_all(self, attempt: Attempt, kind: str, **fields: Any) -> None:
        """Send a message to all workers."""

    def call(self, action: Callable[[], None]) -> None:
        """Have an action done on the coordinator's thread; from any thread."""

    def in_files(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Have work done on the thread of files, then an action with its result on the coordinator's."""

    def fail(self, cause: Cause) -> None:
        """End the attempt because of a failure."""

    def checkpoint_completed(self, trigger: Trigger) -> None:
        """Handle that a checkpoint is complete, and committed."""


class Checkpointing:
    """The checkpoints and savepoints of one job, on the coordinator's thread.

    Args:
        config: options of the job.
        files: writes and commits.
        host: the coordinator.

    Attributes:
        history: figures of the last checkpoints.
        last_id: id of the last checkpoint that an earlier attempt began.
    """

    def __init__(self, config: JobConfig, files: JobFiles, host: CheckpointingHost) -> None:
        self.history = CheckpointHistory()
        self.last_id = 0
        self._config, self._files, self._host = config, files, host
        #: Who waits for the savepoint of a folder.
        self._answers: dict[str, Future[str]] = {}

    def look(self, attempt: Attempt) -> None:
        """Begin a checkpoint that is due, or give up one that takes too long."""
        if attempt.checkpoints is not None:
            self._carry_out(attempt, attempt.checkpoints.on_time(now_ms()))

    def last(self, attempt: Attempt, savepoint: str | None) -> None:
        """Take the last checkpoint of the job, once."""
        if attempt.is_last_asked or attempt.checkpoints is None:
            return
        attempt.is_last_asked = True
        self._carry_out(attempt, attempt.checkpoints.request(savepoint, stop=True, now=now_ms()))

    def savepoint(self, attempt: Attempt | None, savepoint: str) -> None:
        """Take a savepoint of a job that goes on, whose answer is expected."""
        if attempt is None or attempt.is_over or attempt.checkpoints is None:
            self._refuse(savepoint, "the job is not running, so no savepoint can be taken")
            return
        self._carry_out(attempt, attempt.checkpoints.request(savepoint, stop=False, now=now_ms()))

    def acknowledged(self, attempt: Attempt, message: StreamMessage) -> None:
        """Take a task's part of a checkpoint."""
        if attempt.checkpoints is None:
            return
        checkpoint, state = message["checkpoint"], message["state"]
        stats = self.history.find(checkpoint)
        if stats is not None:
            stats.bytes += state["bytes"]
            stats.barrier = max(stats.barrier, state["start_delay"])
            stats.sync = max(stats.sync, state["sync"])
            stats.alignment = max(stats.alignment, state["alignment"])
        task = tuple(message["task"])
        effects = attempt.checkpoints.on_acknowledged(task, checkpoint, state, now_ms())
        self._carry_out(attempt, effects)

    def declined(self, attempt: Attempt, checkpoint: int, reason: str) -> None:
        """Give up a checkpoint in which a task has no part."""
        if attempt.checkpoints is not None:
            effects = attempt.checkpoints.on_declined(checkpoint, reason, now_ms())
            self._carry_out(attempt, effects)

    def close(self, attempt: Attempt, reason: str) -> None:
        """Give up the checkpoint of an attempt that is over."""
        if attempt.checkpoints is not None:
            self.last_id = max(self.last_id, attempt.checkpoints.next_id - 1)
            for effect in attempt.checkpoints.close(reason):
                if isinstance(effect, Abort):
                    self._note_failed(effect)

    def expect(self, savepoint: str, answer: Future[str]) -> None:
        """Remember who waits for a savepoint."""
        self._answers[savepoint] = answer

    def _carry_out(self, attempt: Attempt, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Trigger):
                self._trigger(attempt, effect)
            elif isinstance(effect, Complete):
                self._complete(attempt, effect)
            elif isinstance(effect, Abort):
                self._note_failed(effect)
                checkpoint, reason = effect.checkpoint, effect.reason
                self._host.to_all(attempt, "ABORT", checkpoint=checkpoint, reason=reason)
                attempt.sources.abort(checkpoint)
            elif isinstance(effect, FailJob):
                self._host.fail(
                    Cause.of(
                        CheckpointError(
                            f"too many checkpoints failed, the last one because {effect.reason}"
                        )
                    )
                )

    def _trigger(self, attempt: Attempt, trigger: Trigger) -> None:
        checkpoint = trigger.checkpoint
        now = int(time.time() * 1000)
        self.history.begin(checkpoint, now, trigger.savepoint)
        attempt.enumerators[checkpoint] = {}
        fields = {
            "checkpoint": checkpoint,
            "timestamp": now,
            "alignment": "aligned" if trigger.savepoint else self._config.alignment,
            "timeout": self._config.aligned_timeout,
            "savepoint": trigger.savepoint,
            "stop": trigger.stop,
        }

        def taken(stage: int, uid: str, state: bytes | None, error: HeadgateError | None) -> None:
            self._host.call(lambda: self._enumerated(attempt, fields, stage, uid, state, error))

        attempt.sources.checkpoint(checkpoint, taken)

    def _enumerated(
        self,
        attempt: Attempt,
        fields: dict[str, Any],
        stage: int,
        uid: str,
        state: bytes | None,
        error: HeadgateError | None,
    ) -> None:
        if attempt.is_over:
            return
        checkpoint = fields["checkpoint"]
        if state is None:
            self.declined(attempt, checkpoint, f"the enumerator of {uid} has no state: {error}")
            return
        attempt.enumerators.setdefault(checkpoint, {})[uid] = text(state)
        # Before any message of the enumerator that follows its state: those come later on this thread.
        self._host.to_all(attempt, "TRIGGER", stage=stage, **fields)

    def _complete(self, attempt: Attempt, effect: Complete) -> None:
        """Write the checkpoint's metadata and commit, on the thread of files; then tell the tasks."""
        enumerators = attempt.enumerators.pop(effect.checkpoint)

        def then(failure: str) -> None:
            if failure:
                self._note_failed(Abort(effect.checkpoint, failure, effect.trigger))
            self._completed(attempt, effect)

        self._host.in_files(lambda: self._files.complete(effect, enumerators, attempt.name), then)

    def _completed(self, attempt: Attempt, effect: Complete) -> None:
        checkpoint, trigger = effect.checkpoint, effect.trigger
        stats = self.history.find(checkpoint)
        if stats is not None and stats.status == "pending":
            stats.status = "complete"
            stats.duration = int(time.time() * 1000) - stats.triggered
        if trigger.savepoint is not None:
            answer = self._answers.pop(trigger.savepoint, None)
            if answer is not None and not answer.done():
                answer.set_result(trigger.savepoint)
        if not attempt.is_over:
            is_savepoint = trigger.savepoint is not None
            self._host.to_all(attempt, "COMPLETE", checkpoint=checkpoint, savepoint=is_savepoint)
            if not is_savepoint:
                attempt.sources.complete(checkpoint)
            if trigger.stop:
                self._host.to_all(attempt, "FINISH")
        self._host.checkpoint_completed(trigger)

    def _note_failed(self, effect: Abort) -> None:
        stats = self.history.find(effect.checkpoint)
        if stats is not None:
            stats.status = "failed"
            stats.reason = effect.reason
        savepoint = effect.trigger.savepoint
        if savepoint is not None and not effect.trigger.stop:
            self._refuse(savepoint, f"the savepoint {savepoint} was given up: {effect.reason}")

    def _refuse(self, savepoint: str, why: str) -> None:
        answer = self._answers.pop(savepoint, None)
        if answer is not None and not answer.done():
            answer.set_exception(CheckpointError(why))


def refuse_ended(answer: Future[str], failure: HeadgateError | None) -> None:
    """Answer that the job has ended, unless there is an answer."""
    if not answer.done():
        ended = CheckpointError("the job ended before the savepoint was taken")
        answer.set_exception(failure or ended)


def now_ms() -> int:
    """Return ms of a monotonic clock."""
    return time.monotonic_ns() // 1_000_000
