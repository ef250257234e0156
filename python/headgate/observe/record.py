"""The record of a run: its stages and tasks with the same four times, of an exchange, a streaming job or a single process.

Kept tasks, tasks of streams and environments fill it. All displays read it, and none of them knows what has filled it.

Decision: ADR 0040.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

from headgate.observe.report.files import write
from headgate.observe.state import RUNNING, SCHEMA_VERSION, TIMES, by_worth, state_of, worst
from headgate.observe.text import html, line, text

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa

    from headgate._group_size import GroupSize

#: Most tasks of a run that are listed one by one.
MOST_TASKS: Final = 512
#: Numbers that are added up of the others.
_SUMS: Final = ("rows", "bytes", *TIMES)


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a run. The four times are those of one thread; their sum is its time so far.

    A task of an exchange reports at its end; while it runs, its numbers and times are 0. One of a streaming job reports
    each second, and its numbers are those since the start of the attempt.

    Attributes:
        role: ``"map"`` for a producer, ``"reduce"`` for a consumer; the operators of a task of a streaming job.
        task: number of a producer's Spark partition, of a consumer's subpartition, or of a task among those of its operators.
        state: ``"running"`` or ``"done"``.
        rows: rows that a producer sent; for others rows of the input.
        bytes: bytes of a producer's pages, or of a consumer's rows in memory.
        peak_bytes: peak usage of its pool, known at the end.
        peak_resident_bytes: peak resident memory of its process: for a task of an exchange since the task began, known at the end;
            for one of a streaming job that of its :class:`Worker`. 0 if it is not known.
        input_ms: ms spent waiting for input from the source or the producers.
        function_ms: ms spent in the user's function; for a streaming job in all operators.
        emit_ms: ms a producer spent writing rows into pages.
        blocked_ms: ms spent waiting for downstream to take its output.
        disk_ms: ms of these in which the task waited for its files.
        link_ms: ms of a consumer's ``input_ms`` in which it waited for rows from other hosts.
        host: name of its host, or ``""`` if it is not known.
        attempt: id of Spark's task attempt; None if it is not known.
        started_ms: when it began, in ms since the start of the run; None if that is not known.
        ended_ms: when it ended; None while it runs.
        batches: batches of the input of a task of a streaming job.
        watermark: of a task of a streaming job, in ms since 1970; None before the first.
    """

    role: str
    task: int
    state: str = "running"
    rows: int = 0
    bytes: int = 0
    peak_bytes: int = 0
    peak_resident_bytes: int = 0
    input_ms: int = 0
    function_ms: int = 0
    emit_ms: int = 0
    blocked_ms: int = 0
    disk_ms: int = 0
    link_ms: int = 0
    host: str = ""
    attempt: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    batches: int = 0
    watermark: int | None = None

    @property
    def idle_ms(self) -> int:
        """Ms spent waiting for input: Flink's accumulateIdleTimeMs."""
        return self.input_ms

    @property
    def busy_ms(self) -> int:
        """Ms spent working: Flink's accumulateBusyTimeMs."""
        return self.function_ms + self.emit_ms

    @property
    def back_pressured_ms(self) -> int:
        """Ms spent waiting for downstream: Flink's accumulateBackPressuredTimeMs."""
        return self.blocked_ms

    @property
    def wall_ms(self) -> int:
        """Ms that the task's clock has measured."""
        return self.idle_ms + self.busy_ms + self.back_pressured_ms


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a run: the sum over its tasks, and its busiest task.

    Attributes:
        name: ``"source"``, ``"map"``, ``"exchange"``, ``"reduce"`` or ``"sink"``; the operators in a streaming job.
        tasks: number of tasks that work for the stage.
        idle_ms: ms the tasks spent waiting for the upstream stages.
        busy_ms: ms the tasks worked; for source and sink, ms the tasks waited for these.
        back_pressured_ms: ms the tasks spent waiting for the downstream stages.
        busiest: the task with the largest busy share of its time; None if no task has a time.
        busiest_share: its busy share, 0 to 1.
        inputs: names of the stages whose rows it gets.
    """

    name: str
    tasks: int
    idle_ms: int
    busy_ms: int
    back_pressured_ms: int
    busiest: int | None
    busiest_share: float
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The stage that limits a run.

    Attributes:
        kind: kind of the cause, such as ``"skew"``; docs/progress.md has the conditions of each.
        stage: name of the stage.
        task: the task with the strongest evidence; None if it is not a single task.
        share: share of the task's time spent in the stage, 0 to 1.
        text: the sentence, with its evidence.
        advice: a change that may help.
    """

    kind: str
    stage: str
    task: int | None
    share: float
    text: str
    advice: str


@dataclass(frozen=True, slots=True)
class CallStage:
    """The calls of an operator that wait for a service: over the last second while the job runs, over all its time after it.

    Attributes:
        operator: its name.
        stage: name of its stage.
        tasks: number of its tasks.
        most: most calls of all tasks at a time: ``in_flight=`` times the tasks.
        under_way: mean number of calls that waited for the service.
        for_rate: mean number that waited for a token of the rate.
        for_breaker: mean number that waited for the end of a pause.
        for_retries: mean number that waited for their next attempt.
        full: share of the time in which rows waited for room, of the fullest task.
        busy: share of the time that an event loop or a task worked, of the busiest one.
        per_second: attempts that began.
        rate: present rate in calls a second; None without ``rate=``.
        rate_asked: of ``rate=``.
        p50_ms: median of the time of an attempt; None before the first has ended.
        p99_ms: its 99th percentile.
        errors: attempts that failed since the start of the attempt of the job, by class of the error.
        last_error: class and text of the last one, of which 200 characters count, or ``""``.
        waits_for: ``"service"``, ``"rate"``, ``"breaker"``, ``"retries"``, ``"order"``, ``"us"``, ``"rows"`` or ``"next"``.
        text: a sentence that says so, with its evidence.
        advice: a change that may help, or ``""``.
    """

    operator: str
    stage: str
    tasks: int
    most: int
    under_way: float
    for_rate: float
    for_breaker: float
    for_retries: float
    full: float
    busy: float
    per_second: float
    rate: float | None
    rate_asked: float | None
    p50_ms: float | None
    p99_ms: float | None
    errors: Mapping[str, int]
    last_error: str
    waits_for: str
    text: str
    advice: str

    def with_text(self, text: str) -> CallStage:
        """Return the same figures with another sentence."""
        return replace(self, text=text)


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that failed: at a task, or of a streaming job.

    Attributes:
        attempt: id of Spark's task attempt, or number of the job's attempt.
        error: code of the cause, such as ``"HG-6001"``, or ``""``.
        summary: one line that says why.
        role: of the task; ``""`` for an attempt of a streaming job.
        task: its number; None for an attempt of a streaming job.
        host: of the task.
    """

    attempt: int
    error: str
    summary: str
    role: str = ""
    task: int | None = None
    host: str = ""


@dataclass(slots=True)
class CheckpointStats:
    """Figures of one checkpoint.

    Attributes:
        checkpoint: its id.
        triggered: wall-clock time in ms since 1970.
        savepoint: folder of a savepoint.
        status: ``"pending"``, ``"complete"`` or ``"failed"``.
        duration: ms from the trigger until all is written; None while it is pending.
        bytes: size of the files that it wrote.
        barrier: ms from the trigger until the last task had its barriers.
        alignment: longest alignment of a task in ms.
        sync: longest time in ms for which a task stood still.
        in_flight: bytes of data in flight.
        reason: of a failure.
    """

    checkpoint: int
    triggered: int
    savepoint: str | None = None
    status: str = "pending"
    duration: int | None = None
    bytes: int = 0
    barrier: int = 0
    alignment: int = 0
    sync: int = 0
    in_flight: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker of a streaming job that is connected.

    Attributes:
        number: of the worker, from 0.
        host: name of its host.
        pid: of its process there.
        peak_resident_bytes: peak resident memory of that process since the worker began, or with ``workers=0`` since the process did,
            at most a second ago; 0 before its first report.
    """

    number: int
    host: str
    pid: int
    peak_resident_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """One run: an exchange in one action, a streaming job, or what one process exchanges.

    It prints as a few lines, and is a table in a notebook. Reports of tasks may be lost, so the times may lag behind.

    Attributes:
        mode: ``"kept"``, ``"stream"`` or ``"process"``.
        name: id of the exchange, in hex; name of the streaming job or of the process.
        number: number of the run in this application; of a streaming job's attempt, from 1.
        state: of an exchange ``"running"``, and at the end ``"done"``, ``"failed"`` or ``"cancelled"``; of a streaming job the
            value of its :class:`headgate.stream.JobState`.
        seconds: from the start of the first task, or of the job, to the end of the run, or to now.
        started_at: when it started, in seconds since 1970 by the driver's clock.
        error: code of the first cause of its failure, or ``""``.
        error_summary: text of that cause, or ``""``.
        rows: rows that producers sent, or that the sources of a streaming job read.
        bytes: bytes of pages sent.
        pages: buffers sent.
        rows_received: rows that consumers, or the last stages of a streaming job, read; fewer than sent after a LIMIT.
        peak_bytes: peak pool usage of the process with the highest one.
        peak_resident_bytes: peak resident memory of the worker's process with the highest one, see :class:`Task`.
        file_bytes: bytes of the files that the producers left.
        splits_done: splits that producers read to their end; 0 if Spark reads the input.
        producers: producer tasks that are done.
        producers_running: producer tasks that run now.
        producers_total: all producer tasks; None if that is not known, or Spark runs none.
        consumers: consumer tasks that are done.
        consumers_running: consumer tasks that run now.
        consumers_total: all consumer tasks.
        made_again: producers that Spark ran again, as their output was lost.
        failed_attempts: attempts at tasks that failed.
        restarts: failures after which a streaming job was started anew.
        failures: the first 16 attempts at tasks that failed, or the last 16 attempts of a streaming job.
        verdict: the stage that limits the run; None if none clearly does.
        stages: times of each stage, summed over its tasks, and its busiest task.
        tasks: state and times of each task.
        edges: bytes from producers to consumers, see ``headgate.observe.edges.matrix()``; of
            producers that are done, and None before the first one is.
        checkpoints: the last 100 checkpoints of a streaming job, the oldest first.
        workers: the workers of a streaming job that are connected.
        largest_group: the largest group that ``reduce`` of ``per_key`` or ``per_groups`` got; None if there was none.
        dropped: rows and values that a streaming job dropped since the start of the attempt: operator -> counter -> number.
        metrics: of the functions of a streaming job since the start of the attempt: operator -> name -> ``kind`` and figures,
            as :class:`headgate.stream.Metrics` says.
        calls: figures of the operators of a streaming job whose calls wait.
        state_sizes: of the keyed state of a streaming job, over all tasks: operator -> ``keys``, ``bytes_in_memory``,
            ``bytes_in_files``.
        notices: sentences about what the user should know, such as late rows, or partitions that were joined.
        options: name -> ``value`` as text or None, and ``source``: ``"argument"``, ``"conf"``,
            ``"environment"`` or ``"default"``.
        versions: of Python and the packages on the driver, by name.
        history: what was added in each second that the record of this process has, see :meth:`headgate.observe.runs.Runs.state`.
    """

    mode: str
    name: str
    number: int
    state: str
    seconds: float = 0.0
    started_at: float = 0.0
    error: str = ""
    error_summary: str = ""
    rows: int = 0
    bytes: int = 0
    pages: int = 0
    rows_received: int = 0
    peak_bytes: int = 0
    peak_resident_bytes: int = 0
    file_bytes: int = 0
    splits_done: int = 0
    producers: int = 0
    producers_running: int = 0
    producers_total: int | None = None
    consumers: int = 0
    consumers_running: int = 0
    consumers_total: int | None = None
    made_again: int = 0
    failed_attempts: int = 0
    restarts: int = 0
    failures: tuple[Failure, ...] = field(default=(), repr=False)
    verdict: Verdict | None = None
    stages: tuple[Stage, ...] = field(default=(), repr=False)
    tasks: tuple[Task, ...] = field(default=(), repr=False)
    edges: Mapping[str, Any] | None = field(default=None, repr=False)
    checkpoints: tuple[CheckpointStats, ...] = field(default=(), repr=False)
    workers: tuple[Worker, ...] = ()
    largest_group: GroupSize | None = None
    dropped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    metrics: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict, repr=False)
    calls: tuple[CallStage, ...] = field(default=(), repr=False)
    state_sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict, repr=False)
    notices: tuple[str, ...] = ()
    options: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict, repr=False)
    versions: Mapping[str, str] = field(default_factory=dict, repr=False)
    history: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)

    @property
    def is_over(self) -> bool:
        """True if nothing can come any more.

        An action on an RDD looks done between its stages, also if its consumers have not begun.
        """
        lacks = self.consumers < (self.consumers_total or 0)
        return self.state not in RUNNING and not (self.state == "done" and lacks)

    def plain(self) -> dict[str, Any]:
        """Return the run as values that JSON has, of a bounded size.

        ``tasks`` has at most 512 tasks: those that run and have not reported, then
        those that worked or waited for downstream the longest, of each role alike. ``more_tasks`` has for
        each role the others: how many, in which states, and their sums.
        """
        tasks = [_values(task) for task in self.tasks]
        listed = tasks
        others: list[dict[str, Any]] = []
        if len(tasks) > MOST_TASKS:
            first, others = worst(by_worth(tasks), MOST_TASKS)
            identities = {id(task) for task in first}
            listed = [task for task in tasks if id(task) in identities]
        return {**self._plain(listed), "more_tasks": _summed(others)}

    def to_json(self) -> str:
        """Return all numbers as one JSON object of version ``schema_version``."""
        return json.dumps(self._plain([_values(task) for task in self.tasks]))

    def to_arrow(self) -> pa.Table:
        """Return the tasks as a table with a row per task and a column per attribute."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import

        texts = {"role", "state", "host"}
        names = [task_field.name for task_field in fields(Task)]
        schema = pa.schema([(n, pa.string() if n in texts else pa.int64()) for n in names])
        return pa.Table.from_pylist([_values(task) for task in self.tasks], schema=schema)

    def report(self, path: str | os.PathLike[str] = "report.html") -> Path:
        """Write this run into one file, as :func:`headgate.spark.report` writes the last runs."""
        return write(state_of([self.plain()]), path)

    def line(self, width: int) -> str:
        """Return one line of at most ``width`` characters."""
        return line(replace(self, tasks=()).plain(), width)

    def __str__(self) -> str:
        """Return a few lines: state and numbers, stages, verdict."""
        return text(self.plain())

    def _repr_html_(self) -> str:
        return html(self.plain())

    def _plain(self, tasks: list[dict[str, Any]]) -> dict[str, Any]:
        checkpoints = [asdict(checkpoint) for checkpoint in self.checkpoints]
        for checkpoint in checkpoints:
            # A URI may have a password.
            checkpoint["savepoint"] = checkpoint["savepoint"] is not None
        return {
            **_values(self),
            "failures": [_values(failure) for failure in self.failures],
            "verdict": None if self.verdict is None else _values(self.verdict),
            "stages": [{**_values(stage), "inputs": list(stage.inputs)} for stage in self.stages],
            "tasks": tasks,
            "checkpoints": checkpoints,
            "workers": [_values(worker) for worker in self.workers],
            "calls": [_values(stage) for stage in self.calls],
            "largest_group": None if self.largest_group is None else _values(self.largest_group),
            "notices": list(self.notices),
            "history": list(self.history),
            "schema_version": SCHEMA_VERSION,
        }


def _values(record: Any) -> dict[str, Any]:
    """Return the attributes of a record; :func:`dataclasses.asdict` takes ten times as long."""
    return {attribute.name: getattr(record, attribute.name) for attribute in fields(record)}


def _summed(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "role": role,
            "tasks": len(mine),
            "states": dict(Counter(task["state"] for task in mine)),
            **{name: sum(task[name] for task in mine) for name in _SUMS},
        }
        for role in dict.fromkeys(task["role"] for task in tasks)
        if (mine := [task for task in tasks if task["role"] == role])
    ]
