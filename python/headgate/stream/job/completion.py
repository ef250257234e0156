"""Carries out the checkpoints of a job: triggers, metadata, commits, savepoints, and what becomes of failed ones."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, Protocol

from headgate.control.cause import Cause
from headgate.errors import CheckpointError, HeadgateError, OptionError
from headgate.stream.job.checkpoints import (
    Abort,
    CheckpointCoordinator,
    Complete,
    Effect,
    FailJob,
    Trigger,
)
from headgate.stream.job.commits import SinkCommits
from headgate.stream.job.history import CheckpointHistory
from headgate.stream.job.messages import text
from headgate.stream.job.metadata import check_restorable, metadata, names
from headgate.stream.job.store import (
    CheckpointStore,
    Completed,
    FencedError,
    NotWrittenError,
)
from headgate.stream.state.locations import below

if TYPE_CHECKING:
    from headgate.stream.api.graph import JobGraph
    from headgate.stream.job.attempt import Attempt, TaskId
    from headgate.stream.job.config import JobConfig
    from headgate.stream.job.notices import Notices

_LOG: Final = logging.getLogger("headgate.stream")
#: Folder of rows in flight, beside those of operators.
_IN_FLIGHT: Final = "rows in flight"


class Master(Protocol):
    """What the coordinator does for its checkpoints."""

    notices: Notices

    def call(self, action: Callable[[], None]) -> None:
        """Call an action on the coordinator's thread; from any thread."""

    def tell(self, attempt: Attempt, kind: str, **fields: Any) -> None:
        """Send a message to all workers."""

    def fail(self, attempt: Attempt | None, cause: Cause, *, is_final: bool = False) -> None:
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
        master: the coordinator.

    Attributes:
        history: figures of the last checkpoints.
    """

    def __init__(
        self, graph: JobGraph, config: JobConfig, store: CheckpointStore | None, master: Master
    ) -> None:
        self.history = CheckpointHistory()
        self._graph = graph
        self._config = config
        self._store = store
        self._master = master
        self._commits = SinkCommits(graph, config.name)
        sources = {uid: source.name for uid, source in graph.sources.items()}
        self._names = sources | self._commits.names | {"name=": config.name}
        self._files = ThreadPoolExecutor(1, thread_name_prefix="headgate-checkpoints")
        #: Id of the last checkpoint that is complete; of the thread of files.
        self._completed = 0
        #: Newest id that an attempt of this driver has used.
        self._latest = 0
        #: Id of the last checkpoint of the job; it may be in the log before it is committed.
        self._final: int | None = None
        #: Savepoint that the job has written to stop with, which may not have come into the log.
        self._written: str | None = None
        self._answers: dict[str, Future[str]] = {}
        #: Savepoints that somebody asked for while no task ran.
        self._waiting: list[tuple[str, Future[str]]] = []

    def claim(self) -> None:
        """Become the driver of the checkpoint folder; called before all others, on any thread.

        Raises:
            CheckpointError: there is a checkpoint or savepoint that the job cannot continue from.
            OptionError: there are both, and the job does not say from which to continue.
            StreamError: a source would read what a sink writes.
            SinkError: a sink refuses a job that starts for the first time.
        """
        self._commits.check_new_files()
        store, savepoint, restore = self._store, self._config.savepoint, self._config.restore
        if savepoint is not None:
            newest = None if store is None else store.newest()
            if store is not None and newest is not None and restore is None:
                raise OptionError(
                    f"savepoint={savepoint!r} is not where the job would start: {store.uri} has checkpoint {newest}",
                    remedy='restore="latest" for the checkpoint · restore="savepoint" for the savepoint · '
                    "another folder for checkpoint=",
                )
            if newest is None or restore == "savepoint":
                # Before the claim, which may be that none of the checkpoints counts any more.
                started = CheckpointStore.savepoint(savepoint)
                self._check(started)
                self._commits.check(started.checkpoint)
        is_anew = savepoint is not None and restore == "savepoint"
        found = None if store is None else store.claim(anew=is_anew)
        if found is None and savepoint is None:
            self._commits.check(None)
        if store is not None and found is not None:
            self._check_ends(found, store.uri)
            self._check(found)
            for source in self._graph.sources.values() if self._graph.ends_open else ():
                if source.until_now() is source:
                    self._master.notices.add(
                        f"{source.name} ends by itself: what an earlier run has read of it is all that is read"
                    )
            if found.fields.get("has_ended") and self._graph.is_bounded:
                self._master.notices.add(
                    f"an earlier run has read all rows of its sources, as the checkpoint in {store.uri} says:"
                    ' nothing is left to do. start(until="now") reads what is new · an empty folder starts over'
                )

    @property
    def can_restore(self) -> bool:
        """True if a failed job can continue."""
        return self._store is not None

    def restore(self, attempt: int, then: Callable[[Completed | None], None]) -> None:
        """Read what the attempt continues from, and commit what that has; then call a function with it."""

        def read() -> Completed | None:
            found = None
            if self._store is not None:
                found = self._store.latest()
            if found is None and self._config.savepoint is not None:
                found = CheckpointStore.savepoint(self._config.savepoint)
            if found is not None:
                self._check(found)
            self._commits.restore(found, None if self._store is None else self.name(attempt))
            self._completed = 0 if found is None else found.checkpoint
            return found

        def failed(cause: Cause, is_final: bool) -> None:
            self._master.fail(None, cause, is_final=is_final)

        self._in_files(read, then, failed)

    def is_final(self, restored: Completed | None) -> bool:
        """Return True if a checkpoint is the last one, whose output is committed by now: nothing is left to do."""
        if restored is None or restored.checkpoint != self._final:
            return False
        for savepoint in list(self._answers):
            self._answer(savepoint, None)
        return True

    def folders(self, attempt: str, stage: int, index: int) -> dict[str, Any]:
        """Return where a task writes its snapshots and its rows in flight."""
        store = self._store
        if store is None:
            return {"folders": {}, "channels": None}
        uids = [node.uid for node in self._graph.stages[stage].operators]
        found = {
            uid: below(store.uri, store.task_folder(attempt, stage, index, uid))
            for uid in (*uids, _IN_FLIGHT)
        }
        return {"channels": found.pop(_IN_FLIGHT), "folders": found}

    def name(self, attempt: int) -> str:
        """Return the name of an attempt, which no other driver's has."""
        return f"attempt-{attempt}" if self._store is None else self._store.attempt(attempt)

    def begin(self, attempt: Attempt) -> None:
        """Take checkpoints of an attempt whose tasks run."""
        first = 1 + max(self._completed, self._latest)
        attempt.checkpoints = CheckpointCoordinator(
            self._config.checkpoints, attempt.placed, first, _now()
        )
        waiting, self._waiting = self._waiting, []
        for savepoint, answer in waiting:
            self.request(attempt, savepoint, stop=False, answer=answer)

    def tick(self, attempt: Attempt) -> None:
        """Begin a checkpoint that is due, or give up one that takes too long."""
        if attempt.running is not None:
            self._carry_out(attempt, attempt.running.on_time(_now()))

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
        stats = self.history.find(checkpoint)
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
        if attempt.checkpoints is not None:
            self._latest = max(self._latest, attempt.checkpoints.next_id - 1)
            for effect in attempt.checkpoints.close(reason):
                self._note_failed(effect)
        self._files.submit(attempt.sources.close)

    def close(self) -> None:
        """Wait for files and commits."""
        self._files.shutdown()
        self._commits.close()

    def _check_ends(self, found: Completed, folder: str) -> None:
        """Check that a checkpoint is of this job, by what the job reads and writes.

        Raises:
            CheckpointError: it is not, and ``restore="latest"`` does not say that this is meant.
        """
        now = self._names
        before = names(found.fields)
        for uid in sorted(now.keys() & before.keys()):
            if now[uid] == before[uid]:
                continue
            summary = f"{folder} has checkpoints of a job whose {uid} was {before[uid]}, and is {now[uid]} now"
            if self._config.restore != "latest":
                raise CheckpointError(
                    summary,
                    asked=f"checkpoint={folder!r}",
                    have="rows that the other job has read or written count as done by this one",
                    remedy="a folder of its own for checkpoint= · "
                    'restore="latest" if this is the same job, with its data in another place',
                )
            self._master.notices.add(f"{summary}, as restore='latest' allows", logging.WARNING)

    def _check(self, found: Completed) -> None:
        check_restorable(self._graph, found.fields, allow_dropped=self._config.allow_dropped_state)

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
                self._master.fail(attempt, Cause.of(error))

    def _trigger(self, attempt: Attempt, trigger: Trigger) -> None:
        checkpoint = trigger.checkpoint
        now = int(time.time() * 1000)
        self.history.begin(checkpoint, now, trigger.savepoint)
        attempt.enumerators[checkpoint] = {}
        # Savepoints and the last checkpoint have no rows in flight.
        may_overtake = self._store is not None and trigger.savepoint is None and not trigger.stop
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
        }

        def taken(stage: int, uid: str, state: bytes | None, error: HeadgateError | None) -> None:
            reason = f"the enumerator of {uid} has no state: {error}"
            encoded = None if state is None else text(state)
            self._master.call(
                lambda: self._enumerated(attempt, fields, (stage, uid), encoded, reason)
            )

        attempt.sources.checkpoint(checkpoint, taken)

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
            self._master.tell(attempt, "TRIGGER", stage=stage, **fields)

    def _abort(self, attempt: Attempt, effect: Abort) -> None:
        self._note_failed(effect)
        attempt.enumerators.pop(effect.checkpoint, None)
        self._master.tell(attempt, "ABORT", checkpoint=effect.checkpoint, reason=effect.reason)
        attempt.sources.abort(effect.checkpoint)
        if effect.trigger.stop and effect.trigger.savepoint is not None:
            self._stop_failed(attempt, effect.trigger.savepoint, effect.reason)

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
                self._master.fail(attempt, cause, is_final=is_final)

        self._in_files(
            lambda: self._write(attempt, effect, enumerators, has_ended=has_ended), ended, failed
        )

    def _write(
        self, attempt: Attempt, effect: Complete, enumerators: Mapping[str, str], *, has_ended: bool
    ) -> str | None:
        """Write a checkpoint and commit; return None, or why the checkpoint is to be given up."""
        checkpoint, trigger = effect.checkpoint, effect.trigger
        base = trigger.savepoint or ("" if self._store is None else self._store.uri)
        fields = metadata(
            self._graph, checkpoint, effect.states, enumerators, self._completed, base
        )
        fields |= {"has_ended": has_ended, "sinks": self._commits.names, "name": self._config.name}
        entry = fields
        if trigger.savepoint is not None:
            is_own = trigger.stop and trigger.savepoint == self._written
            try:
                CheckpointStore.write_savepoint(trigger.savepoint, fields, replace=is_own)
            except CheckpointError as error:
                return error.summary
            if not trigger.stop:
                return None
            self._written = trigger.savepoint
            entry = {"checkpoint": checkpoint, "savepoint": trigger.savepoint}
        if trigger.stop:
            self._final = checkpoint
        try:
            if self._store is not None:
                self._store.complete(entry)
        except NotWrittenError as error:
            # A savepoint that is there cannot be given up: the next attempt writes its entry.
            if trigger.savepoint is not None:
                raise
            return error.summary
        self._commits.commit(checkpoint, fields)
        self._completed = checkpoint
        self._delete_old(attempt)
        return None

    def _stop_failed(self, attempt: Attempt, savepoint: str, reason: str) -> None:
        """Let the job go on after a savepoint failed with which it was to stop; a drained one ends without it."""
        self._answer(savepoint, reason)
        self._master.on_stop_failed(attempt)

    def _delete_old(self, attempt: Attempt) -> None:
        if self._store is None:
            return
        try:
            self._store.delete_old(attempt.name)
        except CheckpointError as error:
            # The checkpoint is complete. What is left is deleted after the next one.
            _LOG.warning("old checkpoints were not deleted: %s", error.summary)

    def _completed_by(self, attempt: Attempt, trigger: Trigger) -> None:
        stats = self.history.find(trigger.checkpoint)
        if stats is not None and stats.status == "pending":
            stats.status = "complete"
            stats.duration = int(time.time() * 1000) - stats.triggered
        if trigger.savepoint is not None:
            self._answer(trigger.savepoint, None)
        if not attempt.is_over:
            is_savepoint = trigger.savepoint is not None
            fields = {"checkpoint": trigger.checkpoint, "savepoint": is_savepoint}
            self._master.tell(attempt, "COMPLETE", **fields)
            if not is_savepoint:
                attempt.sources.complete(trigger.checkpoint)
        self._master.on_complete(attempt, trigger)
        if attempt.running is not None:
            effects = attempt.running.on_completed(trigger.checkpoint, _now())
            self._carry_out(attempt, effects)

    def _note_failed(self, effect: Abort) -> None:
        stats = self.history.find(effect.checkpoint)
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
                self._master.call(lambda: failed(cause, is_final))
            else:
                self._master.call(lambda: then(result))

        self._files.submit(run)


def _now() -> int:
    return time.monotonic_ns() // 1_000_000
