"""The inputs of a call of exchange(): one, or several whose rows with the same key meet in the same partition."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import OptionError
from headgate.selectors import HashSelector
from headgate.spark.confs import is_connect
from headgate.spark.plan.facts import placement
from headgate.spark.plan.keys import key_text, type_of
from headgate.spark.plan.request import Input, check, check_parameters
from headgate.spark.plan.sources import is_table, refuse_for_table, session_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from headgate.batches import BatchFunction
    from headgate.spark.plan.request import Request

#: Most inputs of an exchange.
MOST: Final = 16


def requests_of(
    call: Input,
    reduce: BatchFunction | None,
    schema: StructType | pa.Schema | str | None,
    spark: SparkSession | None,
    options: Mapping[str, Any],
) -> tuple[Request, ...]:
    """Check a call of exchange(); return a request for each input.

    Args:
        call: the arguments that an input may have too; its data are an input, or a list of inputs.
        reduce: makes the result.
        schema: the columns of the result.
        spark: the session that reads sources.
        options: all other arguments.

    Raises:
        OptionError: an argument has a value that it does not take, or does not fit several inputs, or the
            keys of the inputs have other types.
    """
    if isinstance(call.data, (list, tuple)):
        return tuple(_several(call.data, call, reduce, schema, spark, options))
    return (request_of(call, reduce, schema, spark, options),)


def request_of(
    call: Input,
    reduce: BatchFunction | None,
    schema: StructType | pa.Schema | str | None,
    spark: SparkSession | None,
    options: Mapping[str, Any],
) -> Request:
    """Check a call with one input; for the arguments see :func:`requests_of`."""
    if not is_table(call.data):
        return check(call, session_of(spark), reduce, schema, options)
    refuse_for_table(call.data, spark, options.get("parallelism"))
    return check(call, call.data.sparkSession, reduce, schema, options)


def _several(
    inputs: Sequence[Any],
    call: Input,
    reduce: BatchFunction | None,
    schema: StructType | pa.Schema | str | None,
    spark: SparkSession | None,
    options: Mapping[str, Any],
) -> list[Request]:
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
    if any(part is not None for part in (call.map, call.map_schema, call.combine)):
        raise OptionError(
            "with several inputs, map, map_schema and combine belong to an input",
            remedy="exchange([Input(df, map=f, map_schema=..., combine=g), ...], ...)",
        )
    listed = [input_ if isinstance(input_, Input) else Input(input_) for input_ in inputs]
    session = session_for(listed, spark)
    if any(input_.broadcast is not False for input_ in listed):
        _check_broadcast(listed, call, options, session)
    parallelism = options.get("parallelism")
    if parallelism is not None and all(is_table(input_.data) for input_ in listed):
        refuse_for_table(listed[0].data, spark, parallelism)
    check_parameters("reduce", reduce, len(listed))
    requests = []
    for number, input_ in enumerate(listed):
        with_defaults = replace(
            input_,
            by=call.by if input_.by is None else input_.by,
            sort_within=call.sort_within if input_.sort_within is None else input_.sort_within,
        )
        name = f"input {number}"
        request = check(with_defaults, session, reduce, schema, options, name=name, is_alone=False)
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
    _check_broadcast_keys(requests)
    return requests


def _check_broadcast(
    inputs: list[Input], call: Input, options: Mapping[str, Any], session: SparkSession
) -> None:
    """Refuse what has no effect, or no meaning, where rows stay in their partitions, or may stay there."""
    kinds = [input_.broadcast for input_ in inputs if input_.broadcast is not False]
    if len(kinds) != len(inputs) - 1:
        raise OptionError(
            "beside inputs that are broadcast there is one other, whose rows stay in their partitions",
            asked=f"{len(kinds)} of {len(inputs)} inputs with broadcast={_shown(kinds[0])}",
            remedy=f"broadcast={_shown(kinds[0])} for all inputs but one",
        )
    if any(kind != kinds[0] for kind in kinds):
        raise OptionError(
            "either the size decides about all inputs that are broadcast, or about none",
            asked=" and ".join(f"broadcast={_shown(kind)}" for kind in kinds),
            remedy='broadcast="auto" for all inputs but one · broadcast=True for these',
        )
    if is_connect(session):
        raise OptionError(
            f"broadcast={_shown(kinds[0])} needs a classic session, and this is one of Spark Connect",
            asked=f"Input(..., broadcast={_shown(kinds[0])})",
            remedy="omit broadcast, with by=columns",
        )
    if kinds[0] is True:
        _check_no_effect(inputs, call, options)


def _check_no_effect(inputs: list[Input], call: Input, options: Mapping[str, Any]) -> None:
    """Refuse arguments about rows that go to another partition."""
    has_by = call.by is not None or any(input_.by is not None for input_ in inputs)
    arguments = {
        "by": has_by,
        "combine": any(input_.combine is not None for input_ in inputs),
        "num_partitions": options.get("num_partitions") is not None,
    }
    for name, is_given in arguments.items():
        if is_given:
            raise OptionError(
                f"{name} has no effect beside broadcast=True, since no row goes to another partition",
                asked=f"Input(..., broadcast=True) and {name}=",
                remedy=f"omit {name} · omit broadcast",
            )


def _check_broadcast_keys(requests: list[Request]) -> None:
    """Refuse an input that may be too large to be broadcast, if no keys say where its rows meet the others."""
    may_be = any(request.may_be_broadcast for request in requests)
    if may_be and any(placement(request.by).kind != "hash" for request in requests):
        raise OptionError(
            'broadcast="auto" needs columns as by, by which an input above broadcast_bytes is moved',
            asked=f"by={' + '.join(placement(request.by).label for request in requests)}",
            remedy="by=columns, of both inputs · broadcast=True",
        )


def _shown(broadcast: Any) -> str:
    return '"auto"' if broadcast == "auto" else str(broadcast)


def session_for(inputs: list[Input], spark: SparkSession | None) -> SparkSession:
    """Return the session of the inputs; for sources alone ``spark`` or the active one."""
    sessions = [input_.data.sparkSession for input_ in inputs if is_table(input_.data)]
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
            keys.append([(key_text(key), type_of(request.wire, key)) for key in by])
    for other in keys[1:]:
        if [kind for _, kind in other] != [kind for _, kind in keys[0]]:
            lists = (", ".join(f"{name} {kind}" for name, kind in key) for key in (keys[0], other))
            raise OptionError(
                "the keys of the inputs have other types, so equal keys would not meet",
                asked=" and ".join(f"({key_list})" for key_list in lists),
                remedy="cast the columns of one input to the types of the other",
            )
