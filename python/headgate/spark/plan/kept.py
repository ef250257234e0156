"""The plan of a kept exchange: an ordinary Spark job whose shuffle carries pages, or their places.

The producers are a map stage. Each row that they return is the index of one kept subpartition, which
also has the pages if there are few. Spark's shuffle brings the rows to the consumers, which read the
pages where they are. Spark schedules both stages, and runs again what is lost.

Decision: ADR 0022.
"""

from __future__ import annotations

import logging
from functools import reduce
from typing import TYPE_CHECKING, Final

from headgate.spark.plan.kept_tasks import way_of
from headgate.spark.plan.source_tables import numbers
from headgate.spark.portable import portable
from headgate.spark.tasks.kept_consumer import KeptConsumerTask
from headgate.spark.tasks.kept_producer import ROWS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from headgate.spark.plan.kept_tasks import Way
    from headgate.spark.plan.request import Request
    from headgate.spark.tasks.kept_reader import KeptInput
    from headgate.spark.tasks.planned_source import PlannedSource

_LOG: Final = logging.getLogger("headgate.spark")
_PRODUCER: Final = "headgate.spark.tasks.kept_producer"
_CONSUMER: Final = "headgate.spark.tasks.kept_consumer"
_SAID: Final = "exchange %s by %s -> %d partitions: kept, %s"


def keep(
    requests: Sequence[Request],
    partitions: int,
    sources: Sequence[PlannedSource | None],
    name: str,
) -> DataFrame:
    """Return the DataFrame of a kept exchange.

    Args:
        requests: the call of exchange() for each of its inputs, which can be kept; they have ``reduce``,
            the result and the options in common.
        partitions: number of partitions of the result.
        sources: for each input the source with its splits; None for a DataFrame.
        name: of the exchange, 30 digits in hex.
    """
    first = requests[0]
    by = " + ".join(request.by_words for request in requests)
    tables = [table_of(*one) for one in zip(requests, sources, strict=True)]
    by_hash = not hasattr(tables[0], "repartitionById")
    way = way_of(first, partitions, by_hash=by_hash, name=name)
    _LOG.info(_SAID, way.name[:4], by, partitions, way.why)
    read = "".join(f" {source.name}" for source in sources if source is not None)
    words = f"headgate {way.name[:4]}{read} kept by {by} -> {partitions} through {way.words}"
    inputs: list[KeptInput] = []
    outputs: list[DataFrame] = []
    for number, (request, source, df) in enumerate(zip(requests, sources, tables, strict=True)):
        inputs.append(way.input(number, request.wire_schema, request.order))
        outputs.append(produced(way, number, request, source, df, f"{words}: map"))
    consumer = KeptConsumerTask(
        inputs=tuple(inputs),
        num_partitions=partitions,
        reading=way.reading(len(inputs)),
        reduce=first.reduce,
        result=first.result_schema,
        reports=way.reports,
        listener=way.listener,
    )
    rows = way.placed(reduce(lambda one, other: one.union(other), outputs))
    function = portable(consumer, _CONSUMER, f"{words}: reduce")
    return way.lives_with(rows.mapInArrow(function, first.result))


def produced(
    way: Way,
    number: int,
    request: Request,
    source: PlannedSource | None,
    df: DataFrame,
    name: str,
) -> DataFrame:
    """Return the rows of the producers of an input.

    Args:
        way: of the exchange.
        number: of the input.
        request: the call for this input.
        source: what the producers read; None for a DataFrame.
        df: as :func:`table_of` returns it.
        name: of the step in the plan.
    """
    producer = way.producer(
        number,
        request.wire_schema,
        request.by,
        given=request.given_schema,
        map=request.map,
        map_option=request.map_option,
        source=source,
    )
    return df.mapInArrow(portable(producer, _PRODUCER, name), ROWS)


def table_of(request: Request, source: PlannedSource | None) -> DataFrame:
    """Return what the producers of an input read: its rows, or the numbers of their shares of a source."""
    if source is not None:
        return numbers(request, source)
    assert request.df is not None  # noqa: S101 - a request has a DataFrame or a source
    return request.df
