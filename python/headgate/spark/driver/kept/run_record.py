"""Fills the record of a run of a kept exchange from the reports of its tasks, and from what Spark knows of the others."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate._group_size import largest_of
from headgate.observe.edges import matrix
from headgate.observe.numbers import count, size
from headgate.observe.record import Run, Task
from headgate.observe.stages import stages_of_exchange
from headgate.observe.verdict import verdict_of_exchange

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headgate._group_size import GroupSize
    from headgate.observe.verdict import Feed
    from headgate.spark.driver.kept.runs import KeptRun, KeptRuns
    from headgate.spark.driver.kept.spark_tasks import RunningTask
    from headgate.spark.tasks.report import Role, TaskReport

#: Most attempts that failed of a run that are listed: the first.
_MAX_FAILURES: Final = 16


def record_of(runs: KeptRuns, run: KeptRun, now: float, *, lists_tasks: bool = True) -> Run:
    """Return the record of a run so far. Any thread may call it.

    Args:
        runs: those of its application.
        run: the run.
        now: seconds on the clock of ``run.started``.
        lists_tasks: False to leave out the tasks that run or failed, for which Spark is asked.
    """
    runs.look(run)
    outcome, spark = runs.outcome(run), run.stages
    producers, consumers = list(run.producers.values()), list(run.consumers.values())
    tasks = tuple(_reported(report, run) for report in (*producers, *consumers))
    is_running = outcome.state == "running"
    seconds = (now if is_running else run.heard) - run.started
    started_at = round(time.time() - (now - run.started), 3)
    listed = runs.running(run) if lists_tasks and is_running else []
    failures = runs.failures(run)[:_MAX_FAILURES] if lists_tasks else []
    settings = runs.settings.get(run.exchange)
    failed_attempts = max(run.failures, spark.failed)
    if failed_attempts or outcome.state == "failed":
        run.kills.look(is_over=not is_running)
    feeds = {_feed(report) for report in producers}
    return Run(
        mode="kept",
        name=run.exchange,
        number=run.number,
        state=outcome.state,
        seconds=seconds,
        started_at=started_at,
        error=outcome.code,
        error_summary=outcome.summary,
        rows=sum(p.record.rows for p in producers),
        bytes=sum(p.record.bytes for p in producers),
        pages=sum(p.pages for p in producers),
        rows_received=sum(c.record.rows for c in consumers),
        peak_bytes=max((task.peak_bytes for task in tasks), default=0),
        peak_resident_bytes=max((task.peak_resident_bytes for task in tasks), default=0),
        file_bytes=sum(p.file_bytes for p in producers),
        splits_done=sum(p.splits for p in producers),
        producers=len(producers),
        producers_running=spark.running("map"),
        producers_total=spark.tasks("map"),
        consumers=len(consumers),
        consumers_running=spark.running("reduce"),
        consumers_total=run.partitions * run.parts
        if run.parts > 1
        else spark.tasks("reduce") or run.partitions,
        made_again=run.made_again,
        failed_attempts=failed_attempts,
        failures=tuple(failures),
        largest_group=_largest_group(run),
        notices=tuple(_notices(run)),
        verdict=verdict_of_exchange(tasks, seconds, feed=feeds.pop() if len(feeds) == 1 else None),
        stages=stages_of_exchange(tasks),
        tasks=(*tasks, *(_unreported(role, task, started_at) for role, task in listed)),
        edges=matrix((p.record.task, p.edges_each, p.edges) for p in producers),
        options={} if settings is None else settings.options,
        versions={} if settings is None else settings.versions,
    )


def _feed(producer: TaskReport) -> Feed:
    if producer.follows:
        return "exchange"
    return "source" if producer.splits else "jvm"


def _notices(run: KeptRun) -> Iterator[str]:
    """Yield kills of workers, peaks that are not those of a task alone, merged rows, joined subpartitions, and the largest group."""
    yield from run.kills.sentences()
    consumers = list(run.consumers.values())
    if not all(map(_peak_is_of_task, (*run.producers.values(), *consumers))):
        yield (
            "peak_resident_bytes of some tasks is since their worker's process began, as the kernel refused to reset it "
            "(/proc/self/clear_refs)"
        )
    yield from _of_combine(run)
    yield from _of_calls(consumers)
    largest = _largest_group(run)
    if largest is not None:
        key = ", ".join(
            f"{name}={'null' if value is None else value}" for name, value in largest.key.items()
        )
        yield f"the largest group has {count(largest.rows)} rows and {size(largest.bytes)} in memory: {key}"


def _of_combine(run: KeptRun) -> Iterator[str]:
    merging = [producer for producer in list(run.producers.values()) if producer.merged]
    if merging:
        before, after = sum(p.merged for p in merging), sum(p.record.rows for p in merging)
        yield f"combine made {after:,} rows of {before:,} before they were sent"


def _of_calls(consumers: Sequence[TaskReport]) -> Iterator[str]:
    calls = sum(c.calls for c in consumers)
    if calls:
        subpartitions, read = (sum(map(of, consumers)) for of in (_subpartitions, _bytes))
        yield (
            f"{subpartitions:,} subpartitions with rows were joined into {calls:,} calls of reduce, of "
            f"{size(read // calls)} on average"
        )


def _largest_group(run: KeptRun) -> GroupSize | None:
    groups = (consumer.largest_group for consumer in list(run.consumers.values()))
    return largest_of(groups)


def _peak_is_of_task(report: TaskReport) -> bool:
    return report.memory is None or report.memory.peak_is_of_task


def _subpartitions(consumer: TaskReport) -> int:
    return consumer.subpartitions


def _bytes(consumer: TaskReport) -> int:
    return consumer.record.bytes


def _reported(report: TaskReport, run: KeptRun) -> Task:
    ended = round(1000 * (run.ended.get(report.attempt, run.started) - run.started))
    started = max(0, ended - report.record.wall_ms)
    return replace(report.record, started_ms=started, ended_ms=ended)


def _unreported(role: Role, task: RunningTask, started_at: float) -> Task:
    began = max(0, round(1000 * (task.launched - started_at)))
    return Task(role, task.task, host=task.host, attempt=task.attempt, started_ms=began)
