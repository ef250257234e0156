"""The part of a state that a display draws: one run with its numbers worked out, and a line for each of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.observe.numbers import span
from headgate.observe.state import (
    STAGE_TIMES,
    by_worth,
    cause,
    has_reported,
    is_running,
    key_of,
    shares,
    shares_of_task,
    title,
    wall_ms,
)
from headgate.observe.text import metric_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.observe.state import Shares, State

#: Tasks that a display gets at most: those that worked and waited longest.
MAX_TASKS: Final = 1000
#: Rows and columns that a matrix has at most; beyond, neighbours are added up.
MAX_SIDE: Final = 32
#: Checkpoints of a streaming job that a display gets at most: the newest.
MAX_CHECKPOINTS: Final = 20
#: Slots of a second whose sums are a stage's shares of now.
_RECENT: Final = 5
#: Flink's limits: a share up to the first is OK, up to the second LOW, above it HIGH.
_LOW, _HIGH = 0.1, 0.5
#: Fields of a line in the list of runs.
_SUMMARY: Final = ("name", "number", "mode", "state", "error", "seconds", "rows", "started_at")


def level(share: float | None) -> str:
    """Return Flink's word for a share of time: ``"OK"``, ``"LOW"``, ``"HIGH"``; ``"N/A"`` if it is not known."""
    if share is None:
        return "N/A"
    return "OK" if share <= _LOW else "LOW" if share <= _HIGH else "HIGH"


def view(state: State, key: str = "") -> dict[str, Any]:
    """Return what a display draws.

    Args:
        state: the record's state.
        key: the run to draw, as :func:`headgate.observe.state.key_of` names it; the newest one if it is empty or gone.
    """
    runs: Sequence[State] = state["runs"]
    chosen = next((run for run in runs if key_of(run) == key), runs[0] if runs else None)
    return {
        "runs": [
            {"key": key_of(run), "title": title(run), **{name: run[name] for name in _SUMMARY}}
            for run in runs
        ],
        "run": None if chosen is None else _drawn(chosen),
    }


def shares_of_stages(run: State) -> dict[str, Shares]:
    """Return the shares of each stage: of the last seconds while the run goes on, of all its time after it."""
    recent = run["history"][-_RECENT:] if is_running(run) else []
    by_stage = {}
    for stage in run["stages"]:
        name = stage["name"]
        slots = [slot["stages"][name] for slot in recent if name in slot["stages"]]
        now = [sum(slot[part] for slot in slots) for part in ("idle", "busy", "back_pressured")]
        by_stage[name] = shares(*(now if any(now) else (stage[part] for part in STAGE_TIMES)))
    return by_stage


def _drawn(run: State) -> dict[str, Any]:
    tasks = by_worth(run["tasks"])
    now = shares_of_stages(run)
    boxes = {stage["name"]: {**stage, **now[stage["name"]]} for stage in run["stages"]}
    return {
        **{name: value for name, value in run.items() if name not in {"tasks", "stages", "edges"}},
        "key": key_of(run),
        "title": title(run),
        "is_running": is_running(run),
        "causes": [*map(cause, run["failures"]), *run["notices"], *metric_lines(run)],
        "boxes": list(boxes.values()),
        "links": [_link(boxes[up], box) for box in boxes.values() for up in box["inputs"]],
        "tasks": [_task(task, run) for task in tasks[:MAX_TASKS]],
        "tasks_left_out": max(0, len(tasks) - MAX_TASKS),
        "matrix": matrix(run["edges"]),
        "checkpoints": run["checkpoints"][-MAX_CHECKPOINTS:],
    }


def _task(task: State, run: State) -> dict[str, Any]:
    """Return a task with its shares and its time so far. Rows and bytes that it has not told are None."""
    if has_reported(task):
        return {**task, **shares_of_task(task), "wall_ms": wall_ms(task)}
    started = task["started_ms"]
    so_far = None if started is None else max(0, round(1000 * run["seconds"]) - started)
    return {**task, **shares_of_task(task), "rows": None, "bytes": None, "wall_ms": so_far}


def _link(up: State, down: State) -> dict[str, Any]:
    """Return who waits for whom between two stages: the one that waits longer, above Flink's first limit."""
    pressed, starved = up["back_pressured"], down["idle"]
    if pressed is None and starved is None:
        kind, share, text = "unknown", None, "no times yet"
    elif max(pressed or 0.0, starved or 0.0) <= _LOW:
        kind, share, text = "flows", max(pressed or 0.0, starved or 0.0), "nobody waits"
    elif (pressed or 0.0) >= (starved or 0.0):
        kind, share, text = "pressed", pressed, f"{up['name']} waits for {down['name']}"
    else:
        kind, share, text = "starved", starved, f"{down['name']} waits for {up['name']}"
    link = {"from": up["name"], "to": down["name"], "kind": kind, "share": share}
    return {**link, "level": level(share), "text": text}


def matrix(edges: State | None, side: int = MAX_SIDE) -> dict[str, Any] | None:
    """Return bytes per producer and consumer with at most ``side`` rows and columns; None if they are not known."""
    if not edges or not edges.get("bytes"):
        return None
    rows = _groups(edges["producers"], edges.get("producers_each", 1), side)
    columns = _groups(edges["consumers"], edges.get("consumers_each", 1), side)
    numbers = edges["bytes"]
    return {
        "producers": [name for name, _ in rows],
        "consumers": [name for name, _ in columns],
        "bytes": [
            [sum(numbers[i][j] for i in those for j in these) for _, these in columns]
            for _, those in rows
        ],
    }


def _groups(names: Sequence[int], each: int, side: int) -> list[tuple[str, range]]:
    """Return at most ``side`` groups of neighbours, with the numbers of the first and the last task of each."""
    size = max(1, -(-len(names) // side))
    return [
        (span(names[these[0]], names[these[-1]] + each - 1), these)
        for start in range(0, len(names), size)
        for these in [range(start, min(start + size, len(names)))]
    ]
