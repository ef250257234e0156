"""Several inputs of one exchange: checks that rows with the same key meet in the same partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import OptionError
from headgate.selectors import HashSelector
from headgate.spark.plan.keys import type_of, words
from headgate.spark.plan.request import check, check_parameters
from headgate.spark.plan.sources import is_table, refuse_for_table, session_of, source_input

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from headgate.batches import BatchFunction
    from headgate.source import Source
    from headgate.spark.plan.request import By, Request

#: Most inputs of an exchange.
MOST: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class Input:
    """One of several inputs of :func:`headgate.spark.exchange`.

    Args:
        data: A DataFrame, or a source that ends and whose records are record batches.
        by: Which partition each row goes to, as in :func:`exchange`; by default as the call says.
        map: A function that makes the rows of this input, as in :func:`exchange`; None for its own.
        map_schema: The columns that ``map`` returns; by default those of the input.
        sort_within: Columns by which the rows of each partition are sorted before ``reduce`` gets them;
            by default as the call says.

    Example:
        >>> exchange([Input(trades, by="sym"), Input(quotes, by="symbol")], reduce=as_of, schema="...")
    """

    data: DataFrame | Source[Any, Any, Any]
    by: By = None
    map: BatchFunction | None = None
    map_schema: StructType | pa.Schema | str | None = None
    sort_within: str | Column | Iterable[str | Column] | None = None


def requests_of(
    inputs: Sequence[Any],
    by: By,
    map: BatchFunction | None,  # noqa: A002 - the name of the public interface
    reduce: BatchFunction | None,
    schema: StructType | pa.Schema | str | None,
    sort_within: Any,
    spark: SparkSession | None,
    options: Mapping[str, Any],
) -> list[Request]:
    """Check a call of exchange() with several inputs; return a request for each.

    Raises:
        OptionError: An argument does not fit several inputs, the keys of the inputs have other types, or
            ``mode="spark"``.
    """
    if not 1 <= len(inputs) <= MOST:
        raise OptionError(
            f"an exchange has 1 to {MOST} inputs",
            asked=f"{len(inputs)} inputs",
            remedy="a union of some" if inputs else "a DataFrame of a Spark session",
        )
    if reduce is None or schema is None:
        missing = "reduce" if reduce is None else "schema"
        raise OptionError(
            f"several inputs need {missing}",
            asked=f"{len(inputs)} inputs without {missing}",
            remedy="reduce=f, which gets an iterator of batches for each input, and its schema=",
        )
    if map is not None or options.get("map_schema") is not None:
        raise OptionError(
            "with several inputs, map and map_schema belong to an input",
            remedy="exchange([Input(df, map=f, map_schema=...), ...], ...)",
        )
    given = [one if isinstance(one, Input) else Input(one) for one in inputs]
    session = session_for(given, spark)
    parallelism = options.get("parallelism")
    if parallelism is not None and all(is_table(one.data) for one in given):
        refuse_for_table(given[0].data, spark, parallelism)
    requests = []
    check_parameters("reduce", reduce, len(given))
    for number, one in enumerate(given):
        what = f"input {number}"
        data = one.data if is_table(one.data) else source_input(one.data, what)
        own = {**options, "map_schema": one.map_schema}
        key = by if one.by is None else one.by
        order = sort_within if one.sort_within is None else one.sort_within
        request = check(
            data,
            session,
            key,
            one.map,
            reduce,
            schema,
            own,
            sort_within=order,
            is_alone=False,
        )
        requests.append(request)
        if not request.wire.fields:
            raise OptionError(
                "one of several inputs has no columns", remedy="select at least one column"
            )
    if requests[0].options["mode"] == "spark":
        raise OptionError(
            "Spark's own repartition has one input",
            asked=f'mode="spark" ({requests[0].options.sources["mode"]})',
            remedy='mode="kept" · a union',
        )
    check_keys(requests)
    return requests


def session_for(inputs: list[Input], spark: SparkSession | None) -> SparkSession:
    """Return the session of the inputs; for sources alone ``spark`` or the active one."""
    sessions = [one.data.sparkSession for one in inputs if is_table(one.data)]
    if not sessions:
        return session_of(spark)
    if any(session is not sessions[0] for session in [*sessions, spark or sessions[0]]):
        raise OptionError(
            "the inputs are of more than one session", remedy="DataFrames of one session"
        )
    return sessions[0]


def check_keys(requests: list[Request]) -> None:
    """Refuse keys of other types: Spark's hash of an int differs from that of an equal long."""
    keys = []
    for request in requests:
        by = request.by.columns if isinstance(request.by, HashSelector) else request.by
        if isinstance(by, (list, tuple)):
            keys.append([(words(key), type_of(request.wire, key)) for key in by])
    for other in keys[1:]:
        if [kind for _, kind in other] != [kind for _, kind in keys[0]]:
            asked = (", ".join(f"{name} {kind}" for name, kind in key) for key in (keys[0], other))
            raise OptionError(
                "the keys of the inputs have other types, so equal keys would not meet",
                asked=" and ".join(f"({one})" for one in asked),
                remedy="cast the columns of one input to the types of the other",
            )
