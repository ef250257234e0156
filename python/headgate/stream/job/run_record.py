"""Fills the record of a streaming job from the figures that its tasks report each second."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from headgate.observe.calls import CallReport, call_stages, verdict_of_calls
from headgate.observe.record import Run, Task
from headgate.observe.stages import stage_of
from headgate.observe.verdict import verdict_of_job
from headgate.stream.graph.metrics import merged
from headgate.stream.job.notices import totals

if TYPE_CHECKING:
    from headgate.stream.job.master import JobMaster

#: Times of a task's report.
_TIMES: Final = ("elapsed_ms", "busy_ms", "blocked_ms")


def record_of(master: JobMaster) -> Run:
    """Return the record of a job so far. Figures of tasks are at most a second old."""
    graph, failure, attempt = master.graph, master.failure, master.attempt
    is_over = master.state.is_over
    seconds = (master.ended_at or time.time()) - master.started_at
    names = {stage.number: stage.name for stage in graph.stages}
    inputs = {
        stage.name: tuple(sender.name for sender, _ in graph.inputs_of(stage.number))
        for stage in graph.stages
    }
    workers = tuple(master.workers())
    hosts, peaks = {worker.number: worker.host for worker in workers}, master.peaks()
    tasks: list[Task] = []
    recent: list[Task] = []
    drops, metrics, sizes = [], [], []
    reports: list[CallReport] = []
    worker_of = {} if attempt is None else attempt.worker_of
    figures = {} if attempt is None else attempt.figures
    earlier = {} if attempt is None else attempt.earlier
    for (stage, index), worker in worker_of.items():
        newest, before = figures.get((stage, index), {}), earlier.get((stage, index))
        task = _task(names[stage], index, newest)
        begun = max(0, round(1000 * seconds) - newest.get("elapsed_ms", 0))
        ended = round(1000 * seconds) if is_over else None
        state = "done" if is_over else "running"
        task = replace(task, state=state, started_ms=begun, ended_ms=ended)
        host, peak = hosts.get(worker, ""), peaks.get(worker, 0)
        tasks.append(replace(task, host=host, peak_resident_bytes=peak))
        drops.append(newest.get("dropped", {}))
        metrics.append((index, newest.get("metrics", {})))
        sizes.append(newest.get("state_sizes", {}))
        if before is not None:
            recent.append(_task(names[stage], index, _since(before, newest)))
        # Behind its end the job is judged by all of its time.
        begin = before if before is not None and not is_over else {}
        reports.append(_call_report(names[stage], index, begin, newest))
    times: dict[str, list[tuple[int, tuple[int, int, int]]]] = {}
    for task in tasks:
        parts = (task.idle_ms, task.busy_ms, task.back_pressured_ms)
        times.setdefault(task.role, []).append((task.task, parts))
    stages = tuple(stage_of(name, times[name], inputs[name]) for name in times)
    dropped, of_functions = totals(drops), merged(metrics)
    rates = {
        node.uid: node.rate.highest
        for stage in graph.stages
        for node in stage.operators
        if node.rate is not None
    }
    calls = call_stages(reports, of_functions, rates)
    last_stages = {stage.name for stage in graph.stages if not stage.edges}
    return Run(
        mode="stream",
        name=master.name,
        number=0 if attempt is None else attempt.number,
        state=master.state.value,
        seconds=seconds,
        started_at=master.started_at,
        error="" if failure is None else failure.code,
        error_summary="" if failure is None else failure.summary,
        rows=sum(task.rows for task in tasks if not inputs[task.role]),
        peak_resident_bytes=max(peaks.values(), default=0),
        rows_received=sum(task.rows for task in tasks if task.role in last_stages),
        restarts=master.restarts,
        failures=tuple(master.ended_attempts),
        verdict=None
        if is_over
        else verdict_of_calls(calls if recent else (), verdict_of_job(recent, inputs)),
        stages=stages,
        tasks=tuple(tasks),
        checkpoints=tuple(master.checkpoints()),
        workers=workers,
        dropped=dropped,
        metrics=of_functions,
        calls=calls,
        state_sizes=totals(sizes),
        notices=tuple(master.notices.all(dropped, of_functions)),
    )


def _task(operators: str, index: int, figures: Mapping[str, Any]) -> Task:
    """Return a task with its figures: ``busy_ms`` of them has the waits, and all else of ``elapsed_ms`` is idle."""
    elapsed, busy = figures.get("elapsed_ms", 0), figures.get("busy_ms", 0)
    blocked = min(busy, figures.get("blocked_ms", 0))
    return Task(
        operators,
        index,
        rows=figures.get("rows", 0),
        input_ms=max(0, elapsed - busy),
        function_ms=busy - blocked,
        blocked_ms=blocked,
        batches=figures.get("batches", 0),
        watermark=figures.get("watermark"),
    )


def _call_report(
    operators: str, index: int, before: Mapping[str, Any], now: Mapping[str, Any]
) -> CallReport:
    """Return the report of a task for what its calls wait for."""
    since = {name: now.get(name, 0) - before.get(name, 0) for name in _TIMES}
    metrics = before.get("metrics", {}), now.get("metrics", {})
    return CallReport(_task(operators, index, since), *metrics, since["elapsed_ms"] / 1000)


def _since(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, int]:
    """Return the times of a task between two reports."""
    return {name: max(0, now[name] - before[name]) for name in _TIMES}
