"""Times and counts of each task and each stage of a run: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

Role = Literal["map", "reduce"]
#: The stages of an exchange, from upstream to downstream.
STAGES: Final = ("source", "map", "exchange", "reduce", "sink")


@dataclass(frozen=True, slots=True)
class TaskStats:
    """One task of a run. The four times are those of one thread; their sum is its time so far.

    A task reports at its end. While it runs, its numbers and times are 0.

    Attributes:
        role: ``"map"`` for a producer, ``"reduce"`` for a consumer.
        task: number of a producer's Spark partition, or of a consumer's subpartition.
        state: ``"running"``, ``"done"``, ``"stopped"``, ``"failed"``, ``"lost"`` or ``"parked"``.
        rows: rows that a producer sent or a consumer read.
        bytes: bytes of these rows in memory; for a producer that is done, bytes of its pages.
        peak_bytes: peak usage of its pool, known at the end.
        input_ms: ms spent waiting for input from the source or the producers.
        function_ms: ms spent in the user's function.
        emit_ms: ms a producer spent writing rows into pages.
        blocked_ms: ms spent waiting for downstream to take its output.
        disk_ms: ms of these in which the task waited for its files.
        link_ms: ms of a consumer's ``input_ms`` in which it waited for rows from other hosts.
        host: name of its host, or ``""`` if it is not known.
        attempt: id of Spark's task attempt; None if it is not known.
        started_ms: when it began, in ms since the start of the run; None if that is not known.
        ended_ms: when it ended, or the driver last heard of it; None while it runs.
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
    disk_ms: int = 0
    link_ms: int = 0
    host: str = ""
    attempt: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None

    @property
    def has_reported(self) -> bool:
        """False while it runs and has told no number: a task of a kept exchange does so at its end."""
        return self.state != "running" or self.wall_ms > 0

    @property
    def idle_ms(self) -> int:
        """Ms spent waiting for input: Flink's accumulateIdleTimeMs."""
        return self.input_ms

    @property
    def busy_ms(self) -> int:
        """Ms spent working: Flink's accumulateBusyTimeMs."""
        return self.function_ms + self.emit_ms

    @property
    def back_pressured_ms(self) -> int:
        """Ms spent waiting for downstream: Flink's accumulateBackPressuredTimeMs."""
        return self.blocked_ms

    @property
    def wall_ms(self) -> int:
        """Ms that the task's clock has measured."""
        return self.idle_ms + self.busy_ms + self.back_pressured_ms

    def of(self, stage: str) -> tuple[int, int, int]:
        """Return the idle, busy and back-pressured ms of one stage in this task.

        A task is one thread. The time it works for one stage is idle time of the stages
        downstream and back-pressure of the stages upstream.
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
        name: one of ``STAGES``.
        tasks: number of tasks that work for the stage.
        idle_ms: ms the tasks spent waiting for the upstream stages.
        busy_ms: ms the tasks worked; for source and sink, ms the tasks waited for these.
        back_pressured_ms: ms the tasks spent waiting for the downstream stages.
        busiest: the task with the largest busy share of its time; None if no task has a time.
        busiest_share: its busy share, 0 to 1.
    """

    name: str
    tasks: int
    idle_ms: int
    busy_ms: int
    back_pressured_ms: int
    busiest: int | None
    busiest_share: float


def stages(tasks: Iterable[TaskStats]) -> tuple[StageStats, ...]:
    """Return the stages of these tasks, upstream first. A stage without tasks is left out."""
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
