"""Snapshots of a run and its tasks, live or final. Every display renders a snapshot."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.observe.edges import matrix
from headgate.observe.report.files import write
from headgate.observe.runs import RUNS
from headgate.spark.driver.kept.outcome import failed
from headgate.spark.progress.facts import Facts
from headgate.spark.progress.plain import plain
from headgate.spark.progress.render import html, text
from headgate.spark.progress.run_stats import RunStats
from headgate.spark.progress.task_stats import TaskStats, stages
from headgate.spark.progress.verdict import kept_verdict

if TYPE_CHECKING:
    import os
    from pathlib import Path

    import pyarrow as pa

    from headgate.spark.driver.kept.runs import KeptRun, KeptRuns
    from headgate.spark.driver.kept.spark_tasks import FailedTask, RunningTask
    from headgate.spark.progress.task_stats import Role
    from headgate.spark.tasks.report import TaskReport


#: Most attempts that failed of a run that are listed: the first.
_MAX_FAILURES: Final = 16


@dataclass(frozen=True, slots=True)
class ExchangeStats(RunStats):
    """Statistics of one run of an exchange: its numbers, as text, HTML, JSON or a table."""

    def to_json(self) -> str:
        """Return all numbers as one JSON object of version ``schema_version``."""
        return json.dumps(asdict(self))

    def to_arrow(self) -> pa.Table:
        """Return the tasks as a table with a row per task and a column per attribute."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import

        names = TaskStats.__slots__
        words = {"role", "state", "host"}
        schema = pa.schema([(n, pa.string() if n in words else pa.int64()) for n in names])
        return pa.Table.from_pylist([asdict(task) for task in self.tasks], schema=schema)

    def report(self, path: str | os.PathLike[str] = "report.html") -> Path:
        """Write this run into one file, as :func:`headgate.spark.report` writes the last runs."""
        return write(RUNS.state_of(plain(self)), path)

    def __str__(self) -> str:
        """Return a few lines: state and numbers, stages, verdict."""
        return text(self)

    def _repr_html_(self) -> str:
        return html(self)


def kept_snapshot(
    runs: KeptRuns, run: KeptRun, now: float, *, lists_tasks: bool = True
) -> ExchangeStats:
    """Return the statistics of a run of a kept exchange so far. Any thread may call it.

    Args:
        runs: those of its application.
        run: the run.
        now: seconds on the clock of ``run.started``.
        lists_tasks: False to leave out the tasks that run or failed, for which Spark is asked.
    """
    runs.look(run)
    outcome, spark = runs.outcome(run), run.stages
    producers, consumers = list(run.producers.values()), list(run.consumers.values())
    facts = runs.facts.get(run.exchange) or Facts()
    tasks = tuple(_reported(report, run) for report in (*producers, *consumers))
    is_running = outcome.state == "running"
    seconds = (now if is_running else run.heard) - run.started
    started_at = _epoch_seconds(run.started, now)
    listed = runs.running(run) if lists_tasks and is_running else []
    failures = runs.failures(run) if lists_tasks else []
    return ExchangeStats(
        exchange_id=run.exchange,
        run=run.number,
        state=outcome.state,
        error=outcome.code,
        seconds=seconds,
        producers=len(producers),
        consumers=len(consumers),
        rows=sum(p.rows for p in producers),
        bytes=sum(p.bytes for p in producers),
        pages=sum(p.pages for p in producers),
        rows_received=sum(c.rows for c in consumers),
        peak_bytes=max((r.peak_bytes for r in (*producers, *consumers)), default=0),
        splits_done=sum(p.splits for p in producers),
        error_summary=outcome.summary,
        tasks=(*tasks, *(_unreported(role, one, started_at) for role, one in listed)),
        stages=stages(tasks),
        mode="kept",
        file_bytes=sum(p.file_bytes for p in producers),
        producers_running=spark.running("map"),
        producers_total=spark.tasks("map"),
        consumers_running=spark.running("reduce"),
        consumers_total=spark.tasks("reduce") or run.partitions,
        made_again=run.made_again,
        failed_attempts=max(run.failures, spark.failed),
        verdict=kept_verdict(tasks, seconds, reads_splits=any(p.splits for p in producers)),
        started_at=started_at,
        options=facts.options,
        versions=facts.versions,
        edges=matrix((p.task, p.edges_each, p.edges) for p in producers),
        failures=tuple(_failure(role, one) for role, one in failures[:_MAX_FAILURES]),
    )


def _reported(report: TaskReport, run: KeptRun) -> TaskStats:
    ended = run.ended.get(report.attempt, run.started) - run.started
    return TaskStats(
        role=report.role,
        task=report.task,
        state="done",
        rows=report.rows,
        bytes=report.bytes,
        peak_bytes=report.peak_bytes,
        disk_ms=report.disk_ms,
        link_ms=report.link_ms,
        host=report.hostname,
        attempt=report.attempt,
        started_ms=max(0, round(1000 * ended) - sum(report.times.values())),
        ended_ms=round(1000 * ended),
        **report.times,
    )


def _failure(role: Role, one: FailedTask) -> dict[str, Any]:
    cause = failed(one.error)
    return {
        "role": role,
        "task": one.task,
        "attempt": one.attempt,
        "host": one.host,
        "error": cause.code,
        "summary": cause.summary,
    }


def _unreported(role: Role, one: RunningTask, started_at: float) -> TaskStats:
    began = max(0, round(1000 * (one.launched - started_at)))
    return TaskStats(role, one.task, host=one.host, attempt=one.attempt, started_ms=began)


def _epoch_seconds(at: float, now: float) -> float:
    """Return a time of a clock whose time is ``now`` in seconds since 1970."""
    return round(time.time() - (now - at), 3)
