"""The plan of a kept exchange: an ordinary Spark job whose shuffle carries pages, or their places.

The producers are a map stage. Each row that they return is the index of one kept subpartition, which
also has the pages if there are few. Spark's shuffle brings the rows to the consumers, which read the
pages where they are. Spark schedules both stages, and runs again what is lost.

Decision: ADR 0022.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any, Final

from headgate._option_table import TASK_OPTIONS
from headgate.selectors import PLACED_BY_ORDER
from headgate.spark.confs import context_confs, is_connect
from headgate.spark.connect import master_of
from headgate.spark.driver.slots import is_dynamic, local_attempts
from headgate.spark.portable import portable
from headgate.spark.progress import latest
from headgate.spark.progress.stats import kept_snapshot
from headgate.spark.shuffle import keys_of_partitions
from headgate.spark.source_tables import numbers
from headgate.spark.tasks.kept_consumer import KeptConsumerTask
from headgate.spark.tasks.kept_producer import ROWS, KeptProducerTask

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext
    from pyspark.sql import DataFrame, SparkSession

    from headgate.options import EnvironmentOptions
    from headgate.spark.driver.kept_runs import KeptRun, KeptRuns
    from headgate.spark.request import Request
    from headgate.spark.tasks.planned_source import PlannedSource

_LOG: Final = logging.getLogger("headgate.spark")
_PRODUCER: Final = "headgate.spark.tasks.kept_producer"
_CONSUMER: Final = "headgate.spark.tasks.kept_consumer"
_SAID: Final = "exchange %s by %s -> %d partitions: kept, %s"
_MAPPED: Final = "all executors are on one host, so consumers map the files of producers"
_INLINE: Final = (
    "executors are or will be on several hosts, so all pages travel through Spark's shuffle, which is "
    "slower"
)


def why_not(request: Request) -> str:
    """Return why an exchange cannot be kept; empty if it can."""
    if request.source is not None and request.source.watermarks is not None:
        return "watermarks align readers that run at the same time"
    session = request.session
    if _by_order(request) and not is_one_process(session) and not _compares_rows(session):
        return (
            "by may place rows by their order, which may differ if an executor is lost, and Spark "
            "would not notice: that takes Spark 4.1 and its spark.sql.shuffle.orderIndependentChecksum"
        )
    return ""


def keep(request: Request, partitions: int, source: PlannedSource | None) -> DataFrame:
    """Return the DataFrame of a kept exchange.

    Args:
        request: the call of exchange(), for which :func:`why_not` returns nothing.
        partitions: number of partitions of the result.
        source: the request's source with its splits; None for a DataFrame.
    """
    name, one_host = os.urandom(16).hex(), is_one_host(request.session)
    _LOG.info(_SAID, name[:4], request.by_words, partitions, _MAPPED if one_host else _INLINE)
    way = "files" if one_host else "Spark's shuffle"
    read = "" if source is None else f" {source.name}"
    words = f"headgate {name[:4]}{read} kept by {request.by_words} -> {partitions} through {way}"
    options = _options(request, partitions)
    reports = None if is_connect(request.session) else _reports(request.session)
    df = request.df if source is None else numbers(request, source)
    assert df is not None  # noqa: S101 - a request has a DataFrame or a source
    has_ids = hasattr(df, "repartitionById")
    is_stable = one_host and not is_one_process(request.session)
    producer = KeptProducerTask(
        exchange=name,
        schema=request.wire_schema,
        num_partitions=partitions,
        options=options,
        map=request.map,
        source=source,
        by=request.by,
        map_option=request.map_option,
        keys=None if has_ids else tuple(keys_of_partitions(partitions)),
        is_inline=not one_host,
        is_stable=is_stable,
        has_digests=is_stable and _by_order(request),
        reports=reports,
    )
    consumer = KeptConsumerTask(
        exchange=name,
        num_partitions=partitions,
        schema=request.wire_schema,
        options=options,
        reduce=request.reduce,
        result=request.result_schema,
        # Each batch costs Spark about 0.1 ms, and a thousand producers make pages of a few rows.
        batch_bytes=request.options["batch_bytes"] or request.options["segment_size"],
        reports=reports,
    )
    rows = df.mapInArrow(portable(producer, _PRODUCER, f"{words}: map"), ROWS)
    # Before Spark 4.1, each partition has a key that Spark's hash places there.
    placed = (
        rows.repartitionById(partitions, rows["place"])
        if has_ids
        else rows.repartition(partitions, rows["place"])
    )
    return placed.mapInArrow(portable(consumer, _CONSUMER, f"{words}: reduce"), request.result)


def _reports(session: SparkSession) -> Accumulator[Any]:
    from headgate.spark.driver import kept_runs  # noqa: PLC0415 - not on Spark Connect

    return kept_runs.of(session, _began).reports


def _began(runs: KeptRuns, run: KeptRun) -> None:
    latest.began(lambda: kept_snapshot(runs, run, time.monotonic()))


def _by_order(request: Request) -> bool:
    """Return True if the place of a row may depend on the rows before it."""
    by = request.by
    return by is None or isinstance(by, PLACED_BY_ORDER) or callable(by)


def _compares_rows(session: SparkSession) -> bool:
    """Return True if Spark notices a task of a map stage that returns other rows when it runs again."""
    major, minor = session.version.split(".")[:2]
    return (int(major), int(minor)) >= (4, 1) and all(
        session.conf.get(f"spark.sql.shuffle.orderIndependentChecksum.{name}", "true") == "true"
        for name in ("enabled", "enableFullRetryOnMismatch")
    )


def _options(request: Request, partitions: int) -> EnvironmentOptions:
    """Return the options of the tasks, with segments so small that each partition has two."""
    options: EnvironmentOptions = {name: request.options[name] for name in TASK_OPTIONS}  # type: ignore[assignment]
    each: int = request.options["memory"] // (2 * (partitions + 4))
    fitting = 1 << max(12, each.bit_length() - 1)
    options["segment_size"] = min(request.options["segment_size"], fitting)
    return options


def is_one_process(session: SparkSession) -> bool:
    """Return True if all tasks run in the driver's JVM, so no executor can be lost."""
    return local_attempts(master_of(session)) is not None


def is_one_host(session: SparkSession) -> bool:
    """Return True if all executors are on one host, and no others are to come, as far as is known."""
    if master_of(session).startswith("local"):
        return True
    if is_connect(session):
        return False
    context = session.sparkContext
    return not is_dynamic(context_confs(context)) and len(executor_hosts(context)) == 1


def executor_hosts(context: SparkContext) -> set[str]:
    """Return the hosts of the executors that have registered."""
    # Not ``env().blockManager()``: one of SparkEnv's methods names a class that PySpark does not ship, and
    # to look a method up there ends the connection to the JVM (tried with 4.3.0).
    scala = context._jsc.sc()  # noqa: SLF001 - PySpark has no other way to the addresses
    executors = scala.statusStore().executorList(True)
    known = [executors.apply(number) for number in range(executors.size())]
    driver = {str(executor.hostPort()) for executor in known if executor.id() == "driver"}
    # The store may not have heard of the newest executors; this map has.
    found = str(scala.getExecutorMemoryStatus().keys().mkString(",")).split(",")
    return {address.rpartition(":")[0] for address in {*found} - driver}
