"""A job that can be started."""

from __future__ import annotations

import hashlib
import secrets
import weakref
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

from headgate import _options
from headgate._arguments import (
    flag,
    instance,
    milliseconds,
    one_of,
    path,
    refuse,
    size,
    takes,
    whole,
)
from headgate._kinds import kind_of
from headgate._missing import need_native
from headgate.errors import OptionError, StreamError
from headgate.key_groups import MAX_KEY_GROUPS
from headgate.observe.runs import RUNS
from headgate.sink.api import chosen_name
from headgate.stream.api.event_time import Until, until_now
from headgate.stream.graph.nodes import Shipping
from headgate.stream.graph.placement import sentences
from headgate.stream.graph.stages import MAX_PARALLELISM, JobGraph, default_parallelism, plan
from headgate.stream.job.at_exit import wait_at_exit
from headgate.stream.job.checkpoints import CheckpointConfig
from headgate.stream.job.config import (
    ALIGNMENTS,
    BUFFER_TIMEOUT,
    RESTORES,
    Alignment,
    JobConfig,
    Restore,
)
from headgate.stream.job.local import ProcessWorkers, ThreadsAndProcesses, ThreadWorkers
from headgate.stream.job.master import JobMaster
from headgate.stream.job.query import StreamingQuery
from headgate.stream.job.run_record import record_of
from headgate.stream.job.store import CheckpointStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.observe.record import Run
    from headgate.observe.runs import RunKey
    from headgate.source import Source
    from headgate.stream.graph.nodes import Node, StreamGraph
    from headgate.stream.job.pool import WorkerPool


class StreamingJob:
    """Sinks and all operators before them. Made by :meth:`DataStream.sink`.

    Sinks belong to the same job until it starts, and those that follow to a new one: a job runs what was given to it.
    """

    def __init__(self, graph: StreamGraph, sink: Node) -> None:
        self._graph = graph
        self._sink = sink

    def plan(self, parallelism: int = 1, max_parallelism: int = MAX_PARALLELISM) -> JobGraph:
        """Return the stages of the job.

        Raises:
            OptionError: a number is outside its limits.
            StreamError: the parallelism of an operator is above the number of key groups.
        """
        return plan(self._graph, self._sink.job, parallelism, max_parallelism)

    @takes(
        name=chosen_name,
        checkpoint=path,
        savepoint=path,
        workers=whole(0, MAX_KEY_GROUPS),
        restore=one_of(*RESTORES),
        alignment=one_of(*ALIGNMENTS),
        retained=whole(1),
        restarts=whole(),
        tolerable_failures=whole(),
        allow_dropped_state=flag,
        options=instance("a dict", Mapping, remedy='options={"memory": "256m"}'),
    )
    def start(
        self,
        *,
        spark: SparkSession | None = None,
        parallelism: int | None = None,
        workers: int | None = None,
        checkpoint: str | None = None,
        until: Until | None = None,
        interval: str | float | None = "10s",
        name: str | None = None,
        savepoint: str | None = None,
        restore: Restore | None = None,
        alignment: Alignment = "aligned",
        aligned_timeout: str | float = "1s",
        checkpoint_timeout: str | float = "10m",
        min_pause: str | float = 0,
        tolerable_failures: int = 0,
        retained: int = 1,
        restarts: int = 3,
        restart_delay: str | float = 0.2,
        heartbeat_timeout: str | float = "10s",
        watermark_interval: str | float = "20ms",
        state_memory: str | int | None = None,
        max_parallelism: int = MAX_PARALLELISM,
        allow_dropped_state: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> StreamingQuery:
        """Start the job, on this machine or on a Spark cluster, and return its handle.

        Args:
            spark: a session: the workers are tasks of its application, on its executors; see docs/streams-on-spark.md.
                Without one the job runs on this machine.
            parallelism: tasks of operators that have no parallelism of their own. By default one for each of ``workers=``, at
                most ``max_parallelism``; 1 without ``workers=``.
            workers: processes for the tasks; 0, the default without Spark, for threads of this process. On Spark the number
                of Spark tasks, by default one for each task of the job, and at most as many as there are slots. Those of
                operators with ``workers=`` or ``resources=`` come on top.
            checkpoint: folder or URI for checkpoints. If it has some of this job, the job continues from the last one.
                Without a folder a failure ends the job, and output is committed once, at the end.
            until: ``"now"`` to read what is there, such as all files of a folder, and then end. A later run with the same
                ``checkpoint`` reads what is new. Windows that no watermark closes stay open until then.
            interval: time from one checkpoint to the next; None for none but the last one.
            name: of the job, by which sinks know it again. By default the one of the checkpoint or savepoint that it
                continues from; for a new job it follows from ``checkpoint``.
            savepoint: folder of a savepoint to start from.
            restore: what to start from if ``checkpoint`` has checkpoints as well: ``"savepoint"``, or ``"latest"`` for the
                last checkpoint, as a program that is started again and again with the same arguments needs it. By default
                such a start is refused.
            alignment: ``"aligned"``: barriers wait for each other. ``"unaligned"``: they overtake rows, which become part
                of the checkpoint. ``"timeoutable"``: aligned up to ``aligned_timeout``, then unaligned.
                ``"at_least_once"``: they do neither, so no task waits for a slow one, and after a restart rows may
                count twice, in state and in output.
            aligned_timeout: see ``alignment``.
            checkpoint_timeout: time after which a checkpoint is given up.
            min_pause: time from the end of one checkpoint to the start of the next.
            tolerable_failures: failed checkpoints in a row that do not fail the job.
            retained: complete checkpoints to keep.
            restarts: failures in a row, without a complete checkpoint between them, after which the job starts anew.
            restart_delay: time from a failure to the new start.
            heartbeat_timeout: time without a heartbeat after which a worker is lost. A function may hold Python's lock for longer.
            watermark_interval: time between two watermarks of a source that has rows: results of windows come by so much
                later. A source without rows sends none.
            state_memory: bytes of keyed state, such as ``"1g"``, that each worker keeps in memory; what is beyond goes to files
                without names in ``temp_directories``, see docs/stream-state.md. None keeps all state in memory.
            max_parallelism: number of key groups; state cannot be restored into another number.
            allow_dropped_state: True to drop state of operators that the job does not have, and state that their functions
                do not declare any more.
            options: of the environments of the workers, such as ``{"memory": "256m"}``; see docs/options.md. On Spark the
                confs of the session count too.

        Raises:
            OptionError: an option is outside its limits.
            NativeModuleNotFound: the wheel has no native module.
            StreamError: the job cannot run.
            CheckpointError: the checkpoints cannot be used.
            NotEnoughSlots: Spark has fewer slots than ``workers``.
            NotBuiltError: the session belongs to Spark Connect.
            WorkerPythonError: the Python of Spark's tasks cannot import headgate.

        A script that ends while the job runs waits for the end of the job, says so, and exits with 1 if the job failed.
        An interrupt ends both.
        """
        again = {name: value for name, value in locals().items() if name != "self"}
        need_native("a streaming job")
        if checkpoint is None:
            _refuse_without_checkpoints(
                interval=interval,
                min_pause=min_pause,
                tolerable_failures=tolerable_failures,
                retained=retained,
                restarts=restarts,
                restart_delay=restart_delay,
            )
        every = None if interval is None else milliseconds("interval", interval)
        checkpoint = None if checkpoint is None else path("checkpoint", checkpoint)
        savepoint = None if savepoint is None else path("savepoint", savepoint)
        store = None if checkpoint is None else CheckpointStore(checkpoint, retained)
        config = JobConfig(
            name=name or _name(checkpoint, store, savepoint, restore),
            checkpoints=CheckpointConfig(
                None if checkpoint is None else every,
                milliseconds("checkpoint_timeout", checkpoint_timeout),
                milliseconds("min_pause", min_pause, 0),
                tolerable_failures,
            ),
            alignment=alignment,
            aligned_timeout=milliseconds("aligned_timeout", aligned_timeout),
            restarts=restarts,
            restart_delay=milliseconds("restart_delay", restart_delay, 0) / 1000,
            savepoint=savepoint,
            restore=restore,
            allow_dropped_state=allow_dropped_state,
            retained=retained,
            heartbeat_timeout=milliseconds("heartbeat_timeout", heartbeat_timeout) / 1000,
        )
        if spark is not None and type(spark).__name__ != "SparkSession":
            raise refuse("spark", spark, f"is {kind_of(spark)}", "a SparkSession")
        if parallelism is None:
            parallelism = default_parallelism(workers, max_parallelism)
        graph = replace(
            self.plan(parallelism, max_parallelism),
            watermark_interval=milliseconds("watermark_interval", watermark_interval),
            state_memory=None if state_memory is None else size("state_memory", state_memory, 0),
        )
        graph.replace_sources(partial(_started, checkpoint=checkpoint, restore=restore))
        if until is not None:
            graph = until_now(graph, until, checkpoint)
        if alignment in {"unaligned", "timeoutable"}:
            _refuse_broadcasts(graph)
        if spark is None:
            pool = _local_workers(graph, config.name, workers or 0, options or {})
        else:
            # The one import of Spark's layer from below, for calls that name a session.
            from headgate.spark.streams import spark_workers  # noqa: PLC0415

            pool = spark_workers(spark, graph, config.name, workers, options or {})
        master = JobMaster(graph, config, store, pool)
        for sentence in sentences(graph, pool.no_resources, workers or 0):
            master.notices.add(sentence)
        key = ("stream", master.name, 0)
        master.when_over = lambda: RUNS.look(key)
        master.start()
        _record(key, master)
        self._graph.close_job(self._sink.job)
        wait_at_exit(master, config.name)
        return StreamingQuery(master, _Restart(self, config.name, again))

    def run(self, **options: Any) -> None:
        """Start the job, and wait until its sources have ended; see :meth:`start`.

        ``run(until="now", checkpoint=folder)`` is a job for cron: each run reads what is new, and ends.

        Raises:
            HeadgateError: the job failed.
        """
        with self.start(**options) as query:
            query.await_termination()


class _Restart:
    """Starts a job again from where it stopped, for :meth:`StreamingQuery.rescale`.

    Args:
        job: what is started.
        name: of the running job, by which its sinks know it.
        options: of its start.
    """

    def __init__(self, job: StreamingJob, name: str, options: Mapping[str, Any]) -> None:
        self.checkpoint: str | None = options["checkpoint"]
        self._job, self._name, self._options = job, name, options

    def check(self, parallelism: int) -> None:
        """Refuse a parallelism that the job cannot have.

        Raises:
            OptionError: it is outside its limits.
            StreamError: that of an operator is above the number of key groups.
        """
        self._job.plan(parallelism, self._options["max_parallelism"])

    def start(self, parallelism: int, workers: int | None, savepoint: str | None) -> StreamingQuery:
        """Start the job with other tasks, and all other options as before."""
        changed = {"parallelism": parallelism, "savepoint": savepoint, "restore": None}
        if workers is not None:
            changed["workers"] = workers
        return self._job.start(**{**self._options, "name": self._name, **changed})


def _started(
    uid: str, source: Source[Any, Any, Any], *, checkpoint: str | None, restore: Restore | None
) -> Source[Any, Any, Any]:
    """Return what a job reads: a DataFrame becomes a source when it is known where its rows may be written."""
    source_for = getattr(source, "source_for", None)
    if source_for is None:
        return source
    return source_for(uid, checkpoint, restore=restore)  # type: ignore[no-any-return]


def _local_workers(
    graph: JobGraph, name: str, workers: int, options: Mapping[str, Any]
) -> WorkerPool:
    options = {"buffer_timeout": BUFFER_TIMEOUT, **options}
    _options.resolve("environment", options)
    if workers:
        return ProcessWorkers(graph, name, options, workers + graph.own_workers)
    if graph.own_workers:
        return ThreadsAndProcesses(graph, name, options, graph.own_workers)
    return ThreadWorkers(graph, name, options)


def _refuse_without_checkpoints(**options: Any) -> None:
    """Refuse options that do nothing without checkpoints, unless they ask for nothing.

    Raises:
        OptionError: one of them has another value than its default.
    """
    defaults = signature(StreamingJob.start).parameters
    for name, value in options.items():
        if value not in (defaults[name].default, None, 0):
            raise OptionError(
                f"{name}={value!r} does nothing without a folder for checkpoints",
                asked=f"start({name}={value!r}, checkpoint=None)",
                have="without checkpoints a failure ends the job",
                remedy=f'checkpoint="folder" · leave {name} out',
            )


def _refuse_broadcasts(graph: JobGraph) -> None:
    """Refuse what a barrier must not overtake: each task would handle again what all got.

    Raises:
        StreamError: rows are sent to all tasks of an operator.
    """
    for stage in graph.stages:
        for edge in stage.edges:
            if edge.shipping is Shipping.BROADCAST:
                raise StreamError(
                    f"the barriers of checkpoints cannot overtake rows of {edge.operator}, which go to all tasks",
                    remedy='alignment="aligned"',
                )


def _record(key: RunKey, master: JobMaster) -> None:
    """Let the record of this process show the job, and keep its last status. It does not hold the job."""
    reference = weakref.ref(master)

    def look() -> Run:
        job = reference()
        if job is None:
            raise LookupError("it is gone")
        return record_of(job)

    RUNS.began(key, look)
    if master.ended_at is not None:  # before it was in the record
        RUNS.look(key)


def _name(
    checkpoint: str | None,
    store: CheckpointStore | None,
    savepoint: str | None,
    restore: Restore | None,
) -> str:
    """Return the name of a job that the user has not named: sinks must know it again."""
    name = None
    if store is not None and restore != "savepoint":
        name = store.job_name()
    if name is None and savepoint is not None:
        name = CheckpointStore.savepoint(savepoint).fields.get("name")
    if name is not None:
        return str(name)
    if checkpoint is None:
        return f"job-{secrets.token_hex(6)}"
    return f"job-{hashlib.sha256(checkpoint.encode()).hexdigest()[:12]}"
