"""Decides how a checked call of exchange() is planned. ``explain()`` shows the same decision."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import NotBuiltError
from headgate.spark.confs import is_connect
from headgate.spark.connect import slots_on_connect
from headgate.spark.plan import kept_tasks
from headgate.spark.plan.read_auto.scan import Unsure
from headgate.spark.plan.rules import Asked, There, choose, why_not_kept, why_spark_reads
from headgate.spark.plan.shuffle import is_placed_by_spark, is_shortest
from headgate.spark.plan.sources import SourceInput
from headgate.spark.slots import slots_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from headgate.spark.plan.request import Request
    from headgate.spark.plan.rules import Choice
    from headgate.spark.slots import Slots
    from headgate.spark.tasks.planned_source import PlannedSource

_LOG: Final = logging.getLogger("headgate.spark")
_SPARK_READS: Final = "exchange by %s: Spark reads the input: %s"


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """How a call is planned, with all that the plan needs.

    Attributes:
        asked: what the call asks for.
        there: what the session has.
        choice: the way.
        requests: the checked call for each input, read by whom it was decided.
        sources: for each input the source with its splits; None for a DataFrame, and where the splits
            are not listed ahead.
        spark_reads: for each input why Spark reads it although ``read="auto"``; empty if that is not so.
        slots: those of the application; on Connect those that the master fixes, or Spark's default.
    """

    asked: Asked
    there: There
    choice: Choice
    requests: tuple[Request, ...]
    sources: tuple[PlannedSource | None, ...]
    spark_reads: tuple[str, ...]
    slots: Slots
    _id: bytes = field(default_factory=lambda: os.urandom(16))

    @property
    def name(self) -> str:
        """Name of the exchange in hex, as its statistics have it."""
        return self._id.hex()[: 30 if self.choice.mode == "kept" else 32]

    @property
    def partitions(self) -> int:
        """Number of partitions of the result."""
        given: int | None = self.requests[0].options["num_partitions"]
        return given or max(1, self.slots.number)


def decide(request: Request) -> Decision:
    """Decide how an exchange with one input is planned; list the splits of its source, if it is kept.

    Raises:
        NotBuiltError: The exchange is not possible here.
        SourceError: The source could not list its splits.
    """
    request, spark_reads = _read_by_workers(request)
    asked, there = _asked(request), _there(request)
    choice = choose(asked, there)
    if choice.impossible:
        raise NotBuiltError(
            "this exchange cannot be sure of its rows here",
            asked=choice.impossible,
            remedy=choice.remedy,
        )
    slots, source = slots_for(request.session), None
    if choice.mode == "kept" and request.source is not None:
        from headgate.spark.plan.source_tables import planned  # noqa: PLC0415 - only sources need it

        source = planned(request, slots.number)
    return Decision(asked, there, choice, (request,), (source,), (spark_reads,), slots)


def decide_several(requests: Sequence[Request]) -> Decision:
    """Decide how an exchange whose inputs are given as a list is planned.

    Raises:
        NotBuiltError: An input cannot be kept.
        SourceError: A source could not list its splits.
    """
    slots = slots_for(requests[0].session)
    read, sources, spark_reads = planned_inputs(requests, max(1, slots.number))
    asked, there = _asked(read[0], is_listed=True), _there(read[0])
    choice = choose(asked, there)
    return Decision(asked, there, choice, tuple(read), tuple(sources), tuple(spark_reads), slots)


def planned_inputs(
    requests: Sequence[Request], slots: int
) -> tuple[list[Request], list[PlannedSource | None], list[str]]:
    """Return the requests of several inputs, for each the source with its splits, and why Spark reads it.

    Raises:
        NotBuiltError: an input cannot be kept.
    """
    from headgate.spark.plan.source_tables import planned  # noqa: PLC0415 - only sources need it

    read: list[Request] = []
    sources: list[PlannedSource | None] = []
    reasons: list[str] = []
    for number, given in enumerate(requests):
        request, reason = _read_by_workers(given)
        why, source = why_not(given), None
        if not why and request.source is not None:
            source = planned(request, slots)
        if why:
            raise NotBuiltError(f"input {number} cannot be one of several", asked=why)
        read.append(request)
        sources.append(source)
        reasons.append(reason)
    return read, sources, reasons


def why_not(request: Request) -> str:
    """Return why an exchange cannot be kept; empty if it can."""
    return why_not_kept(_asked(request), _there(request))


def slots_for(session: SparkSession) -> Slots:
    """Return the slots with which the exchanges of a session are planned."""
    return slots_on_connect(session) if is_connect(session) else slots_of(session.sparkContext)


def _asked(request: Request, *, is_listed: bool = False) -> Asked:
    options, source = request.options, request.source
    return Asked(
        mode=options["mode"],
        mode_from=options.sources["mode"],
        by=request.by_words,
        is_listed=is_listed,
        is_shortest=is_shortest(request),
        is_by_order=kept_tasks.is_by_order(request.by),
        has_map=request.map is not None,
        reads_source=source is not None,
        spark_places=is_placed_by_spark(request.by),
    )


def _there(request: Request) -> There:
    session, by_order = request.session, kept_tasks.is_by_order(request.by)
    return There(
        on_connect=is_connect(session),
        shares_files=kept_tasks.shares_files(session),
        # Each conf costs a call, and no rule asks these two about rows that columns place.
        is_one_process=not by_order or kept_tasks.is_one_process(session),
        compares_rows=not by_order or _compares_rows(session),
    )


def _compares_rows(session: SparkSession) -> bool:
    """Return True if Spark notices a task of a map stage that returns other rows when it runs again."""
    major, minor = session.version.split(".")[:2]
    return (int(major), int(minor)) >= (4, 1) and all(
        session.conf.get(f"spark.sql.shuffle.orderIndependentChecksum.{name}", "true") == "true"
        for name in ("enabled", "enableFullRetryOnMismatch")
    )


def _read_by_workers(request: Request) -> tuple[Request, str]:
    """Return the request with a source instead of its DataFrame if the caller allows it, else why not.

    And if the source has the same rows for sure, and they go to a function.
    """
    from headgate.spark.plan.read_auto.source import source_of  # noqa: PLC0415 - imports pyarrow

    df: Any = request.df
    if request.options["read"] != "auto" or df is None:
        return request, ""
    try:
        why = why_spark_reads(
            _asked(request),
            There(on_connect=is_connect(request.session)),
            has_reduce=request.reduce is not None,
            has_computed_keys=request.has_computed_keys,
        )
        if why:
            raise Unsure(why)
        source = source_of(df)
    except Unsure as reason:
        _LOG.info(_SPARK_READS, request.by_words, reason)
        return request, str(reason)
    _LOG.info("exchange by %s: the workers read the input, %s", request.by_words, source.name)
    read = SourceInput(source, "parquet", df.schema, source.schema)
    return replace(request, df=None, source=read), ""
