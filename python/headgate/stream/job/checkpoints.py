"""Decides when checkpoints begin, are complete, and are given up; without I/O, clock or threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from headgate.stream.graph.stages import TaskId


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """When checkpoints are taken, and when they fail.

    Attributes:
        interval: ms from the start of one checkpoint to that of the next; None for none but the last one.
        timeout: ms after which a checkpoint is given up that some task has not acknowledged.
        min_pause: ms from the end of one checkpoint, when its output is committed, to the start of the next.
        tolerable_failures: failed checkpoints in a row that do not fail the job.
    """

    interval: int | None
    timeout: int = 600_000
    min_pause: int = 0
    tolerable_failures: int = 0


@dataclass(frozen=True, slots=True)
class Trigger:
    """Begin a checkpoint.

    Attributes:
        checkpoint: its id.
        savepoint: folder of a savepoint; None for a checkpoint.
        stop: True if no row must follow it.
    """

    checkpoint: int
    savepoint: str | None = None
    stop: bool = False


@dataclass(frozen=True, slots=True)
class Complete:
    """All tasks have acknowledged: write the checkpoint's metadata, commit, and tell how that ended.

    Attributes:
        checkpoint: its id.
        states: what each task acknowledged with.
        trigger: how it began.
    """

    checkpoint: int
    states: dict[TaskId, Any]
    trigger: Trigger


@dataclass(frozen=True, slots=True)
class Abort:
    """Give up a checkpoint.

    Attributes:
        checkpoint: its id.
        reason: for people.
        trigger: how it began.
    """

    checkpoint: int
    reason: str
    trigger: Trigger


@dataclass(frozen=True, slots=True)
class FailJob:
    """Fail the job: too many checkpoints failed.

    Attributes:
        reason: of the last one.
    """

    reason: str


Effect: TypeAlias = "Trigger | Complete | Abort | FailJob"


@dataclass(slots=True)
class _Pending:
    trigger: Trigger
    started: int
    missing: set[TaskId]
    states: dict[TaskId, Any] = field(default_factory=dict)


class CheckpointCoordinator:
    """The checkpoints of one attempt of a job. Source: Flink's CheckpointCoordinator.

    One is pending at a time, until it is given up or its output is committed.

    Times are ms of a monotonic clock. Effects are to be carried out in their order.

    Args:
        config: when checkpoints are taken.
        tasks: all tasks of the job.
        first_id: of the next checkpoint; greater than all before.
        now: the time.

    Attributes:
        next_id: id of the next checkpoint.
    """

    def __init__(
        self, config: CheckpointConfig, tasks: Collection[TaskId], first_id: int, now: int
    ) -> None:
        self._config = config
        self._tasks = frozenset(tasks)
        self.next_id = first_id
        self._pending: _Pending | None = None
        self._due = None if config.interval is None else now + config.interval
        #: Checkpoints that somebody asked for, and that wait for the pending one.
        self._requests: deque[tuple[str | None, bool]] = deque()
        self._failures = 0
        self._is_over = False

    @property
    def pending(self) -> int | None:
        """Id of the pending checkpoint."""
        return None if self._pending is None else self._pending.trigger.checkpoint

    @property
    def due(self) -> int | None:
        """Time of the next :meth:`on_time`; None for never."""
        if self._is_over:
            return None
        pending = self._pending
        if pending is None:
            return self._due
        # A commit that has begun cannot be given up.
        return pending.started + self._config.timeout if pending.missing else None

    def on_time(self, now: int) -> list[Effect]:
        """Begin a checkpoint that is due, or give up one that takes too long."""
        if self.due is None or now < self.due:
            return []
        pending = self._pending
        if pending is not None:
            waiting = ", ".join(f"{s}/{i}" for s, i in sorted(pending.missing)[:5])
            return self._give_up(
                pending,
                f"{len(pending.missing)} tasks had not acknowledged it after "
                f"{self._config.timeout} ms: {waiting}",
                now,
            )
        return self._begin(None, stop=False, now=now)

    def request(self, savepoint: str | None, *, stop: bool, now: int) -> list[Effect]:
        """Take a checkpoint or savepoint as soon as none is pending; ``stop`` if it is the last one."""
        self._requests.append((savepoint, stop))
        return [] if self._pending is not None else self._next(now)

    def on_acknowledged(self, task: TaskId, checkpoint: int, state: Any) -> list[Effect]:
        """Take a task's part of a checkpoint; of another than the pending one it is ignored."""
        pending = self._pending
        if (
            pending is None
            or pending.trigger.checkpoint != checkpoint
            or task not in pending.missing
        ):
            return []
        pending.missing.discard(task)
        pending.states[task] = state
        return [] if pending.missing else [Complete(checkpoint, pending.states, pending.trigger)]

    def on_completed(self, checkpoint: int, now: int) -> list[Effect]:
        """Handle that a checkpoint is written, and that its output is committed."""
        pending = self._acknowledged(checkpoint)
        if pending is None:
            return []
        self._pending = None
        self._failures = 0
        self._reschedule(pending.started, now)
        self._is_over = pending.trigger.stop
        return self._next(now)

    def on_failed(self, checkpoint: int, reason: str, now: int) -> list[Effect]:
        """Give up a checkpoint that all tasks have acknowledged and that cannot be written."""
        pending = self._acknowledged(checkpoint)
        return [] if pending is None else self._give_up(pending, reason, now)

    def on_declined(self, checkpoint: int, reason: str, now: int) -> list[Effect]:
        """Give up the pending checkpoint, if it is this one."""
        pending = self._pending
        if pending is None or pending.trigger.checkpoint != checkpoint or not pending.missing:
            return []
        return self._give_up(pending, reason, now)

    def close(self, reason: str) -> list[Abort]:
        """Give up the pending checkpoint and those that wait for it; none begins any more."""
        self._is_over = True
        pending, self._pending = self._pending, None
        # One that all have acknowledged may be complete by now.
        triggers = [pending.trigger] if pending is not None and pending.missing else []
        # No checkpoint has the id of one that did not begin.
        triggers += [Trigger(self.next_id, savepoint, stop) for savepoint, stop in self._requests]
        self._requests.clear()
        return [Abort(trigger.checkpoint, reason, trigger) for trigger in triggers]

    def _acknowledged(self, checkpoint: int) -> _Pending | None:
        pending = self._pending
        is_this = pending is not None and pending.trigger.checkpoint == checkpoint
        return pending if pending is not None and is_this and not pending.missing else None

    def _give_up(self, pending: _Pending, reason: str, now: int) -> list[Effect]:
        self._pending = None
        self._reschedule(pending.started, now)
        effects: list[Effect] = [Abort(pending.trigger.checkpoint, reason, pending.trigger)]
        # The user hears of a failed savepoint, and the job goes on; the last checkpoint of a job is tried again.
        if pending.trigger.savepoint is None:
            self._failures += 1
            if self._failures > self._config.tolerable_failures:
                self._is_over = True
                return [*effects, FailJob(reason)]
            if pending.trigger.stop:
                self._requests.appendleft((None, True))
        return effects + self._next(now)

    def _reschedule(self, started: int, now: int) -> None:
        if self._config.interval is not None:
            self._due = max(started + self._config.interval, now + self._config.min_pause, now)

    def _next(self, now: int) -> list[Effect]:
        if self._is_over or self._pending is not None or not self._requests:
            return []
        savepoint, stop = self._requests.popleft()
        return self._begin(savepoint, stop=stop, now=now)

    def _begin(self, savepoint: str | None, *, stop: bool, now: int) -> list[Effect]:
        trigger = Trigger(self.next_id, savepoint, stop)
        self.next_id += 1
        self._pending = _Pending(trigger, now, set(self._tasks))
        return [trigger]
