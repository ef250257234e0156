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
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from headgate._option_table import TASK_OPTIONS
from headgate.selectors import PLACED_BY_ORDER
from headgate.spark.confs import is_connect
from headgate.spark.connect import master_of
from headgate.spark.driver.scheduler.slots import local_attempts
from headgate.spark.portable import portable
from headgate.spark.progress import latest
from headgate.spark.progress.stats import kept_snapshot
from headgate.spark.shuffle import keys_of_partitions
from headgate.spark.source_tables import numbers
from headgate.spark.tasks.kept_consumer import KeptConsumerTask, KeptInput
from headgate.spark.tasks.kept_producer import ROWS, KeptProducerTask
from headgate.spark.tasks.report import name_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headgate.options import EnvironmentOptions
    from headgate.spark.driver.kept.runs import KeptRun, KeptRuns
    from headgate.spark.request import Request
    from headgate.spark.tasks.planned_source import PlannedSource
    from headgate.spark.tasks.start_host import HostPlan
    from headgate.spark.tasks.worker_connection import Place

_LOG: Final = logging.getLogger("headgate.spark")
_PRODUCER: Final = "headgate.spark.tasks.kept_producer"
_CONSUMER: Final = "headgate.spark.tasks.kept_consumer"
_SAID: Final = "exchange %s by %s -> %d partitions: kept, %s"
_MAPPED: Final = "all executors are on one host, so consumers map the files of producers"
_SERVED: Final = (
    "consumers map the files of producers on their own host, and get the others from a process "
    "beside each executor"
)
_INLINE: Final = (
    "executors may be on several hosts, and the driver of a Spark Connect session cannot tell which, so "
    "all pages travel through Spark's shuffle, which is slower"
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


def keep(
    requests: Sequence[Request], partitions: int, sources: Sequence[PlannedSource | None]
) -> DataFrame:
    """Return the DataFrame of a kept exchange.

    Args:
        requests: the call of exchange() for each of its inputs, for which :func:`why_not` returns
            nothing; they have ``reduce``, the result and the options in common.
        partitions: number of partitions of the result.
        sources: for each input the source with its splits; None for a DataFrame.
    """
    first = requests[0]
    session, name = first.session, os.urandom(15).hex()
    maps, inline = shares_files(session), is_inline(session)
    by = " + ".join(request.by_words for request in requests)
    why = _MAPPED if maps else _INLINE if inline else _SERVED
    _LOG.info(_SAID, name[:4], by, partitions, why)
    way = "files" if maps else "Spark's shuffle" if inline else "hosts"
    read = "".join(f" {source.name}" for source in sources if source is not None)
    words = f"headgate {name[:4]}{read} kept by {by} -> {partitions} through {way}"
    options = _options(first, partitions)
    runs = None if is_connect(session) else _runs(session)
    serving = None if maps else runs
    hosts = None if serving is None else _hosts(first)
    is_stable = not inline and not is_one_process(session)
    tables = [_table(request, source) for request, source in zip(requests, sources, strict=True)]
    # Before Spark 4.1, each partition has a key that Spark's hash places there.
    has_ids = hasattr(tables[0], "repartitionById")
    keys = None if has_ids else tuple(keys_of_partitions(partitions))
    inputs: list[KeptInput] = []
    outputs: list[DataFrame] = []
    for number, (request, source, df) in enumerate(zip(requests, sources, tables, strict=True)):
        exchange = name_of(name, number)
        driver = None if serving is None else _registered(request, exchange, serving)
        inputs.append(KeptInput(exchange, request.wire_schema, driver, request.order))
        producer = KeptProducerTask(
            exchange=exchange,
            input=number,
            given=request.given_schema,
            schema=request.wire_schema,
            num_partitions=partitions,
            options=options,
            map=request.map,
            source=source,
            by=request.by,
            map_option=request.map_option,
            keys=keys,
            is_inline=inline,
            is_stable=is_stable,
            has_digests=is_stable and _by_order(request),
            reports=None if runs is None else runs.reports,
            hosts=hosts,
        )
        outputs.append(df.mapInArrow(portable(producer, _PRODUCER, f"{words}: map"), ROWS))
    consumer = KeptConsumerTask(
        inputs=tuple(inputs),
        num_partitions=partitions,
        options=options,
        reduce=first.reduce,
        result=first.result_schema,
        # Each batch costs Spark about 0.1 ms, and a thousand producers make pages of a few rows.
        batch_bytes=first.options["batch_bytes"] or first.options["segment_size"],
        reports=None if runs is None else runs.reports,
        hosts=hosts,
        most_remote=max(1, _most_remote(first, options["segment_size"]) // len(inputs)),
    )
    rows = reduce(lambda one, other: one.union(other), outputs)
    placed = (
        rows.repartitionById(partitions, rows["place"])
        if has_ids
        else rows.repartition(partitions, rows["place"])
    )
    return placed.mapInArrow(portable(consumer, _CONSUMER, f"{words}: reduce"), first.result)


def _table(request: Request, source: PlannedSource | None) -> DataFrame:
    """Return what the producers of an input read: its rows, or the numbers of their shares of a source."""
    if source is not None:
        return numbers(request, source)
    assert request.df is not None  # noqa: S101 - a request has a DataFrame or a source
    return request.df


def _runs(session: SparkSession) -> KeptRuns:
    from headgate.spark.driver.kept import runs as kept_runs  # noqa: PLC0415 - not on Spark Connect

    return kept_runs.of(session, _began)


def _hosts(request: Request) -> HostPlan:
    """Return what producers need to start hosts, and consumers to read from them."""
    from headgate.spark.driver import application  # noqa: PLC0415 - not on Spark Connect
    from headgate.spark.tasks.start_host import HostPlan  # noqa: PLC0415

    owner = application.of(request.context)
    return HostPlan(owner.data_id, owner.data_secret, owner.host)


def _registered(request: Request, exchange: str, runs: KeptRuns) -> Place:
    """Register an input with the driver; return where consumers ask for the hosts of its producers."""
    from headgate.spark.driver import application  # noqa: PLC0415 - not on Spark Connect
    from headgate.spark.driver.runs.formation import ExchangeFacts  # noqa: PLC0415
    from headgate.spark.tasks.worker_connection import Place  # noqa: PLC0415

    owner = application.of(request.context)
    exchange_id, secret = bytes.fromhex(exchange), os.urandom(32)
    timeout, heartbeat = (request.options[f"{x}_timeout"] for x in ("consumer", "heartbeat"))
    facts = ExchangeFacts(0, heartbeat)
    owner.register_kept(exchange_id, secret, facts, lambda: runs.places.messages(exchange))
    return Place(owner.host, owner.port, exchange_id, secret, timeout, heartbeat)


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


def _most_remote(request: Request, segment_size: Any) -> int:
    """Return the number of channels to other hosts for which half of a task's pool has segments."""
    options = request.options
    left = options["memory"] // segment_size // 2 - options["floating_buffers_per_gate"]
    return max(1, int(left // max(1, options["buffers_per_channel"])))


def is_one_process(session: SparkSession) -> bool:
    """Return True if all tasks run in the driver's JVM, so no executor can be lost."""
    return local_attempts(master_of(session)) is not None


def shares_files(session: SparkSession) -> bool:
    """Return True if all executors are sure to be on one host, where consumers map the files of producers."""
    return master_of(session).startswith("local")


def is_inline(session: SparkSession) -> bool:
    """Return True if consumers may be where they can neither map files nor ask the driver for hosts."""
    return is_connect(session) and not shares_files(session)
