"""What each task and each stage of a run spent its time on: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

Role = Literal["map", "reduce"]
#: The stages of an exchange, downstream.
STAGES: Final = ("source", "map", "exchange", "reduce", "sink")


@dataclass(frozen=True, slots=True)
class TaskStats:
    """One task of a run. The four times are of one thread, and their sum is its time so far.

    Attributes:
        role: ``"map"`` for a producer, ``"reduce"`` for a consumer.
        task: Spark's partition of a producer, subpartition of a consumer.
        state: ``"running"``, ``"done"``, ``"stopped"``, ``"failed"``, ``"lost"`` or ``"parked"``.
        rows: sent by a producer, read by a consumer.
        bytes: of these rows in memory; of a producer that is done, of its pages.
        peak_bytes: the largest use of its pool, known at the end.
        input_ms: ms in which it waited for input: the source, or the producers.
        function_ms: ms in the user's function.
        emit_ms: ms in which a producer put rows into pages.
        blocked_ms: ms in which it waited for whoever takes what it made.
    """

    role: Role
    task: int
    state: str = "running"
    rows: int = 0
    bytes: int = 0
    peak_bytes: int = 0
    input_ms: int = 0
    function_ms: int = 0
    emit_ms: int = 0
    blocked_ms: int = 0

    @property
    def idle_ms(self) -> int:
        """Ms in which it waited for its input: Flink's accumulateIdleTimeMs."""
        return self.input_ms

    @property
    def busy_ms(self) -> int:
        """Ms in which it worked: Flink's accumulateBusyTimeMs."""
        return self.function_ms + self.emit_ms

    @property
    def back_pressured_ms(self) -> int:
        """Ms in which it waited for whoever takes what it made: Flink's accumulateBackPressuredTimeMs."""
        return self.blocked_ms

    @property
    def wall_ms(self) -> int:
        """The time that its clock has seen."""
        return self.idle_ms + self.busy_ms + self.back_pressured_ms

    def of(self, stage: str) -> tuple[int, int, int]:
        """Return idle, busy and back-pressured ms of the stage's part of this task.

        A task is one thread, so what it does for one stage is idle time of the stages below and
        back-pressure of those above.
        """
        feed, work, emit, blocked = (
            self.input_ms,
            self.function_ms,
            self.emit_ms,
            self.blocked_ms,
        )
        match stage:
            case "source":
                return 0, feed, work + emit + blocked
            case "map":
                return feed, work, emit + blocked
            case "exchange":
                return feed + work, emit, blocked
            case "reduce":
                return feed, work, blocked
            case _:
                return feed + work, blocked, 0


@dataclass(frozen=True, slots=True)
class StageStats:
    """One stage of a run: the sum over its tasks, and its busiest task.

    Attributes:
        name: one of :data:`STAGES`.
        tasks: how many tasks work for it.
        idle_ms: ms in which they waited for what comes from above.
        busy_ms: ms in which they worked; of the source and the sink, ms in which these were waited for.
        back_pressured_ms: ms in which they waited for what is below.
        busiest: the task with the largest part of its time busy; None where no task has a time.
        busiest_share: that part, 0 to 1.
    """

    name: str
    tasks: int
    idle_ms: int
    busy_ms: int
    back_pressured_ms: int
    busiest: int | None
    busiest_share: float


def stages(tasks: Iterable[TaskStats]) -> tuple[StageStats, ...]:
    """Return the stages of these tasks, downstream; a stage without tasks is left out."""
    tasks = list(tasks)
    found = []
    for name in STAGES:
        role: Role = "reduce" if name in {"reduce", "sink"} else "map"
        mine = [task for task in tasks if task.role == role]
        if mine:
            found.append(_stage(name, mine))
    return tuple(found)


def _stage(name: str, tasks: list[TaskStats]) -> StageStats:
    times = [task.of(name) for task in tasks]
    shares = [(t.of(name)[1] / t.wall_ms, t.task) for t in tasks if t.wall_ms]
    share, busiest = max(shares, default=(0.0, None), key=lambda pair: pair[0])
    idle, busy, blocked = (sum(column) for column in zip(*times, strict=True))
    return StageStats(name, len(tasks), idle, busy, blocked, busiest, share)
