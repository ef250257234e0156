"""A job that can be started."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headgate import _options
from headgate.errors import OptionError
from headgate.stream.api.graph import MAX_PARALLELISM, JobGraph, plan
from headgate.stream.job.checkpoints import CheckpointConfig
from headgate.stream.job.config import Alignment, JobConfig, milliseconds
from headgate.stream.job.local import ProcessWorkers, ThreadWorkers
from headgate.stream.job.master import JobMaster
from headgate.stream.job.query import StreamingQuery
from headgate.stream.job.store import CheckpointStore

if TYPE_CHECKING:
    from headgate.stream.api.graph import StreamGraph
    from headgate.stream.job.master import WorkerPool

#: Longest time that rows wait for a page to fill, unless the user says otherwise.
_BUFFER_TIMEOUT = "5ms"


class StreamingJob:
    """All operators up to the sinks. Made by :meth:`DataStream.sink`; each of a job's sinks returns the same job."""

    def __init__(self, graph: StreamGraph) -> None:
        self._graph = graph

    def plan(self, parallelism: int = 1, max_parallelism: int = MAX_PARALLELISM) -> JobGraph:
        """Return the stages of the job."""
        return plan(self._graph, parallelism, max_parallelism)

    def start(
        self,
        *,
        parallelism: int = 1,
        workers: int = 0,
        checkpoint: str | None = None,
        interval: str | float | None = "10s",
        name: str | None = None,
        savepoint: str | None = None,
        alignment: Alignment = "aligned",
        aligned_timeout: str | float = 0,
        checkpoint_timeout: str | float = "10m",
        min_pause: str | float = 0,
        tolerable_failures: int = 0,
        retained: int = 1,
        restarts: int = 3,
        restart_delay: float = 0.2,
        max_parallelism: int = MAX_PARALLELISM,
        allow_dropped_state: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> StreamingQuery:
        """Start the job on this machine, and return its handle.

        Args:
            parallelism: tasks of operators that have no parallelism of their own.
            workers: processes for the tasks; 0 for threads of this process.
            checkpoint: folder or URI for checkpoints. If it has some of this job, the job continues from the last one.
                Without a folder a failure ends the job, and output is committed once, at the end.
            interval: time from one checkpoint to the next; None for none but the last one.
            name: of the job, by which sinks know it again. By default it follows from ``checkpoint``.
            savepoint: folder of a savepoint to start from, if ``checkpoint`` has none.
            alignment: ``"aligned"``: barriers wait for each other. ``"unaligned"``: they overtake rows, which become part
                of the checkpoint. ``"timeoutable"``: aligned up to ``aligned_timeout``, then unaligned.
            aligned_timeout: see ``alignment``.
            checkpoint_timeout: time after which a checkpoint is given up.
            min_pause: time from the end of one checkpoint to the start of the next.
            tolerable_failures: failed checkpoints in a row that do not fail the job.
            retained: complete checkpoints to keep.
            restarts: failures in a row, without a complete checkpoint between them, after which the job starts anew.
            restart_delay: seconds from a failure to the new start.
            max_parallelism: number of key groups; state cannot be restored into another number.
            allow_dropped_state: True to ignore state of operators that the job does not have.
            options: of the environments of the workers, such as ``{"memory": "256m"}``; see docs/options.md.

        Raises:
            OptionError: an option is outside its limits.
            StreamError: the job cannot run.
            CheckpointError: the checkpoints cannot be used.
        """
        config = JobConfig(
            name=name or _name(checkpoint),
            checkpoints=CheckpointConfig(
                None
                if interval is None or checkpoint is None
                else milliseconds("interval", interval),
                milliseconds("checkpoint_timeout", checkpoint_timeout),
                milliseconds("min_pause", min_pause, 0),
                tolerable_failures,
            ),
            alignment=alignment,
            aligned_timeout=milliseconds("aligned_timeout", aligned_timeout, 0),
            restarts=restarts,
            restart_delay=restart_delay,
            savepoint=savepoint,
            allow_dropped_state=allow_dropped_state,
            retained=retained,
            environment={
                "listen": "127.0.0.1:0",
                "buffer_timeout": _BUFFER_TIMEOUT,
                **(options or {}),
            },
        )
        if alignment not in {"aligned", "unaligned", "timeoutable"}:
            raise OptionError(
                f"alignment={alignment!r} is unknown",
                remedy='"aligned" · "unaligned" · "timeoutable"',
            )
        _options.resolve("environment", dict(config.environment))
        if workers < 0:
            raise OptionError(f"workers={workers} is less than 0", remedy="workers=0 for threads")
        graph = self.plan(parallelism, max_parallelism)
        pool: WorkerPool
        if workers:
            pool = ProcessWorkers(graph, config.name, config.environment, workers)
        else:
            pool = ThreadWorkers(graph, config.name, config.environment)
        store = None if checkpoint is None else CheckpointStore(checkpoint, retained)
        master = JobMaster(graph, config, store, pool)
        master.start()
        return StreamingQuery(master)

    def run(self, **options: Any) -> None:
        """Start the job, and wait until its sources have ended; see :meth:`start`.

        Raises:
            HeadgateError: the job failed.
        """
        with self.start(**options) as query:
            query.await_termination()


def _name(checkpoint: str | None) -> str:
    if checkpoint is None:
        return f"job-{secrets.token_hex(6)}"
    return f"job-{hashlib.sha256(checkpoint.encode()).hexdigest()[:12]}"
