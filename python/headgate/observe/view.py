"""The part of a state that a display draws: one run with its numbers worked out, and a line for each of the others."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from headgate.observe.words import span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    #: A state, as docs/seeing.md describes it.
    State = Mapping[str, Any]
    #: Returns the state of now.
    Source = Callable[[], State]

#: Tasks that a display gets at most: those that worked and waited longest.
MAX_TASKS: Final = 1000
#: Rows and columns that a matrix has at most; beyond, neighbours are added up.
MAX_SIDE: Final = 32
#: Checkpoints of a streaming job that a display gets at most: the newest.
MAX_CHECKPOINTS: Final = 20
#: Slots of a second whose sums are a stage's shares of now.
_RECENT: Final = 5
#: The parts of a task's time.
_TIMES: Final = ("input_ms", "function_ms", "emit_ms", "blocked_ms")
#: Flink's limits: a share up to the first is OK, up to the second LOW, above it HIGH.
_LOW, _HIGH = 0.1, 0.5
#: What a line of the list of runs has.
_SUMMARY: Final = (
    "exchange_id",
    "run",
    "state",
    "error",
    "mode",
    "seconds",
    "rows",
    "bytes",
    "started_at",
)


def key_of(run: State) -> str:
    """Return the name of a run, among all of a process."""
    return f"{run.get('exchange_id', '')}/{run.get('run', 0)}"


def level(share: float | None) -> str:
    """Return Flink's word for a share of time: ``"OK"``, ``"LOW"``, ``"HIGH"``; ``"N/A"`` if it is not known."""
    if share is None:
        return "N/A"
    return "OK" if share <= _LOW else "LOW" if share <= _HIGH else "HIGH"


def view(state: State, key: str = "") -> dict[str, Any]:
    """Return what a display draws.

    Args:
        state: the record's state.
        key: the run to draw, as :func:`key_of` names it; the newest one if it is empty or gone.
    """
    runs: Sequence[State] = state.get("runs") or []
    chosen = next((run for run in runs if key_of(run) == key), runs[0] if runs else None)
    return {
        "schema_version": state.get("schema_version"),
        "headgate": state.get("headgate", ""),
        "now": state.get("now", 0),
        "runs": [
            {"key": key_of(run), **{name: run.get(name) for name in _SUMMARY}} for run in runs
        ],
        "run": None if chosen is None else _drawn(chosen),
        "streams": [_stream(stream) for stream in state.get("streams") or []],
    }


def shares(task: State) -> dict[str, float | None]:
    """Return the idle, busy and back-pressured share of a task's time; None each before its first report."""
    idle = task.get("input_ms", 0)
    busy = task.get("function_ms", 0) + task.get("emit_ms", 0)
    return _shares(idle, busy, task.get("blocked_ms", 0))


def shares_of_stages(run: State) -> dict[str, dict[str, float | None]]:
    """Return the shares of each stage: of the last seconds while the run goes on, of all its time after it."""
    history = run.get("history") or []
    recent = history[-_RECENT:] if run.get("state") == "running" else []
    found = {}
    for stage in run.get("stages") or []:
        name = stage["name"]
        slots = [slot["stages"][name] for slot in recent if name in slot["stages"]]
        now = _sums(slots, ("idle", "busy", "back_pressured"))
        ever = _sums([stage], ("idle_ms", "busy_ms", "back_pressured_ms"))
        found[name] = _shares(*(now if any(now) else ever))
    return found


def _shares(idle: float, busy: float, pressed: float) -> dict[str, float | None]:
    total = idle + busy + pressed
    if total <= 0:
        return {"idle": None, "busy": None, "back_pressured": None}
    return {"idle": idle / total, "busy": busy / total, "back_pressured": pressed / total}


def _drawn(run: State) -> dict[str, Any]:
    tasks = [_task(task, run) for task in run.get("tasks") or []]
    tasks.sort(key=lambda task: (not has_reported(task), load(task)), reverse=True)
    boxes = _boxes(run)
    return {
        **{name: value for name, value in run.items() if name not in {"tasks", "edges"}},
        "key": key_of(run),
        "causes": list(_causes(run)),
        "boxes": boxes,
        "links": [_link(up, down) for up, down in pairwise(boxes)],
        "tasks": tasks[:MAX_TASKS],
        "tasks_left_out": max(0, len(tasks) - MAX_TASKS),
        "matrix": matrix(run.get("edges")),
    }


def _causes(run: State) -> Iterator[str]:
    """Yield why tasks of the run began again."""
    for one in run.get("failures") or []:
        yield f"{one['role']} {one['task']} on {one['host']} failed: {one['summary']}"


def _task(task: State, run: State) -> dict[str, Any]:
    """Return a task with its shares and its time so far. Rows and bytes that it has not told are None."""
    if has_reported(task):
        return {**task, **shares(task), "wall_ms": sum(task.get(name, 0) for name in _TIMES)}
    started = task.get("started_ms")
    so_far = None if started is None else max(0, round(1000 * run["seconds"]) - started)
    return {**task, **shares(task), "rows": None, "bytes": None, "wall_ms": so_far}


def has_reported(task: State) -> bool:
    """Return False for a task that runs and has told nothing: one of a kept exchange does so at its end."""
    return task["state"] != "running" or any(task.get(name) for name in _TIMES)


def load(task: State) -> float:
    """Return the ms that a task worked or waited for downstream."""
    return float(sum(task.get(name, 0) for name in ("function_ms", "emit_ms", "blocked_ms")))


def _boxes(run: State) -> list[dict[str, Any]]:
    now = shares_of_stages(run)
    return [
        {
            "name": stage["name"],
            "tasks": stage.get("tasks", 0),
            "busiest": stage.get("busiest"),
            "busiest_share": stage.get("busiest_share"),
            **now[stage["name"]],
        }
        for stage in run.get("stages") or []
    ]


def _sums(slots: Sequence[State], names: tuple[str, str, str]) -> tuple[float, float, float]:
    idle, busy, pressed = (sum(slot.get(name, 0) for slot in slots) for name in names)
    return idle, busy, pressed


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
    return {
        "from": up["name"],
        "to": down["name"],
        "kind": kind,
        "share": share,
        "level": level(share),
        "text": text,
    }


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


def _stream(stream: State) -> dict[str, Any]:
    checkpoints = stream.get("checkpoints") or []
    causes = [
        f"attempt {one['attempt']} ended: [{one['code']}] {one['summary']}"
        for one in stream.get("ended_attempts") or []
    ]
    if stream.get("failure"):
        causes.append(f"the job failed: {stream['failure']}")
    causes += stream.get("notices") or []
    return {**stream, "checkpoints": list(checkpoints[-MAX_CHECKPOINTS:]), "causes": causes}
