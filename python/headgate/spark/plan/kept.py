"""The plan of a kept exchange: an ordinary Spark job whose shuffle carries pages, or their locations.

The producers are a map stage. Each row that they return is the index of one kept subpartition, which
also has the pages if there are few. Spark's shuffle brings the rows to the consumers, which read the
pages where they are. Spark schedules both stages, and runs again what is lost.

Decision: ADR 0022.
"""

from __future__ import annotations

import logging
from functools import reduce
from typing import TYPE_CHECKING, Final

from headgate.spark.plan.chain import ReturningTask, add_result
from headgate.spark.plan.kept_tasks import kept_tasks
from headgate.spark.plan.source_tables import input_table, mapped
from headgate.spark.portable import pickled, portable
from headgate.spark.tasks.kept_consumer import KeptConsumerTask
from headgate.spark.tasks.kept_producer import ROWS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from headgate.spark.plan.kept_tasks import KeptTasks
    from headgate.spark.plan.request import Request
    from headgate.spark.plan.rules import Plan

_LOG: Final = logging.getLogger("headgate.spark")
_PRODUCER: Final = "headgate.spark.tasks.kept_producer"
_CONSUMER: Final = "headgate.spark.tasks.kept_consumer"
_PLANNED: Final = "exchange %s by %s -> %d partitions: kept, %s"


def keep(plan: Plan, requests: Sequence[Request]) -> DataFrame:
    """Return the DataFrame of a kept exchange.

    Args:
        plan: of the exchange.
        requests: the call for each of its inputs; they have ``reduce`` and the result in common.
    """
    first, by, partitions = requests[0], plan.call.by, plan.partitions
    by_hash = not hasattr(input_table(first), "repartitionById")
    tasks = kept_tasks(plan, first.session, by_hash=by_hash)
    _LOG.info(_PLANNED, plan.name[:4], by, partitions, tasks.why)
    read = "".join(f" {request.source.name}" for request in requests if request.source is not None)
    step = f"headgate {plan.name[:4]}{read} kept by {by} -> {partitions} through {plan.session.through}"
    consumer = KeptConsumerTask(
        inputs=tuple(tasks.input(number, request) for number, request in enumerate(requests)),
        num_partitions=partitions,
        reading=tasks.reading(len(requests)),
        reduce=first.reduce,
        result=first.result_schema,
        advisory_bytes=None if plan.call.auto is None else plan.call.auto.advisory_bytes,
        reports=tasks.reports,
        listener=tasks.listener,
    )
    outputs = [produced(tasks, n, request, f"{step}: map") for n, request in enumerate(requests)]
    rows = tasks.partitioned(reduce(lambda rows, other: rows.union(other), outputs))
    returning = ReturningTask(
        exchange=plan.name,
        body=_CONSUMER,
        pickled=pickled(consumer),
        step=f"{step}: reduce",
        schema=first.result_schema,
        partitions=partitions,
        memory=plan.call.options["memory"] * (1 + any(request.sort_within for request in requests)),
        has_function=first.reduce is not None,
    )
    function = portable(returning.pickled, _CONSUMER, returning.step)
    result = rows.mapInArrow(function, first.result)
    add_result(result, returning)
    # The consumers may be others, of an exchange that follows; the producers are in each plan of it.
    tasks.live_with(outputs[0])
    return result


def produced(tasks: KeptTasks, number: int, request: Request, name: str) -> DataFrame:
    """Return the rows of the producers of an input.

    Args:
        tasks: of the exchange.
        number: of the input.
        request: the call for this input.
        name: of the step in the plan.
    """
    producer = tasks.producer(number, request)
    return mapped(request, producer, _PRODUCER, name, ROWS)
