"""The form of a state, which all displays get: its version, and numbers worked out of a run and its tasks.

A state has only values that JSON has: those of :meth:`headgate.observe.record.Run.plain` for each run.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headgate.errors import OptionError
from headgate.observe.trace import IN_REPORT, lines

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence

    #: A state, or a part of one, as docs/report.md describes it.
    State = Mapping[str, Any]
    #: Returns the state of now.
    Source = Callable[[], State]

#: Version of the form of a state and of a run. It grows with each change.
SCHEMA_VERSION: Final = 12
#: Parts of a task's time.
TIMES: Final = ("input_ms", "function_ms", "emit_ms", "blocked_ms")
#: Parts of a stage's time.
STAGE_TIMES: Final = ("idle_ms", "busy_ms", "back_pressured_ms")
#: States of a run that goes on.
RUNNING: Final = frozenset({"starting", "running", "restarting", "finishing"})

#: Idle, busy and back-pressured share of a time; None each if nothing was measured.
Shares: TypeAlias = dict[str, float | None]


def state_of(runs: list[dict[str, Any]], now: float | None = None) -> dict[str, Any]:
    """Return a state.

    Args:
        runs: the newest first.
        now: seconds since 1970; by default those of this moment.
    """
    from headgate import __version__  # noqa: PLC0415 - loads the native module

    at = round(time.time() if now is None else now, 3)
    return {
        "schema_version": SCHEMA_VERSION,
        "headgate": __version__,
        "now": at,
        "runs": runs,
        "trace": lines(IN_REPORT),
    }


def state_in(data: bytes, place: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the state in the bytes of a file or an answer.

    Raises:
        OptionError: they hold something else, or a state of another version of Headgate.
    """
    try:
        state = json.loads(data)
    except ValueError:  # also of bytes that are no text
        state = None
    problem = ""
    if not isinstance(state, dict) or not isinstance(state.get("runs"), list):
        problem = "it has no list of runs"
    elif (version := state.get("schema_version")) != SCHEMA_VERSION:
        writer = f"headgate {state.get('headgate')!r}"
        problem = f"it is of version {version!r}, from {writer}; this headgate reads version {SCHEMA_VERSION}"
    if problem:
        raise OptionError(
            f"{place} is no state of runs: {problem}",
            asked=f"a state from {place}",
            remedy='a file of headgate.spark.report("run.json") · /state.json of a live page',
        )
    return state  # type: ignore[no-any-return]


def is_running(run: State) -> bool:
    """Return True while a run goes on."""
    return run["state"] in RUNNING


def is_stream(run: State) -> bool:
    """Return True for a streaming job."""
    return bool(run["mode"] == "stream")


def key_of(run: State) -> str:
    """Return the key of a run among all of a process. A streaming job keeps it in all its attempts."""
    return str(run["name"]) if is_stream(run) else f"{run['name']}/{run['number']}"


def title(run: State) -> str:
    """Return the name of a run for people."""
    if is_stream(run):
        return f"streaming job {run['name']}, attempt {run['number']}"
    if run["mode"] == "process":
        return f"process {run['name']}"
    return f"exchange {run['name'][:4]}, run {run['number']}"


def short_name(run: State) -> str:
    """Return the name of a run for a line."""
    return f"{run['name'][:4] if run['mode'] == 'kept' else run['name']}/{run['number']}"


def cause(failure: State) -> str:
    """Return why a task or a streaming job began again."""
    if failure["task"] is None:
        return f"attempt {failure['attempt']} ended: [{failure['error']}] {failure['summary']}"
    return f"{failure['role']} {failure['task']} on {failure['host']} failed: {failure['summary']}"


def wall_ms(task: State) -> int:
    """Return the ms that a task's clock has measured."""
    return sum(task.get(name, 0) for name in TIMES)


def load(task: State) -> int:
    """Return the ms that a task worked or waited for downstream."""
    return sum(task.get(name, 0) for name in TIMES[1:])


def has_reported(task: State) -> bool:
    """Return False for a task that runs and has told nothing: one of an exchange does so at its end."""
    return task["state"] != "running" or wall_ms(task) > 0


def by_worth(tasks: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return tasks in the order of what they tell about a run: silent ones, then those that worked and waited longest."""
    return sorted(
        tasks, key=lambda task: (not has_reported(task), load(task), task["rows"]), reverse=True
    )


def worst(
    tasks: Sequence[dict[str, Any]], most: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the first tasks of each role alike, at most ``most`` in all, and the others.

    Args:
        tasks: in the order of what they tell.
        most: number of tasks. A role with few tasks leaves its places to the others.
    """
    sides: dict[str, list[dict[str, Any]]] = {}
    for task in tasks:
        sides.setdefault(task["role"], []).append(task)
    first: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for number, side in enumerate(sorted(sides.values(), key=len)):
        places = (most - len(first)) // (len(sides) - number)
        first += side[:places]
        others += side[places:]
    return first, others


def shares_of_task(task: State) -> Shares:
    """Return the shares of a task's time."""
    idle, function, emit, blocked = (task.get(name, 0) for name in TIMES)
    return shares(idle, function + emit, blocked)


def shares(idle: float, busy: float, pressed: float) -> Shares:
    """Return the shares of a time."""
    total = idle + busy + pressed
    if total <= 0:
        return {"idle": None, "busy": None, "back_pressured": None}
    return {"idle": idle / total, "busy": busy / total, "back_pressured": pressed / total}
