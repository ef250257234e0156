"""A snapshot of a run and of its tasks, live or final; everything that is shown renders one."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from headgate.spark.driver.members import State
from headgate.spark.driver.roster import RunState
from headgate.spark.progress.task_stats import StageStats, TaskStats, stages
from headgate.spark.progress.verdict import Verdict, verdict

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.spark.driver.members import Member
    from headgate.spark.driver.run import Run
    from headgate.spark.progress.task_stats import Role

#: Grows with each field that :meth:`ExchangeStats.to_json` gains, loses or changes.
SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ExchangeStats:
    """What one run of an exchange did. What tasks tell may be lost, so times may lag behind.

    Attributes:
        exchange_id: of the exchange, in hex.
        run: number of the run in this application.
        epoch: attempt of the run.
        state: ``"done"``, ``"failed"`` or ``"cancelled"``; ``"running"`` while anybody wants more.
        error: code of the first cause, or ``""``.
        seconds: from the last consumer's arrival to the end.
        producers: producer tasks whose rows were taken.
        consumers: consumer tasks; fewer than partitions when some were handed over.
        rows: rows sent.
        bytes: bytes of pages sent.
        pages: buffers sent.
        rows_received: rows read; fewer than sent after a LIMIT.
        peak_bytes: the largest use of a pool in any one process.
        splits_done: splits that were read to their end; 0 where Spark reads the input.
        splits_total: all splits; None where the source does not know.
        error_summary: the first cause in its own words, or ``""``.
        tasks: of each task, where it stands and what it spent its time on.
        stages: of each stage, the sum over its tasks and the busiest one.
        verdict: the slowest stage; None when it is not sure.
        schema_version: of :meth:`to_json`.
    """

    exchange_id: str
    run: int
    epoch: int
    state: str
    error: str
    seconds: float
    producers: int
    consumers: int
    rows: int
    bytes: int
    pages: int
    rows_received: int
    peak_bytes: int
    splits_done: int = 0
    splits_total: int | None = None
    error_summary: str = ""
    tasks: tuple[TaskStats, ...] = field(default=(), repr=False)
    stages: tuple[StageStats, ...] = field(default=(), repr=False)
    verdict: Verdict | None = None
    schema_version: int = SCHEMA_VERSION

    @property
    def rows_per_second(self) -> float:
        """Rows sent per second since the start."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    @property
    def bytes_per_second(self) -> float:
        """Bytes sent per second since the start."""
        return self.bytes / self.seconds if self.seconds > 0 else 0.0

    @property
    def share_done(self) -> float | None:
        """The part of the splits that is done, 0 to 1; None where the total is not known."""
        if not self.splits_total:
            return None
        return min(1.0, self.splits_done / self.splits_total)

    def to_json(self) -> str:
        """Return everything as one JSON object; see ``schema_version``."""
        return json.dumps(asdict(self))

    def to_arrow(self) -> pa.Table:
        """Return the tasks as a table, one row each, a column per attribute of a task."""
        import pyarrow as pa  # noqa: PLC0415 - only who asks for a table needs it

        numbers = [name for name in TaskStats.__slots__ if name not in {"role", "state"}]
        schema = pa.schema(
            [("role", pa.string()), ("state", pa.string()), *((n, pa.int64()) for n in numbers)]
        )
        return pa.Table.from_pylist([asdict(task) for task in self.tasks], schema=schema)

    def __str__(self) -> str:
        """Return a few lines: state and numbers, the stages, the verdict."""
        from headgate.spark.progress.render import text  # noqa: PLC0415 - it renders this class

        return text(self)

    def _repr_html_(self) -> str:
        from headgate.spark.progress.render import html  # noqa: PLC0415 - it renders this class

        return html(self)


def snapshot(run: Run, now: float) -> ExchangeStats:
    """Return what is known of a run; ``now`` as the run's own clock. Any thread may call it."""
    producers, consumers = list(run.producers.values()), list(run.consumers.values())
    state = "done" if run.state is RunState.FINISHING else "running"
    if run.is_over:
        cancelled = run.cause is not None and run.cause.is_cancelled
        state = "done" if run.cause is None else "cancelled" if cancelled else "failed"
    seconds = (run.ended_at or now) - run.started
    tasks = (
        *(_task("map", p.partition, p) for p in producers),
        *(_task("reduce", c.index, c) for c in consumers),
    )
    return ExchangeStats(
        exchange_id=run.exchange_id.hex(),
        run=run.number,
        epoch=run.epoch,
        state=state,
        error="" if run.cause is None else run.cause.code,
        seconds=seconds,
        producers=sum(p.is_done for p in producers),
        consumers=len(consumers),
        rows=sum(p.rows for p in producers),
        bytes=sum(p.bytes for p in producers),
        pages=sum(p.pages for p in producers),
        rows_received=sum(c.rows for c in consumers),
        peak_bytes=max((m.peak for m in (*producers, *consumers)), default=0),
        splits_done=run.splits_done,
        splits_total=run.splits_total,
        error_summary="" if run.cause is None else run.cause.summary,
        tasks=tasks,
        stages=stages(tasks),
        verdict=verdict(
            tasks,
            seconds,
            reads_splits=run.reads_splits,
            waits_for_slots=run.waits_for_slots,
        ),
    )


def _task(role: Role, number: int, member: Member) -> TaskStats:
    return TaskStats(
        role=role,
        task=number,
        state="running" if member.state is State.LIVE else member.state.name.lower(),
        rows=member.rows,
        bytes=member.bytes,
        peak_bytes=member.peak,
        input_ms=member.input_ms,
        function_ms=member.function_ms,
        emit_ms=member.emit_ms,
        blocked_ms=member.blocked_ms,
    )
