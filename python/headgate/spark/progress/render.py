"""Render the numbers of a run as one line, a few lines, or HTML. Pure functions.

HTML escapes every text that may come from a user.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from headgate.observe.words import count, seconds, size

if TYPE_CHECKING:
    from headgate.spark.progress.run_stats import RunStats
    from headgate.spark.progress.task_stats import StageStats, TaskStats

#: Maximum number of tasks in a table. The busiest come first.
MAX_TASKS: Final = 64
#: Most attempts that failed in a few lines.
_MAX_FAILURES: Final = 3
#: Minimum busy share of the busiest task, for the stage's line to name it.
_WORTH_SAYING: Final = 0.1
#: Flink's colours. Each stands beside its word, for readers who cannot tell colours apart.
_COLOURS: Final = (("idle", "#5db1ff"), ("busy", "#ee6464"), ("blocked", "#333333"))
_CELL: Final = "padding:1px 8px;text-align:left"
#: Some themes of notebooks center tables.
_TABLE: Final = "margin:0"


def line(stats: RunStats, width: int) -> str:
    """Return one line of at most ``width`` characters."""
    parts = [f"headgate {stats.exchange_id[:4]}/{stats.run}"]
    if stats.state != "running":
        parts.append(stats.state)
    parts += _parts(stats)
    if stats.error:
        parts.append(stats.error)
    elif stats.verdict is not None:
        parts.append(_fitting(stats.verdict.text, width - len("  ".join([*parts, ""]))))
    return _cut("  ".join(parts), width)


def text(stats: RunStats) -> str:
    """Return a few lines: state and numbers, stages, verdict."""
    stages = [
        f"{stage.name:<8} idle {_share(stage.idle_ms, stage):>5}"
        f"  busy {_share(stage.busy_ms, stage):>5} {f'({seconds(stage.busy_ms)})':>9}"
        f"  blocked {_share(stage.back_pressured_ms, stage):>5}{_busiest(stage)}"
        for stage in _timed(stats)
    ]
    return "\n  ".join([_head(stats), *_numbers(stats), *stages, *_verdict(stats)])


def html(stats: RunStats) -> str:
    """Return an HTML fragment: the content of :func:`text`, a bar per stage, and the tasks."""
    rows = "".join(_stage_row(stage) for stage in _timed(stats))
    said = [*_numbers(stats), *_verdict(stats)]
    return (
        '<div style="font-family:sans-serif;font-size:13px;white-space:pre-wrap">'
        f"<div><b>{escape(_head(stats))}</b></div>"
        + "".join(f"<div>{escape(words)}</div>" for words in said)
        + (f'<table style="{_TABLE}">{rows}</table>' if rows else "")
        + f"{_task_table(stats)}</div>"
    )


def _head(stats: RunStats) -> str:
    failure = f" [{stats.error}] {stats.error_summary}" if stats.error else ""
    name = f"headgate exchange {stats.exchange_id[:4]}, run {stats.run}"
    return f"{name}: {stats.state}{failure} after {stats.seconds:.1f} s"


def _numbers(stats: RunStats) -> list[str]:
    found = [
        (
            f"{count(stats.rows)} rows  {size(stats.bytes)}"
            f"  {count(stats.rows_per_second)} rows/s  {size(stats.bytes_per_second)}/s"
            f"  {stats.producers} producers  {stats.consumers} consumers"
            + (f"  pool peak {size(stats.peak_bytes)}" if stats.peak_bytes else "")
        )
    ]
    if stats.splits_done:
        found.append(f"splits done: {stats.splits_done}")
    found.append("; ".join([f"kept: {size(stats.file_bytes)} in files", *_again(stats)]))
    if stats.state == "running":
        found.append("  ".join(_sides(stats)))
    found += [
        f"{one['role']} {one['task']} on {one['host']} failed: {one['summary']}"
        for one in stats.failures[:_MAX_FAILURES]
    ]
    return found


def _parts(stats: RunStats) -> list[str]:
    parts = _sides(stats)
    if stats.rows:
        parts.append(f"{count(stats.rows)} rows  {size(stats.bytes)}")
    if stats.file_bytes:
        parts.append(f"{size(stats.file_bytes)} in files")
    if stats.rows_received:
        parts.append(f"{count(stats.rows_received)} rows read")
    return parts + _again(stats)


def _sides(stats: RunStats) -> list[str]:
    """Return the tasks of the two stages."""
    sides = [_side("reduce", stats.consumers, stats.consumers_running, stats.consumers_total)]
    if stats.producers_total or stats.producers:
        producers = stats.producers, stats.producers_running, stats.producers_total
        sides.insert(0, _side("map", *producers))
    return sides


def _side(name: str, done: int, running: int, total: int | None) -> str:
    tasks = f"{name} {done}" if total is None else f"{name} {done}/{total}"
    return f"{tasks}, {running} running" if running else tasks


def _again(stats: RunStats) -> list[str]:
    words = []
    if stats.made_again:
        words.append(f"{stats.made_again} producers ran again, as their output was lost")
    if stats.failed_attempts:
        words.append(f"{stats.failed_attempts} attempts failed")
    return words


def _verdict(stats: RunStats) -> list[str]:
    found = stats.verdict
    return [] if found is None else [f"slowest: {found.text}", f"may help: {found.advice}"]


def _timed(stats: RunStats) -> list[StageStats]:
    return [stage for stage in stats.stages if _wall(stage)]


def _task_table(stats: RunStats) -> str:
    if not stats.tasks:
        return ""
    tasks = sorted(stats.tasks, key=_worth, reverse=True)
    names = ("task", "state", "rows", "bytes", "waits for input", "function", "emit", "blocked")
    head = "".join(f'<th style="{_CELL}">{name}</th>' for name in names)
    rows = "".join(f"<tr>{_task_cells(task, stats)}</tr>" for task in tasks[:MAX_TASKS])
    more = len(tasks) - MAX_TASKS
    note = f"<div>{more} more tasks are not shown</div>" if more > 0 else ""
    return (
        f"<details><summary>{len(tasks)} tasks</summary>"
        f'<table style="{_TABLE}"><tr>{head}</tr>{rows}</table>{note}</details>'
    )


def _worth(task: TaskStats) -> tuple[bool, int]:
    """Rank a task by what it tells about the run."""
    return not task.has_reported, task.wall_ms - task.input_ms


def _task_cells(task: TaskStats, stats: RunStats) -> str:
    cells = [f"{task.role} {task.task}", task.state, count(task.rows), size(task.bytes)]
    times = (task.input_ms, task.function_ms, task.emit_ms, task.blocked_ms)
    cells += [seconds(ms) for ms in times]
    if not task.has_reported:
        so_far = 1000 * stats.seconds - (task.started_ms or 0)
        cells[1:] = [f"{task.state} for {seconds(so_far)}", *("-" for _ in cells[2:])]
    return "".join(f'<td style="{_CELL}">{escape(cell)}</td>' for cell in cells)


def _stage_row(stage: StageStats) -> str:
    times = (stage.idle_ms, stage.busy_ms, stage.back_pressured_ms)
    parts = [(ms / _wall(stage), colour) for ms, (_, colour) in zip(times, _COLOURS, strict=True)]
    words = ", ".join(
        f"{name} {_share(ms, stage)}" for ms, (name, _) in zip(times, _COLOURS, strict=True)
    )
    words += f"; busy for {seconds(stage.busy_ms)} in all tasks"
    cells = (escape(stage.name), _bar(parts), escape(words + _busiest(stage)))
    return "<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells) + "</tr>"


def _bar(parts: list[tuple[float, str]]) -> str:
    filled = "".join(
        f'<div style="height:10px;width:{160 * share:.0f}px;background:{colour}"></div>'
        for share, colour in parts
    )
    return f'<div style="display:flex;width:160px;background:#e8e8e8">{filled}</div>'


def _busiest(stage: StageStats) -> str:
    if stage.tasks < 2 or stage.busiest_share < _WORTH_SAYING:
        return ""
    return f"  (task {stage.busiest}: {100 * stage.busiest_share:.0f} % busy)"


def _wall(stage: StageStats) -> int:
    return stage.idle_ms + stage.busy_ms + stage.back_pressured_ms


def _share(ms: int, stage: StageStats) -> str:
    return f"{100 * ms / _wall(stage):.0f} %"


def _fitting(sentence: str, width: int) -> str:
    """Return as many leading clauses of a sentence as fit, but at least one."""
    while len(sentence) > width and (end := max(sentence.rfind(", "), sentence.rfind("; "))) > 0:
        sentence = sentence[:end]
    return sentence


def _cut(words: str, width: int) -> str:
    if len(words) <= width:
        return words
    return words[: max(0, width - 3)] + "..." if width > 3 else words[:width]
