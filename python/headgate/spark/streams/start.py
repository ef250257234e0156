"""Checks a session for the workers of a streaming job: its kind, slots, options and Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate import _options
from headgate._option_table import CONF_PREFIX
from headgate.errors import NotEnoughSlots, OptionError
from headgate.spark.confs import is_connect, session_confs
from headgate.spark.connect import connect_error
from headgate.spark.driver import application
from headgate.spark.driver.scheduler.shares import MOST_PER_SLOT, are_to_be_had
from headgate.spark.encryption import with_tls
from headgate.spark.slots import slots_of
from headgate.spark.streams.workers import SparkWorkers, resident
from headgate.spark.worker_python import check_workers
from headgate.stream.job.config import BUFFER_TIMEOUT
from headgate.stream.job.local import dumped
from headgate.stream.job.pool import Endpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from headgate.spark.slots import Slots
    from headgate.stream.graph.stages import JobGraph


def spark_workers(
    session: SparkSession,
    graph: JobGraph,
    name: str,
    workers: int | None,
    options: Mapping[str, Any],
) -> SparkWorkers:
    """Return the workers of a job; none is started.

    Args:
        session: of the application.
        graph: the job.
        name: of the job.
        workers: their number; None for one for each task of the job, at most as many as there are free slots.
        options: of the environments.

    Raises:
        NotBuiltError: the session belongs to Spark Connect.
        OptionError: an unknown option, or a value outside its limits.
        NotEnoughSlots: the workers cannot run at the same time.
        StreamError: a function of the job cannot be pickled.
        WorkerPythonError: the Python of the tasks cannot import headgate.
    """
    if is_connect(session):
        remedy = "a classic session · start() without spark, in processes of this machine"
        raise connect_error("StreamingJob.start(spark=)", "session", remedy)
    if workers is not None and workers < 1:
        raise OptionError(
            f"workers={workers} is less than 1", remedy="workers=1 or more · omit workers"
        )
    environment = _environment(session, options)
    check_workers(session)
    context = session.sparkContext
    slots = slots_of(context)
    has_shares = are_to_be_had(context, session.version, slots)
    size = _size(len(graph.tasks), workers, slots, resident(context), has_shares=has_shares)
    owner = application.of(context)
    endpoint = Endpoint(owner.host, owner.bind_host, environment.get("tls") == "require")
    profile = owner.share if has_shares else None
    return SparkWorkers(context, dumped((graph, name, environment)), name, size, endpoint, profile)


def _environment(session: SparkSession, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the workers' environments that are not left to their defaults."""
    options = with_tls(
        _options.resolve("environment", arguments, session_confs(session, CONF_PREFIX)), session
    )
    chosen = {name: value for name, value in options.items() if options.sources[name] != "default"}
    return {"buffer_timeout": BUFFER_TIMEOUT, **chosen}


def _size(tasks: int, workers: int | None, slots: Slots, others: int, *, has_shares: bool) -> int:
    """Return the number of workers.

    Raises:
        NotEnoughSlots: there are not as many slots.
    """
    if has_shares:
        most = MOST_PER_SLOT * slots.number - others
        usual = slots.number
    else:
        most = max(slots.number, slots.most) - others
        usual = slots.number - others
    size = min(tasks, max(1, usual)) if workers is None else workers
    if size <= most:
        return size
    each = f"a slot for each {MOST_PER_SLOT} workers" if has_shares else "a slot for each worker"
    also = f"; {others} workers of other streaming jobs are there" if others else ""
    needed = -(-(size + others) // MOST_PER_SLOT) if has_shares else size + others
    remedies = [f"workers={most}"] if most > 0 else []
    remedies.append(f"a master with at least {needed} slots")
    raise NotEnoughSlots(
        f"a streaming job on Spark needs {each}, here {size}; the cluster has {slots.number}",
        asked=f"workers={size} ({'default' if workers is None else 'argument'})",
        have=f"{slots.origin}{also}",
        remedy=" · ".join(remedies),
        details={"needed": needed, "slots": slots.number},
    )
