"""A run as one line, as a few lines, or as HTML, which escapes every text that may come from a user."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

from headgate.observe.numbers import count, seconds, share, size
from headgate.observe.state import (
    STAGE_TIMES,
    TIMES,
    by_worth,
    cause,
    has_reported,
    is_running,
    is_stream,
    short_name,
    title,
)

if TYPE_CHECKING:
    from headgate.observe.state import State

#: Maximum number of tasks in a table. Those that tell most come first.
MAX_TASKS: Final = 64
#: Most attempts that failed in a few lines.
_MAX_FAILURES: Final = 3
#: Metrics of a function that a line has at most.
_METRICS: Final = 16
#: Minimum busy share of the busiest task, for the stage's line to name it.
_WORTH_SAYING: Final = 0.1
#: Flink's colours. Each stands beside its word, for readers who cannot tell colours apart.
_COLOURS: Final = {"idle": "#5db1ff", "busy": "#ee6464", "blocked": "#333333"}
_CELL: Final = "padding:1px 8px;text-align:left"
#: Some themes of notebooks center tables.
_TABLE: Final = "margin:0"
_COLUMNS: Final = (
    "task",
    "state",
    "rows",
    "bytes",
    "waits for input",
    "function",
    "emit",
    "blocked",
)


def line(run: State, width: int) -> str:
    """Return one line of at most ``width`` characters."""
    parts = [f"headgate {short_name(run)}"]
    if run["state"] != "running":
        parts.append(run["state"])
    parts += _tasks_of_sides(run)
    if run["rows"]:
        parts.append(f"{count(run['rows'])} rows  {size(run['bytes'])}")
    if run["file_bytes"]:
        parts.append(f"{size(run['file_bytes'])} in files")
    if run["rows_received"]:
        parts.append(f"{count(run['rows_received'])} rows read")
    parts += _repeated(run)
    if run["error"]:
        parts.append(run["error"])
    elif run["verdict"] is not None:
        parts.append(_fitting(run["verdict"]["text"], width - len("  ".join([*parts, ""]))))
    return _cut("  ".join(parts), width)


def text(run: State) -> str:
    """Return a few lines: state and numbers, stages, verdict."""
    stages = [
        f"{stage['name']:<8} idle {idle:>5}  busy {busy:>5} {'(' + seconds(stage['busy_ms']) + ')':>9}"
        f"  blocked {blocked:>5}{_busiest(stage)}"
        for stage in _timed(run)
        for idle, busy, blocked in [_percents(stage)]
    ]
    return "\n  ".join([_head(run), *_numbers(run), *stages, *verdict_lines(run)])


def html(run: State) -> str:
    """Return an HTML fragment: the content of :func:`text`, a bar per stage, and the tasks."""
    rows = "".join(_stage_row(stage) for stage in _timed(run))
    lines = [*_numbers(run), *verdict_lines(run)]
    return (
        '<div style="font-family:sans-serif;font-size:13px;white-space:pre-wrap">'
        f"<div><b>{escape(_head(run))}</b></div>"
        + "".join(f"<div>{escape(line)}</div>" for line in lines)
        + (f'<table style="{_TABLE}">{rows}</table>' if rows else "")
        + f"{_task_table(run)}</div>"
    )


def verdict_lines(run: State) -> list[str]:
    """Return the slowest stage and what may help; nothing if no stage clearly is."""
    verdict = run["verdict"]
    return [f"slowest: {verdict['text']}", f"may help: {verdict['advice']}"] if verdict else []


def metric_lines(run: State) -> list[str]:
    """Return a line for each operator with state, and for each whose function has metrics, with the first of them."""
    states = [
        f"{operator}: state of {sizes['keys']:,} keys, {size(sizes['bytes_in_memory'])} in memory"
        + (f", {size(sizes['bytes_in_files'])} in files" if sizes["bytes_in_files"] else "")
        for operator, sizes in run["state_sizes"].items()
    ]
    return states + [
        f"{operator}: " + ", ".join(_metric(*metric) for metric in list(metrics.items())[:_METRICS])
        for operator, metrics in run["metrics"].items()
    ]


def _metric(name: str, figures: State) -> str:
    if figures["kind"] == "counter":
        return f"{name} {figures['value']:,}"
    if figures["kind"] == "gauge":
        values = figures["values"].values()
        return f"{name} {min(values):g}" + (f" to {max(values):g}" if len(values) > 1 else "")
    if figures["kind"] == "tally":
        parts = [f"{text} {number:,}" for text, (number, _) in figures["values"].items()]
        return f"{name} ({', '.join(parts)})"
    mean = f", mean {figures['sum'] / figures['count']:g}" if figures["count"] else ""
    return f"{name} {figures['count']:,}{mean}"


def _head(run: State) -> str:
    failure = f" [{run['error']}] {run['error_summary']}" if run["error"] else ""
    return f"headgate {title(run)}: {run['state']}{failure} after {run['seconds']:.1f} s"


def _numbers(run: State) -> list[str]:
    each_second = 1 / run["seconds"] if run["seconds"] > 0 else 0.0
    rows = f"{count(run['rows'])} rows"
    rows_per_second = f"{count(run['rows'] * each_second)} rows/s"
    more: list[str] = []
    if is_stream(run):
        parts = [rows, rows_per_second, f"{len(run['tasks'])} tasks", f"{run['restarts']} restarts"]
        more += _last_checkpoint(run)
    else:
        parts = [rows, size(run["bytes"]), rows_per_second, f"{size(run['bytes'] * each_second)}/s"]
        if run["mode"] == "kept":
            parts += [f"{run['producers']} producers", f"{run['consumers']} consumers"]
        if run["peak_bytes"]:
            parts.append(f"pool peak {size(run['peak_bytes'])}")
        if run["splits_done"]:
            more.append(f"splits done: {run['splits_done']}")
        if run["mode"] == "kept":
            more.append("; ".join([f"kept: {size(run['file_bytes'])} in files", *_repeated(run)]))
            if is_running(run):
                more.append("  ".join(_tasks_of_sides(run)))
    if run["peak_resident_bytes"]:
        parts.append(f"process peak {size(run['peak_resident_bytes'])}")
    causes = map(cause, run["failures"][:_MAX_FAILURES])
    return [
        "  ".join(parts),
        *more,
        *causes,
        *run["notices"],
        *_call_lines(run),
        *metric_lines(run),
    ]


def _call_lines(run: State) -> list[str]:
    """Return a line for each operator whose calls wait."""
    lines = []
    for stage in run["calls"]:
        times = (
            ""
            if stage["p50_ms"] is None
            else f", p50 {stage['p50_ms']:.0f} ms, p99 {stage['p99_ms']:.0f} ms"
        )
        errors = ", ".join(f"{name} {number:,}" for name, number in stage["errors"].items())
        lines.append(
            f"{stage['text']}; {stage['per_second']:.4g} calls/s{times}"
            + (f"; errors: {errors}" if errors else "")
        )
    return lines


def _last_checkpoint(run: State) -> list[str]:
    complete = [
        checkpoint for checkpoint in run["checkpoints"] if checkpoint["status"] == "complete"
    ]
    return [
        f"checkpoint {checkpoint['checkpoint']} took {seconds(checkpoint['duration'])}, {size(checkpoint['bytes'])}"
        for checkpoint in complete[-1:]
    ]


def _tasks_of_sides(run: State) -> list[str]:
    """Return the tasks of the two stages of an exchange."""
    if run["mode"] != "kept":
        return []
    sides = [_tasks_of_side("reduce", run, "consumers")]
    if run["producers_total"] or run["producers"]:
        sides.insert(0, _tasks_of_side("map", run, "producers"))
    return sides


def _tasks_of_side(name: str, run: State, side: str) -> str:
    done, running, total = run[side], run[f"{side}_running"], run[f"{side}_total"]
    tasks = f"{name} {done}" if total is None else f"{name} {done}/{total}"
    return f"{tasks}, {running} running" if running else tasks


def _repeated(run: State) -> list[str]:
    lines = []
    if run["made_again"]:
        lines.append(f"{run['made_again']} producers ran again, as their output was lost")
    if run["failed_attempts"]:
        lines.append(f"{run['failed_attempts']} attempts failed")
    return lines


def _timed(run: State) -> list[dict[str, Any]]:
    return [stage for stage in run["stages"] if _wall(stage)]


def _task_table(run: State) -> str:
    tasks = by_worth(run["tasks"])
    if not tasks:
        return ""
    number = len(tasks) + sum(others["tasks"] for others in run["more_tasks"])
    head = "".join(f'<th style="{_CELL}">{name}</th>' for name in _COLUMNS)
    rows = "".join(f"<tr>{_task_cells(task, run)}</tr>" for task in tasks[:MAX_TASKS])
    more = number - MAX_TASKS
    note = f"<div>{more} more tasks are not shown</div>" if more > 0 else ""
    return (
        f"<details><summary>{number} tasks</summary>"
        f'<table style="{_TABLE}"><tr>{head}</tr>{rows}</table>{note}</details>'
    )


def _task_cells(task: State, run: State) -> str:
    cells = [f"{task['role']} {task['task']}", task["state"], count(task["rows"])]
    cells += [size(task["bytes"]), *(seconds(task[name]) for name in TIMES)]
    if not has_reported(task):
        so_far = 1000 * run["seconds"] - (task["started_ms"] or 0)
        cells[1:] = [f"{task['state']} for {seconds(so_far)}", *("-" for _ in cells[2:])]
    return "".join(f'<td style="{_CELL}">{escape(cell)}</td>' for cell in cells)


def _stage_row(stage: State) -> str:
    parts = dict(zip(_COLOURS, _percents(stage), strict=True))
    label = ", ".join(f"{name} {percent}" for name, percent in parts.items())
    label += f"; busy for {seconds(stage['busy_ms'])} in all tasks{_busiest(stage)}"
    cells = (escape(stage["name"]), _bar(stage), escape(label))
    return "<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells) + "</tr>"


def _bar(stage: State) -> str:
    filled = "".join(
        f'<div style="height:10px;width:{160 * stage[name] / _wall(stage):.0f}px;background:{colour}"></div>'
        for name, colour in zip(STAGE_TIMES, _COLOURS.values(), strict=True)
    )
    return f'<div style="display:flex;width:160px;background:#e8e8e8">{filled}</div>'


def _busiest(stage: State) -> str:
    if stage["tasks"] < 2 or stage["busiest_share"] < _WORTH_SAYING:
        return ""
    return f"  (task {stage['busiest']}: {share(stage['busiest_share'])} busy)"


def _wall(stage: State) -> int:
    return sum(stage[name] for name in STAGE_TIMES)


def _percents(stage: State) -> list[str]:
    return [share(stage[name] / _wall(stage)) for name in STAGE_TIMES]


def _fitting(sentence: str, width: int) -> str:
    """Return as many leading clauses of a sentence as fit, but at least one."""
    while len(sentence) > width and (end := max(sentence.rfind(", "), sentence.rfind("; "))) > 0:
        sentence = sentence[:end]
    return sentence


def _cut(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    return line[: max(0, width - 3)] + "..." if width > 3 else line[:width]
