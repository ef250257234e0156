"""Inputs with broadcast="auto": measured by the call, and sent whole if they are small.

Decision: ADR 0049.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from headgate.spark.plan.sizes import Measured, broadcast_limit
from headgate.spark.plan.source_tables import mapped, planned
from headgate.spark.slots import slots_of
from headgate.spark.tasks.function_task import FunctionTask
from headgate.spark.tasks.measure import SIZE, MeasureTask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from headgate.spark.plan.request import Request

_LOG: Final = logging.getLogger("headgate.spark")
_MEASURE: Final = "headgate.spark.tasks.measure"
_STEP: Final = "headgate broadcast: measure"
_MEASURED: Final = "an input with broadcast=auto is %s, %s"


def measured(requests: Sequence[Request]) -> tuple[Request, ...]:
    """Decide about the inputs with ``broadcast="auto"``. Runs their producers, unless Spark's conf sends no input whole."""
    marked = [request for request in requests if request.may_be_broadcast]
    if not marked:
        return tuple(requests)
    first = requests[0]
    limit, origin = broadcast_limit(first.session, first.options)
    size = _bytes_of(marked, limit) if limit else None
    decision = Measured(size, limit, origin)
    _LOG.info(_MEASURED, "sent whole" if decision.is_small else "moved by key", decision.reason)
    return tuple(
        replace(request, is_broadcast=decision.is_small, measured=decision)
        if request.may_be_broadcast
        else request
        for request in requests
    )


def _bytes_of(requests: Sequence[Request], most: int) -> int:
    """Return the bytes of the rows of all these inputs, or of a part that is more than enough."""
    sizes: DataFrame = reduce(
        lambda rows, other: rows.union(other), [_sizes(request, most) for request in requests]
    )
    return sum(row["bytes"] for row in sizes.collect())


def _sizes(request: Request, most: int) -> DataFrame:
    """Return the bytes of the rows of an input that each task makes."""
    source: Any = None
    if request.source is not None:
        source = planned(request, slots_of(request.session.sparkContext).number)
        request = replace(request, planned=source)
    makes = FunctionTask(
        "map" if request.map is not None or source is None else "the source",
        request.map,
        request.input_schema,
        request.wire_schema,
        request.map_option,
        source=source,
        combine=request.combine,
    )
    return mapped(request, MeasureTask(makes, most), _MEASURE, _STEP, SIZE)
