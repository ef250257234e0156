"""Carries out the checkpoints of a job: triggers them, has them written, and tells who waits for a savepoint."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, Protocol

from headgate.control.cause import Cause
from headgate.errors import CheckpointError, HeadgateError
from headgate.observe.record import CheckpointStats
from headgate.stream.job.checkpoints import (
    Abort,
    CheckpointCoordinator,
    Complete,
    Effect,
    FailJob,
    Trigger,
)
from headgate.stream.job.completed import CompletedCheckpoints
from headgate.stream.job.messages import to_base64
from headgate.stream.job.store import CheckpointStore, Completed, FencedError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle

    from headgate.stream.graph.stages import JobGraph, TaskId
    from headgate.stream.job.attempt import Attempt
    from headgate.stream.job.config import JobConfig
    from headgate.stream.job.notices import Notices
    from headgate.stream.job.stop import Stop

#: Most checkpoints whose figures are held.
_HISTORY: Final = 100


class Coordinator(Protocol):
    """The coordinator of a job, as its checkpoints call it."""

    notices: Notices

    def call(self, action: Callable[[], None]) -> None:
        """Call an action on the coordinator's thread; from any thread."""

    def guarded(self, action: Callable[[], None]) -> None:
        """Call an action, and let its errors fail the job."""

    def tell(self, attempt: Attempt, kind: str, **fields: Any) -> None:
        """Send a message to all workers."""

    def fail(self, cause: Cause, attempt: Attempt, *, is_final: bool = False) -> None:
        """Handle an error that ends an attempt; ``is_final`` if it would end each one."""

    def on_complete(self, attempt: Attempt, trigger: Trigger) -> None:
        """Handle that a checkpoint is complete, and that its output is committed."""

    def on_stop_failed(self, attempt: Attempt) -> None:
        """Handle that the savepoint failed with which the job was to stop."""


class Checkpointing:
    """The checkpoints of all attempts of a job.

    The coordinator's thread calls all methods. Files are written and sinks commit on a thread of its own, one after the
    other.

    Args:
        graph: the job.
        config: its options.
        store: keeps checkpoints; None if there are none.
        stop: how the job is to end.
        loop: of the coordinator's thread, for what is due later.
        coordinator: of the job.

    Attributes:
        completed: those that are written; its methods run on the thread of files, but before the job starts.
        history: figures of the last checkpoints, the oldest first.
    """

    def __init__(
        self,
        graph: JobGraph,
        config: JobConfig,
        store: CheckpointStore | None,
        stop: Stop,
        loop: AbstractEventLoop,
        coordinator: Coordinator,
    ) -> None:
        self.history: deque[CheckpointStats] = deque(maxlen=_HISTORY)
        self.completed = CompletedCheckpoints(graph, config, store, stop, coordinator.notices)
        self._config = config
        self._is_bounded = graph.is_bounded
        self._stop = stop
        self._loop = loop
        self._coordinator = coordinator
        self._files = ThreadPoolExecutor(1, thread_name_prefix="headgate-checkpoints")
        #: Newest id that an attempt of this driver has used.
        self._latest = 0
        #: Calls :meth:`_on_time` when the next checkpoint is due, or the pending one takes too long.
        self._timer: TimerHandle | None = None
        #: Answers to requests for savepoints that are being taken, by folder.
        self._answers: dict[str, Future[str]] = {}
        #: Savepoints that somebody asked for while no task ran.
        self._waiting: list[tuple[str, Future[str]]] = []

    def restore(
        self,
        attempt: int,
        then: Callable[[Completed | None], None],
        failed: Callable[[Cause, bool], None],
    ) -> None:
        """Read what the attempt continues from, and commit what that has; then call one of two functions."""
        self._in_files(lambda: self.completed.read(attempt), then, failed)

    def is_final(self, restored: Completed | None) -> bool:
        """Return True if a checkpoint is the last one, whose output is committed by now: nothing is left to do."""
        if restored is None or restored.checkpoint != self._stop.checkpoint:
            return False
        for savepoint in list(self._answers):
            self._answer(savepoint, None)
        return True

    def begin(self, attempt: Attempt) -> None:
        """Take checkpoints of an attempt whose tasks run."""
        first = 1 + max(self.completed.last, self._latest)
        attempt.checkpoints = CheckpointCoordinator(
            self._config.checkpoints, attempt.worker_of, first, _now()
        )
        self._carry_out(attempt, [])
        waiting, self._waiting = self._waiting, []
        for savepoint, answer in waiting:
            self.request(attempt, savepoint, stop=False, answer=answer)

    def request(
        self,
        attempt: Attempt | None,
        savepoint: str | None,
        *,
        stop: bool,
        answer: Future[str] | None,
    ) -> None:
        """Take a checkpoint or savepoint as soon as possible; ``stop`` if it is the last one.

        A savepoint waits for the next attempt if no task runs.
        """
        if savepoint is not None and answer is not None:
            if attempt is None or attempt.running is None:
                self._waiting.append((savepoint, answer))
                return
            # An attempt that follows a failed one asks again, for the same answer.
            if self._answers.get(savepoint, answer) is not answer:
                answer.set_exception(CheckpointError(f"the savepoint {savepoint} is being taken"))
                return
            self._answers[savepoint] = answer
        if attempt is not None and attempt.running is not None:
            effects = attempt.running.request(savepoint, stop=stop, now=_now())
            self._carry_out(attempt, effects)

    def acknowledged(
        self, attempt: Attempt, task: TaskId, checkpoint: int, state: Mapping[str, Any]
    ) -> None:
        """Take a task's part of a checkpoint."""
        stats = self._stats_of(checkpoint)
        if stats is not None:
            stats.bytes += state["bytes"]
            stats.in_flight += state["in_flight"]
            stats.barrier = max(stats.barrier, state["start_delay"])
            stats.sync = max(stats.sync, state["sync"])
            stats.alignment = max(stats.alignment, state["alignment"])
        if attempt.running is not None:
            self._carry_out(attempt, attempt.running.on_acknowledged(task, checkpoint, state))

    def declined(self, attempt: Attempt, checkpoint: int, reason: str) -> None:
        """Give up a checkpoint that a task has no part in."""
        if attempt.running is not None:
            self._carry_out(attempt, attempt.running.on_declined(checkpoint, reason, _now()))

    def end_attempt(self, attempt: Attempt, reason: str) -> None:
        """Give up the pending checkpoint of an attempt that ends."""
        self._cancel_timer()
        if attempt.checkpoints is not None:
            self._latest = max(self._latest, attempt.checkpoints.next_id - 1)
            for effect in attempt.checkpoints.close(reason):
                self._note_failed(effect)
        self._files.submit(attempt.sources.close)

    def close(self) -> None:
        """Wait for files and commits."""
        self._files.shutdown()
        self.completed.close()

    def _carry_out(self, attempt: Attempt, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Trigger):
                self._trigger(attempt, effect)
            elif isinstance(effect, Complete):
                self._complete(attempt, effect)
            elif isinstance(effect, Abort):
                self._abort(attempt, effect)
            elif isinstance(effect, FailJob):
                error = CheckpointError(
                    f"too many checkpoints failed, the last one because {effect.reason}",
                    remedy='a longer checkpoint_timeout= · alignment="unaligned" · tolerable_failures= above '
                    f"{self._config.checkpoints.tolerable_failures} · free space in the checkpoint folder",
                )
                self._coordinator.fail(Cause.of(error), attempt)
        due = None if attempt.running is None else attempt.running.due
        if self._timer is None or due is None or self._timer.when() != due / 1000:
            self._cancel_timer()
            if due is not None:
                self._timer = self._loop.call_at(due / 1000, self._on_time, attempt)

    def _on_time(self, attempt: Attempt) -> None:
        """Begin a checkpoint that is due, or give up one that takes too long."""
        self._timer = None

        def begin() -> None:
            if attempt.running is not None:
                self._carry_out(attempt, attempt.running.on_time(_now()))

        self._coordinator.guarded(begin)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _trigger(self, attempt: Attempt, trigger: Trigger) -> None:
        checkpoint = trigger.checkpoint
        now = int(time.time() * 1000)
        self.history.append(CheckpointStats(checkpoint, now, trigger.savepoint))
        attempt.enumerators[checkpoint] = {}
        # Savepoints and the last checkpoint have no rows in flight.
        may_overtake = self.completed.can_restore and trigger.savepoint is None and not trigger.stop
        alignment = self._config.alignment
        if alignment != "at_least_once" and not may_overtake:
            alignment = "aligned"
        fields = {
            "checkpoint": checkpoint,
            "timestamp": now,
            "alignment": alignment,
            "timeout": self._config.aligned_timeout if alignment == "timeoutable" else 0,
            "savepoint": trigger.savepoint,
            "stop": trigger.stop,
            "has_state": not self._is_commit_only(attempt, trigger),
        }

        def on_state(
            stage: int, uid: str, state: bytes | None, error: HeadgateError | None
        ) -> None:
            reason = f"the enumerator of {uid} has no state: {error}"
            encoded = None if state is None else to_base64(state)
            self._coordinator.call(
                lambda: self._enumerated(attempt, fields, (stage, uid), encoded, reason)
            )

        attempt.sources.checkpoint(checkpoint, on_state)

    def _is_commit_only(self, attempt: Attempt, trigger: Trigger) -> bool:
        """Return True for a last checkpoint that nothing can continue from: its sources have no more rows, ever."""
        is_last = trigger.stop and trigger.savepoint is None
        return is_last and attempt.has_ended and self._is_bounded

    def _enumerated(
        self,
        attempt: Attempt,
        fields: dict[str, Any],
        source: tuple[int, str],
        state: str | None,
        reason: str,
    ) -> None:
        checkpoint, (stage, uid) = fields["checkpoint"], source
        if attempt.running is None:
            return
        if state is None:
            self.declined(attempt, checkpoint, reason)
        elif attempt.running.pending == checkpoint:
            attempt.enumerators[checkpoint][uid] = state
            # Before any message of the enumerator that follows its state: those come later on this thread.
            self._coordinator.tell(attempt, "TRIGGER", stage=stage, **fields)

    def _abort(self, attempt: Attempt, effect: Abort) -> None:
        self._note_failed(effect)
        attempt.enumerators.pop(effect.checkpoint, None)
        self._coordinator.tell(attempt, "ABORT", checkpoint=effect.checkpoint, reason=effect.reason)
        attempt.sources.abort(effect.checkpoint)
        if effect.trigger.stop and effect.trigger.savepoint is not None:
            self._answer(effect.trigger.savepoint, effect.reason)
            self._coordinator.on_stop_failed(attempt)

    def _complete(self, attempt: Attempt, effect: Complete) -> None:
        """Write the metadata and commit, on the thread of files; then tell the tasks."""
        checkpoint, trigger = effect.checkpoint, effect.trigger
        enumerators = attempt.enumerators.pop(checkpoint)
        has_ended = trigger.stop and attempt.has_ended

        def ended(reason: str | None) -> None:
            if reason is None:
                self._completed_by(attempt, trigger)
            elif attempt.running is not None:
                self._carry_out(attempt, attempt.running.on_failed(checkpoint, reason, _now()))
            else:
                self._abort(attempt, Abort(checkpoint, reason, trigger))

        def failed(cause: Cause, is_final: bool) -> None:
            # The restore of the next attempt commits what was not, if the checkpoint is in the log.
            if is_final or not attempt.is_over:
                self._coordinator.fail(cause, attempt, is_final=is_final)

        self._in_files(
            lambda: self.completed.write(attempt.name, effect, enumerators, has_ended=has_ended),
            ended,
            failed,
        )

    def _completed_by(self, attempt: Attempt, trigger: Trigger) -> None:
        stats = self._stats_of(trigger.checkpoint)
        if stats is not None and stats.status == "pending":
            stats.status = "complete"
            stats.duration = int(time.time() * 1000) - stats.triggered
        if trigger.savepoint is not None:
            self._answer(trigger.savepoint, None)
        if not attempt.is_over:
            is_savepoint = trigger.savepoint is not None
            fields = {"checkpoint": trigger.checkpoint, "savepoint": is_savepoint}
            self._coordinator.tell(attempt, "COMPLETE", **fields)
            if not is_savepoint:
                attempt.sources.complete(trigger.checkpoint)
        self._coordinator.on_complete(attempt, trigger)
        if attempt.running is not None:
            effects = attempt.running.on_completed(trigger.checkpoint, _now())
            self._carry_out(attempt, effects)

    def _stats_of(self, checkpoint: int) -> CheckpointStats | None:
        return next((stats for stats in self.history if stats.checkpoint == checkpoint), None)

    def _note_failed(self, effect: Abort) -> None:
        stats = self._stats_of(effect.checkpoint)
        if stats is not None:
            stats.status = "failed"
            stats.reason = effect.reason
        savepoint = effect.trigger.savepoint
        if savepoint is not None and not effect.trigger.stop:
            self._answer(savepoint, effect.reason)

    def _answer(self, savepoint: str, failure: str | None) -> None:
        """Answer whoever asked for a savepoint."""
        answer = self._answers.pop(savepoint, None)
        if answer is None or answer.done():
            return
        if failure is None:
            answer.set_result(savepoint)
        else:
            summary = f"the savepoint {savepoint} was given up: {failure}"
            answer.set_exception(CheckpointError(summary))

    def _in_files(
        self,
        work: Callable[[], Any],
        then: Callable[[Any], None],
        failed: Callable[[Cause, bool], None],
    ) -> None:
        """Run work on the thread of files, then one of two actions on the coordinator's thread."""

        def run() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - passed on
                cause, is_final = Cause.of(error), isinstance(error, FencedError)
                self._coordinator.call(lambda: failed(cause, is_final))
            else:
                self._coordinator.call(lambda: then(result))

        self._files.submit(run)


def _now() -> int:
    return time.monotonic_ns() // 1_000_000
