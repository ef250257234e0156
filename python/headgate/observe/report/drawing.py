"""The drawing of one run on the page: numbers and coordinates, no markup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.observe.edges import MOST
from headgate.observe.state import (
    STAGE_TIMES,
    TIMES,
    by_worth,
    cause,
    has_reported,
    is_running,
    is_stream,
    shares,
    title,
    wall_ms,
    worst,
)
from headgate.observe.text import metric_lines
from headgate.observe.view import matrix

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headgate.observe.state import State

#: Most tasks in the table of a run, and most of them in its timeline.
MOST_ROWS: Final = 128
MOST_BARS: Final = 48
#: Most rows and columns of a matrix that is a table of numbers; a larger one is drawn.
MOST_NUMBERS: Final = 8
#: Most lines in the lists of the largest edges and of the consumers with the most rows.
MOST_LARGEST: Final = 10
#: Width of a timeline, and of its smallest part with a text, in units of the drawing.
WIDTH: Final = 1000
_LABELLED: Final = 90
#: Shades of the drawn matrix.
SHADES: Final = 5
#: Role -> its times, in the order of the bars: attribute, and name of the part.
PARTS: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "map": tuple(zip(TIMES, ("input", "map", "emit", "blocked"), strict=True)),
    "reduce": (("input_ms", "wait"), ("function_ms", "reduce"), ("blocked_ms", "output")),
}
#: The same of a task of a streaming job, and of a process.
_OTHER_PARTS: Final = (("input_ms", "wait"), ("function_ms", "map"), ("blocked_ms", "blocked"))


def drawn(run: State, number: int) -> dict[str, Any]:
    """Return what the page draws of a run.

    Args:
        run: the run.
        number: its place in the report, for the ids of elements.
    """
    tasks = by_worth(run["tasks"])
    more = run["more_tasks"]
    listed, left = worst(tasks, MOST_ROWS)
    options = run["options"].items()
    return {
        "id": f"run-{number}",
        "run": run,
        "name": title(run),
        "is_stream": is_stream(run),
        "is_running": is_running(run),
        "causes": [*map(cause, run["failures"]), *run["notices"], *metric_lines(run)],
        "stages": [_stage(stage) for stage in run["stages"]],
        "timeline": _timeline(worst(tasks, MOST_BARS)[0], run),
        "tasks": [_numbers(task) for task in _in_order(listed)],
        "others": _others(left, more),
        "all_tasks": len(tasks) + sum(entry["tasks"] for entry in more),
        "edges": _edges(run["edges"]),
        "skew": None if is_stream(run) else _skew(tasks, more),
        "rates": _rates(run["history"]),
        "options": sorted(options, key=lambda pair: pair[1]["source"] == "default"),
    }


def _in_order(tasks: Iterable[State]) -> list[State]:
    return sorted(tasks, key=lambda task: (task["role"], task["task"]))


def _numbers(task: State) -> dict[str, Any]:
    """Return a task with the share of each part of its time; without numbers if it has told none."""
    if not has_reported(task):
        return {**task, **dict.fromkeys(("rows", "bytes", *TIMES)), "parts": []}
    wall = wall_ms(task)
    parts = [
        {"name": name, "ms": task[field], "share": task[field] / wall if wall else 0.0}
        for field, name in PARTS.get(task["role"], _OTHER_PARTS)
    ]
    return {**task, "parts": parts}


def _stage(stage: State) -> dict[str, Any]:
    return {**stage, "parts": list(shares(*(stage[name] for name in STAGE_TIMES)).values())}


def _timeline(tasks: Sequence[State], run: State) -> dict[str, Any] | None:
    """Return a bar for each task, from its start to its end in the run; None without a task."""
    if not tasks:
        return None
    now = 1000 * run["seconds"]
    times = (task[name] or 0 for task in tasks for name in ("started_ms", "ended_ms"))
    length = max([now, 1.0, *times])
    bars = []
    for task in _in_order(tasks):
        numbers = _numbers(task)
        end = task["ended_ms"]
        end = now if end is None else end
        wall = sum(part["ms"] for part in numbers["parts"])
        start = task["started_ms"]
        start = max(0, end - wall) if start is None else start
        x, scale = WIDTH * start / length, WIDTH * max(0, end - start) / length
        bar = {"x": round(x, 1), "width": round(scale, 1), "parts": []}
        for part in numbers["parts"]:
            width = scale * part["share"]
            if width >= 0.1:
                fits = width >= _LABELLED
                bar["parts"].append(
                    {**part, "x": round(x, 1), "width": round(width, 1), "labelled": fits}
                )
            x += width
        bars.append({**numbers, **bar, "parts": bar["parts"], "all_parts": numbers["parts"]})
    ticks = [
        {"x": round(WIDTH * step / 5), "ms": length * step / 5, "last": step == 5}
        for step in range(6)
    ]
    return {"bars": bars, "ticks": ticks, "width": WIDTH}


def _others(left: Sequence[State], more: Sequence[State]) -> list[dict[str, Any]]:
    """Return for each role the sums over the tasks that the table leaves out."""
    sums_of_roles = []
    # Of a task without a report all numbers are 0.
    every = [*more, *({**task, "tasks": 1} for task in left)]
    for role in dict.fromkeys(entry["role"] for entry in every):
        sums = [entry for entry in every if entry["role"] == role]
        total = {
            name: sum(entry[name] for entry in sums) for name in ("tasks", "rows", "bytes", *TIMES)
        }
        sums_of_roles.append(_numbers({**total, "role": role, "state": "done"}))
    return sums_of_roles


def _edges(edges: State | None) -> dict[str, Any] | None:
    """Return the matrix with its sums, and its largest edges."""
    named = matrix(edges, MOST)
    if edges is None or named is None:
        return None
    producers, consumers, sizes = named["producers"], named["consumers"], named["bytes"]
    most = max((n for row in sizes for n in row), default=0)
    total = sum(map(sum, sizes))
    every = [
        {"producer": producers[i], "consumer": consumers[j], "bytes": n, "share": n / total}
        for i, row in enumerate(sizes)
        for j, n in enumerate(row)
        if n
    ]
    every.sort(key=lambda edge: edge["bytes"], reverse=True)
    return {
        "producers": producers,
        "consumers": consumers,
        "rows": [
            {
                "name": name,
                "total": sum(row),
                "cells": [{"bytes": n, "share": n / most if most else 0.0} for n in row],
            }
            for name, row in zip(producers, sizes, strict=True)
        ],
        "columns": [sum(column) for column in zip(*sizes, strict=True)],
        "total": total,
        "most": most,
        "as_numbers": max(len(producers), len(consumers)) <= MOST_NUMBERS,
        "paths": _paths(sizes, most),
        "largest": every[:MOST_LARGEST],
        "folded": edges.get("producers_each", 1) > 1 or edges.get("consumers_each", 1) > 1,
    }


def _paths(matrix: Sequence[Sequence[int]], most: int) -> list[dict[str, Any]]:
    """Return a path of squares for each shade; cells with nothing are left out."""
    squares: list[list[str]] = [[] for _ in range(SHADES)]
    for y, row in enumerate(matrix):
        for x, n in enumerate(row):
            if n:
                squares[min(SHADES - 1, SHADES * n // most)].append(f"M{x} {y}h1v1h-1z")
    return [
        {"shade": shade, "from": most * shade / SHADES, "to": most * (shade + 1) / SHADES, "d": d}
        for shade, path in enumerate(squares)
        if (d := "".join(path))
    ]


def _skew(tasks: Sequence[State], more: Sequence[State]) -> dict[str, Any] | None:
    """Return the consumers with the most rows; None if no consumer has read any."""
    consumers = [task for task in tasks if task["role"] == "reduce" and has_reported(task)]
    sums = [entry for entry in more if entry["role"] == "reduce"]
    rows = sum(entry["rows"] for entry in [*consumers, *sums])
    if not rows:
        return None
    number = len(consumers) + sum(entry["tasks"] for entry in sums)
    mean = rows / number
    ranked = sorted(consumers, key=lambda task: task["rows"], reverse=True)
    return {
        "number": number,
        "rows": rows,
        "mean": mean,
        "ratio": ranked[0]["rows"] / mean if ranked else 1.0,
        "largest": [
            {
                "task": task["task"],
                "rows": task["rows"],
                "share": task["rows"] / rows,
                "ratio": task["rows"] / mean,
                "bar": task["rows"] / (ranked[0]["rows"] or 1),
            }
            for task in ranked[:MOST_LARGEST]
        ],
    }


def _rates(history: Sequence[State]) -> dict[str, Any] | None:
    """Return the bytes per second of each slot as the points of a line; None without two slots."""
    rates = [slot["bytes"] / slot["seconds"] for slot in history if slot["seconds"] > 0]
    most = max(rates, default=0.0)
    if len(rates) < 2 or not most:
        return None
    step = WIDTH / (len(rates) - 1)
    points = " ".join(f"{i * step:.1f},{60 - 56 * rate / most:.1f}" for i, rate in enumerate(rates))
    return {"points": points, "most": most, "last": rates[-1], "slots": len(rates)}
