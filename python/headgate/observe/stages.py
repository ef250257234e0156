"""The stages of a run: how the time of a task divides among them, and their sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.observe.record import Stage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.observe.record import Task

#: The stages of an exchange, from upstream to downstream, and the role of the tasks that work for each.
STAGES: Final = {
    "source": "map",
    "map": "map",
    "exchange": "map",
    "reduce": "reduce",
    "sink": "reduce",
}
#: Idle, busy and back-pressured ms.
Times = tuple[int, int, int]


def times_in(stage: str, task: Task) -> Times:
    """Return the idle, busy and back-pressured ms of one stage of an exchange in a task.

    A task is one thread. The time it works for one stage is idle time of the stages
    downstream and back-pressure of the stages upstream.
    """
    feed, work, emit, blocked = task.input_ms, task.function_ms, task.emit_ms, task.blocked_ms
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


def stages_of_exchange(tasks: Iterable[Task]) -> tuple[Stage, ...]:
    """Return the stages of the tasks of an exchange, upstream first. A stage without tasks is left out."""
    every = list(tasks)
    stages: list[Stage] = []
    for name, role in STAGES.items():
        times = [(task.task, times_in(name, task)) for task in every if task.role == role]
        if times:
            stages.append(stage_of(name, times, tuple(stage.name for stage in stages[-1:])))
    return tuple(stages)


def stage_of(name: str, times: Iterable[tuple[int, Times]], inputs: tuple[str, ...] = ()) -> Stage:
    """Return a stage.

    Args:
        name: of the stage.
        times: for each task its number and the ms for which it was idle, busy and back-pressured.
        inputs: names of the stages whose rows it gets.
    """
    tasks = list(times)
    idle, busy, blocked = (sum(ms[part] for _, ms in tasks) for part in range(3))
    shares = [(ms[1] / sum(ms), number) for number, ms in tasks if sum(ms)]
    share, busiest = max(shares, default=(0.0, None), key=lambda pair: pair[0])
    return Stage(name, len(tasks), idle, busy, blocked, busiest, share, inputs)
