"""The numbers of one run: plain values that the statistics hold and that all displays render."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.spark.progress.task_stats import StageStats, TaskStats
    from headgate.spark.progress.verdict import Verdict

#: Version of the JSON form. It grows with each field that is added, removed or changed.
SCHEMA_VERSION: Final = 6


@dataclass(frozen=True, slots=True)
class RunStats:
    """Numbers of one run. Reports of tasks may be lost, so the times may lag behind.

    Attributes:
        exchange_id: id of the exchange, in hex.
        run: number of the run in this application.
        state: ``"running"`` until the run ends; then ``"done"``, ``"failed"`` or ``"cancelled"``.
        error: code of the first cause, or ``""``.
        seconds: from the start of the first task to the end of the run, or to now.
        producers: producer tasks that are done.
        consumers: consumer tasks that are done.
        rows: rows sent.
        bytes: bytes of pages sent.
        pages: buffers sent.
        rows_received: rows read; fewer than sent after a LIMIT.
        peak_bytes: peak pool usage of the process with the highest one.
        splits_done: splits read to their end; 0 if Spark reads the input.
        error_summary: text of the first cause, or ``""``.
        tasks: state and times of each task.
        stages: times of each stage, summed over its tasks, and its busiest task.
        mode: ``"kept"``.
        file_bytes: bytes of the files that the producers left.
        producers_running: producer tasks that run now.
        producers_total: all producer tasks; None if that is not known, or Spark runs none.
        consumers_running: consumer tasks that run now.
        consumers_total: all consumer tasks.
        made_again: producers that Spark ran again, as their output was lost.
        failed_attempts: attempts at tasks that failed.
        verdict: the slowest stage of this run; None if none clearly is.
        started_at: when it started, in seconds since 1970 by the driver's clock.
        options: name -> ``value`` as text or None, and ``source``: ``"argument"``, ``"conf"``,
            ``"environment"`` or ``"default"``.
        versions: of Python and the packages on the driver, by name.
        edges: bytes from producers to consumers, see :func:`headgate.observe.edges.matrix`; of
            producers that are done, and None before the first one is.
        failures: the first attempts at tasks that failed, at most 16: ``role``, ``task``, ``attempt``,
            ``host``, the code of the ``error`` or ``""``, and its ``summary``.
        schema_version: version of the JSON form.
    """

    exchange_id: str
    run: int
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
    error_summary: str = ""
    tasks: tuple[TaskStats, ...] = field(default=(), repr=False)
    stages: tuple[StageStats, ...] = field(default=(), repr=False)
    mode: str = "kept"
    file_bytes: int = 0
    producers_running: int = 0
    producers_total: int | None = None
    consumers_running: int = 0
    consumers_total: int | None = None
    made_again: int = 0
    failed_attempts: int = 0
    verdict: Verdict | None = None
    started_at: float = 0.0
    options: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict, repr=False)
    versions: Mapping[str, str] = field(default_factory=dict, repr=False)
    edges: Mapping[str, Any] | None = field(default=None, repr=False)
    failures: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    schema_version: int = SCHEMA_VERSION

    @property
    def rows_per_second(self) -> float:
        """Rows sent per second since the start."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    @property
    def bytes_per_second(self) -> float:
        """Bytes sent per second since the start."""
        return self.bytes / self.seconds if self.seconds > 0 else 0.0
