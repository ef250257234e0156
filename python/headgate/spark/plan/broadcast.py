"""The plan of a call with inputs that are sent whole: the rows of the other input stay in their partitions.

The pages of small inputs are the value of a scalar subquery, which Spark runs before the tasks that need it, and
sends to them with the plan. It stands in the first row of each partition of the large input, so that a task
has it before it reads the rows.

Decision: ADR 0049.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from headgate.selectors import GlobalSelector
from headgate.spark.plan.kept_tasks import kept_tasks
from headgate.spark.plan.source_tables import input_table, mapped
from headgate.spark.portable import portable
from headgate.spark.tasks.broadcast_consumer import PAGES, BroadcastConsumerTask
from headgate.spark.tasks.kept_producer import ROWS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from headgate.spark.plan.kept_tasks import KeptTasks
    from headgate.spark.plan.request import Request
    from headgate.spark.plan.rules import Plan

_LOG: Final = logging.getLogger("headgate.spark")
_PRODUCER: Final = "headgate.spark.tasks.kept_producer"
_CONSUMER: Final = "headgate.spark.tasks.broadcast_consumer"
_PLANNED: Final = "exchange %s: input %d stays in its partitions, the others are sent whole"
#: Bits of Spark's monotonically increasing ids that count the rows of a partition.
_ROW_BITS: Final = 33


def broadcast(plan: Plan, requests: Sequence[Request]) -> DataFrame:
    """Return the DataFrame of a call with inputs that are sent whole.

    Args:
        plan: of the call.
        requests: the call for each of its inputs, of which one is not sent whole.
    """
    first = requests[0]
    tasks = kept_tasks(plan, first.session, by_hash=False)
    stays = next(n for n, request in enumerate(requests) if not request.is_broadcast)
    large = requests[stays]
    _LOG.info(_PLANNED, plan.name[:4], stays)
    step = f"headgate {plan.name[:4]} broadcast"
    small = [
        _produced(tasks, n, request, f"{step}: map")
        for n, request in enumerate(requests)
        if request.is_broadcast
    ]
    consumer = BroadcastConsumerTask(
        stays=stays,
        # No row of it is sent, so nothing has to be merged before.
        large=replace(tasks.producer(stays, large), combine=None, hosts=None),
        inputs=tuple(tasks.input(n, request) for n, request in enumerate(requests)),
        reading=replace(tasks.reading(len(requests)), hosts=None),
        reduce=first.reduce,
        result=first.result_schema,
    )
    table = input_table(large)
    rows = table.select("*", _in_first_rows(reduce(lambda rows, other: rows.union(other), small)))
    function = portable(consumer, _CONSUMER, f"{step}: reduce")
    result = rows.mapInArrow(function, first.result)
    tasks.live_with(result)
    return result


def _produced(tasks: KeptTasks, number: int, request: Request, name: str) -> DataFrame:
    """Return the rows of the producers of a small input, with its pages."""
    request = replace(request, by=GlobalSelector())
    producer = replace(tasks.producer(number, request), is_inline=True, is_stable=False, hosts=None)
    return mapped(request, producer, _PRODUCER, name, ROWS)


def _in_first_rows(rows: DataFrame) -> Column:
    """Return a column with all of these rows in the first row of each partition, and no row in the others."""
    from pyspark.sql import functions  # noqa: PLC0415 - pyspark only where Spark is

    names = ["input", "producer", *(n for n in rows.columns if n not in {"input", "producer"})]
    # Producers end in any order, and functions must get the same rows in each attempt.
    listed = functions.sort_array(functions.collect_list(functions.struct(*names)))
    collected: Any = rows.agg(listed.alias(PAGES))
    # Spark gives Python a null array much more slowly than an empty one.
    none = functions.array().cast(collected.schema[0].dataType)
    is_first = functions.monotonically_increasing_id() % (1 << _ROW_BITS) == 0
    return functions.when(is_first, collected.scalar()).otherwise(none).alias(PAGES)
