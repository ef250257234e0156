"""The words of ``top``: plain text for a state. Control characters from outside are shown as Python's escapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate._text import plain
from headgate.observe.numbers import count, seconds, size
from headgate.observe.state import has_reported, short_name
from headgate.observe.text import verdict_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Columns of the table of tasks, in its order; those below are sorted from the largest on.
COLUMNS: Final = (
    *("role", "task", "host", "state", "busy", "blocked", "idle"),
    *("rows", "bytes", "bytes/s", "peak", "process peak", "note"),
)
_NUMBERS: Final = frozenset(
    {"busy", "blocked", "idle", "rows", "bytes", "bytes/s", "peak", "process peak"}
)
#: Most causes of new starts: the newest.
_MOST_CAUSES: Final = 3
#: Columns of the table of checkpoints.
CHECKPOINTS: Final = ("id", "status", "duration", "bytes", "alignment", "in flight", "reason")
#: Stages that the tasks of each side of an exchange work for.
_SIDES: Final = {
    "map": frozenset({"source", "map", "exchange"}),
    "reduce": frozenset({"reduce", "sink"}),
}

Row = tuple[str, ...]


def peak(entry: dict[str, Any]) -> str:
    """Return the peak usage of a pool by a run or a task, which is 0 until tasks have ended."""
    return size(entry["peak_bytes"] or None)


def percent(share: float | None) -> str:
    """Return a share of time."""
    return "N/A" if share is None else f"{100 * share:.0f}%"


def title(view: dict[str, Any]) -> str:
    """Return the line about the run."""
    run = view["run"]
    if run is None:
        return "headgate top   no run yet"
    last = run["history"][-1] if run["is_running"] and run["history"] else None
    parts = [
        f"headgate top  {short_name(run)}  {run['mode']}",
        f"{run['state']} {run['seconds']:.1f} s",
        f"{count(run['rows'])} rows  {size(run['bytes'])}",
        "" if last is None else f"{size(last['bytes'] / (last['seconds'] or 1))}/s",
        f"pool {peak(run)}",
        f"failed attempts {run['failed_attempts']}" if run["failed_attempts"] else "",
        f"restarts {run['restarts']}" if run["restarts"] else "",
    ]
    return plain("  ".join(part for part in parts if part))


def about(view: dict[str, Any]) -> list[str]:
    """Return lines about the run: who waits for whom, the error, the verdict."""
    run = view["run"]
    if run is None:
        return []
    waits = [
        f"{link['text']} {percent(link['share'])} {link['level']}"
        for link in run["links"]
        if link["level"] in {"LOW", "HIGH"}
    ]
    lines = [f"waits: {'; '.join(waits) or 'nobody'}"]
    if run["error"]:
        lines.append(f"error: [{run['error']}] {run['error_summary']}")
    lines += [f"again: {cause}" for cause in run["causes"][-_MOST_CAUSES:]]
    lines += verdict_lines(run) or ["slowest: no stage clearly is"]
    return [plain(line) for line in lines]


def tasks(view: dict[str, Any], sort: str = "", having: str = "", *, up: bool = False) -> list[Row]:
    """Return a row for each task that has this text in it.

    Args:
        view: as :func:`headgate.observe.view.view` makes it.
        sort: one of COLUMNS; by default as the view has them.
        having: what the text of a row must contain, in any case.
        up: True to begin with the smallest number, or the last word.
    """
    run = view["run"]
    if run is None:
        return []
    pairs = [(_values(task), _row(task, run["verdict"])) for task in run["tasks"]]
    rows = [pair for pair in pairs if having.lower() in "  ".join(pair[1]).lower()]
    if sort in COLUMNS:
        is_number = sort in _NUMBERS
        place = COLUMNS.index(sort)
        rows.sort(
            key=lambda pair: pair[0][sort] if sort in pair[0] else pair[1][place],
            reverse=is_number is not up,
        )
    return [row for _, row in rows]


def _values(task: dict[str, Any]) -> dict[str, float]:
    wall, sent = task["wall_ms"], task["bytes"] or 0
    return {
        "task": task["task"],
        "busy": -1.0 if task["busy"] is None else task["busy"],
        "blocked": -1.0 if task["back_pressured"] is None else task["back_pressured"],
        "idle": -1.0 if task["idle"] is None else task["idle"],
        "rows": task["rows"] or 0,
        "bytes": sent,
        "bytes/s": 1000 * sent / wall if wall else 0.0,
        "peak": task["peak_bytes"],
        "process peak": task["peak_resident_bytes"],
    }


def _row(task: dict[str, Any], verdict: dict[str, Any] | None) -> Row:
    is_slowest = (
        verdict is not None
        and verdict["task"] == task["task"]
        and verdict["stage"] in _SIDES.get(task["role"], {task["role"]})
    )
    is_silent = not has_reported(task)
    rate = None if is_silent else _values(task)["bytes/s"]
    so_far = f"{seconds(task['wall_ms'])} so far" if is_silent else ""
    cells = (
        task["role"],
        task["task"],
        task["host"] or "-",
        task["state"],
        percent(task["busy"]),
        percent(task["back_pressured"]),
        percent(task["idle"]),
        count(task["rows"]),
        size(task["bytes"]),
        "-" if rate is None else f"{size(rate)}/s",
        peak(task),
        size(task["peak_resident_bytes"] or None),
        "<- slowest" if is_slowest else so_far,
    )
    return tuple(plain(str(cell)) for cell in cells)


def channels(view: dict[str, Any]) -> tuple[Row, list[Row]]:
    """Return the head and the rows of the matrix of bytes; both empty if it is not known."""
    matrix = view["run"] and view["run"]["matrix"]
    if not matrix:
        return (), []
    head = ("from \\ to", *(plain(name) for name in matrix["consumers"]))
    rows = zip(matrix["producers"], matrix["bytes"], strict=True)
    return head, [(plain(name), *map(size, numbers)) for name, numbers in rows]


def checkpoints(view: dict[str, Any]) -> list[Row]:
    """Return a row for each checkpoint of a streaming job, the newest first."""
    rows = []
    for entry in reversed(view["run"]["checkpoints"] if view["run"] else []):
        duration = entry["duration"]
        cells = (
            entry["checkpoint"],
            entry["status"],
            "-" if duration is None else f"{duration} ms",
            size(entry["bytes"]),
            f"{entry['alignment']} ms",
            size(entry["in_flight"]),
            entry["reason"],
        )
        rows.append(tuple(plain(str(cell)) for cell in cells))
    return rows


def table(head: Row, rows: Sequence[Row]) -> list[str]:
    """Return aligned lines."""
    if not head:
        return []
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (tuple(name.upper() for name in head), *rows)
    ]


def page(view: dict[str, Any], sort: str = "", having: str = "") -> str:
    """Return everything about the run, for ``--once``."""
    lines = [title(view), *about(view), "", *table(COLUMNS, tasks(view, sort, having))]
    left_out = view["run"]["tasks_left_out"] if view["run"] else 0
    if left_out:
        lines.append(f"{left_out} more tasks are not shown")
    if rows := checkpoints(view):
        lines += ["", *table(CHECKPOINTS, rows)]
    return "\n".join(lines)
