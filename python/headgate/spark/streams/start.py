"""Checks a session for the workers of a streaming job: its kind, slots, options and Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate import _options
from headgate._option_table import CONF_PREFIX
from headgate.errors import NotEnoughSlots, OptionError
from headgate.spark.confs import context_confs, is_connect, session_confs
from headgate.spark.connect import connect_error
from headgate.spark.driver import application
from headgate.spark.driver.scheduler.shares import MOST_PER_SLOT, WORKER_CPUS, are_to_be_had
from headgate.spark.encryption import with_tls
from headgate.spark.slots import slots_of
from headgate.spark.streams.profiles import ExecutorResources
from headgate.spark.streams.workers import SparkWorkers, resident
from headgate.spark.worker_python import check_workers
from headgate.stream.graph.placement import own_workers
from headgate.stream.job.config import BUFFER_TIMEOUT
from headgate.stream.job.local import dumped
from headgate.stream.job.pool import Endpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

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
        workers: number of those that run all stages without workers of their own; None for one for each task, at most as many
            as there are free slots.
        options: of the environments.

    Raises:
        NotBuiltError: the session belongs to Spark Connect.
        OptionError: an unknown option, a value outside its limits, or a resource that no executor has.
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
    there = ExecutorResources(context.master or "", context_confs(context), slots)
    there.check(graph)
    others = _size(graph, workers, there, resident(context), has_shares=has_shares)
    owner = application.of(context)
    endpoint = Endpoint(owner.host, owner.bind_host, environment.get("tls") == "require")
    share = owner.share if has_shares else None
    cpus = WORKER_CPUS if has_shares else None
    # One for all workers of a stage: executors that Spark starts for a profile are for no other.
    profile_of = {stage.number: there.profile(stage, cpus) or share for stage in graph.stages}
    own_profiles = [profile_of[stage.number] for stage in own_workers(graph, others).values()]
    job = dumped((graph, name, environment))
    profiles = [*[share] * others, *own_profiles]
    return SparkWorkers(context, job, name, endpoint, profiles, there.without_resources)


def _environment(session: SparkSession, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the workers' environments that are not left to their defaults."""
    options = with_tls(
        _options.resolve("environment", arguments, session_confs(session, CONF_PREFIX)), session
    )
    chosen = {name: value for name, value in options.items() if options.sources[name] != "default"}
    return {"buffer_timeout": BUFFER_TIMEOUT, **chosen}


def _size(
    graph: JobGraph,
    workers: int | None,
    there: ExecutorResources,
    others: int,
    *,
    has_shares: bool,
) -> int:
    """Return the number of workers that are not those of a stage.

    Raises:
        NotEnoughSlots: there are not enough slots for all.
    """
    slots, tasks = (
        there.slots,
        sum(stage.parallelism for stage in graph.stages if not stage.own_workers),
    )
    if has_shares:
        of_stages = graph.own_workers
        most = MOST_PER_SLOT * slots.number - others
        usual = slots.number
    else:
        of_stages = sum(map(there.slots_for, graph.stages))
        most = max(slots.number, slots.most) - others
        usual = slots.number - others - of_stages
    chosen = min(tasks, max(1, usual)) if workers is None else workers
    size = chosen + of_stages
    if size <= most:
        return chosen
    each = f"a slot for each {MOST_PER_SLOT} workers" if has_shares else "a slot for each worker"
    also = f"; {others} workers of other streaming jobs are there" if others else ""
    needed = -(-(size + others) // MOST_PER_SLOT) if has_shares else size + others
    remedies = [f"workers={most - of_stages}"] if most > of_stages else []
    remedies.append(f"a master with at least {needed} slots")
    raise NotEnoughSlots(
        f"a streaming job on Spark needs {each}, here {size}; the cluster has {slots.number}",
        asked=f"workers={chosen} ({'default' if workers is None else 'argument'})"
        + (f", and {of_stages} slots of stages with workers of their own" if of_stages else ""),
        have=f"{slots.origin}{also}",
        remedy=" · ".join(remedies),
        details={"needed": needed, "slots": slots.number},
    )
