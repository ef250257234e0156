"""Results by key that change with each row: the calls of keyed streams, as far as they check and put together operators."""

# ruff: noqa: SLF001 - of streams

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headgate._arguments import flag, refuse, span, text, whole_number
from headgate._changes import CHANGE_TYPE, is_changing, upsert_keys
from headgate._kinds import kind_of
from headgate.errors import StreamError, UnsupportedTypeError
from headgate.stream.api.checks import refuse_changes
from headgate.stream.api.event_time import check_watermarks
from headgate.stream.graph.nodes import Edge, Shipping
from headgate.stream.operators.aggregated import (
    PartialOperator,
    RunningAggregates,
    RunningOperator,
)
from headgate.stream.operators.deduplicated import DeduplicateOperator
from headgate.stream.operators.mini_batches import MiniBatches
from headgate.stream.operators.top import Top, TopOperator
from headgate.stream.operators.windowed import LATE
from headgate.stream.state.descriptors import StateTtlConfig
from headgate.stream.state.types import can_compare, check_columns, column_index
from headgate.stream.windows.aggregates import Aggregate
from headgate.stream.windows.kinds import check_times

if TYPE_CHECKING:
    from headgate.stream.api.stream_calls import StreamCalls, StreamT

#: How long a row waits for others by default, and how many of them at most.
EVERY: Final = "20ms"
MAX_ROWS: Final = 1 << 16


def mini_batches(every: Any, max_rows: Any) -> MiniBatches:
    """Return how long rows wait for others.

    Raises:
        OptionError: an argument has a value that it does not take.
    """
    millis = None if every is None else span("every", every) // timedelta(milliseconds=1)
    return MiniBatches(millis, whole_number("max_rows", max_rows, 1))


def time_to_live(ttl: Any) -> StateTtlConfig | None:
    """Return the time to live of keys.

    Raises:
        OptionError: it is no length of time.
    """
    return None if ttl is None else StateTtlConfig(span("ttl", ttl, 1))


def running(
    rows: StreamCalls[StreamT],
    aggregates: Sequence[Any],
    batches: MiniBatches,
    *,
    update_before: Any,
    ttl: Any,
    parallelism: int | None,
    name: str | None,
) -> StreamT:
    """Return the running aggregates of a keyed stream: see :meth:`KeyedStream.aggregate`."""
    schema = rows.schema
    _check_aggregates(aggregates, schema, rows._keys)
    refuse_upserts("aggregate()", schema)
    of = RunningAggregates(
        schema, rows._keys, aggregates, update_before=flag("update_before", update_before)
    )
    # Rows wait on both sides of the exchange, so half of the time each. Those that are sent have the columns that count.
    if batches.every is not None:
        batches = replace(batches, every=-(-batches.every // 2))
    senders = [
        rows._add(
            "partial",
            None,
            partial(PartialOperator, of, batches),
            of.partial,
            inputs=[Edge(edge.node, edge.output)],
        )
        for edge in rows._edges
    ]
    edges = [Edge(sender, None, Shipping.HASH, tuple(of.partial_keys)) for sender in senders]
    make = partial(RunningOperator, of, batches, time_to_live(ttl))
    return rows._then("aggregate", name, make, of.schema, parallelism, inputs=edges)


def first_rows(
    rows: StreamCalls[StreamT],
    call: str,
    top: Top,
    batches: MiniBatches,
    *,
    parallelism: int | None,
    name: str | None,
) -> StreamT:
    """Return the first rows of each key of a keyed stream: see :meth:`KeyedStream.top`."""
    if top.by is not None:
        of = top.rows.field(column_index(top.rows, text("by", top.by), f"{call}(by={{}})")).type
        if not can_compare(of):
            raise UnsupportedTypeError(
                f"{call} by {top.by!r}, which is of type {of}",
                remedy="cast it to a number, a time, string or binary",
            )
    if top.by in top.keys:
        raise StreamError(
            f"{call} by {top.by!r}: all rows of a key have the same {top.by!r}",
            have=f"the keys {', '.join(top.keys)}",
            remedy="by= another column",
        )
    refuse_upserts(f"{call}()", top.schema)
    if top.by is None:
        refuse_changes(f"{call}() by arrival", top.schema, 'by="at"')
    check_columns(top.schema)
    ranks = [] if top.rank is None else [text("rank", top.rank)]
    check_result_names(f"{call}()", [*top.rows.names, *ranks])
    make = partial(TopOperator, top, batches)
    return rows._then(call, name, make, top.result, parallelism)


def deduplicated(
    rows: StreamCalls[StreamT],
    within: Any,
    time: str | None,
    *,
    parallelism: int | None,
    name: str | None,
) -> StreamT:
    """Return the first row of each key within a time: see :meth:`KeyedStream.deduplicate`."""
    schema = rows.schema
    refuse_changes("deduplicate()", schema, 'keep_first(by="at") · keep_last(by="at")')
    check_columns(schema)
    limit = None if within is None else span("within", within, 1)
    if time is not None:
        if limit is None:
            raise refuse("time", time, "without within=", "a column, with a length of time in it")
        check_times(schema, text("time", time))
        check_watermarks(name or "deduplicate()", rows._edges)
    make = partial(DeduplicateOperator, schema, rows._keys, limit, time)
    late = {} if time is None else {LATE: schema}
    return rows._then("deduplicate", name, make, schema, parallelism, late)


def refuse_upserts(call: str, schema: pa.Schema) -> None:
    """Refuse a stream whose updates lack the rows before.

    Raises:
        StreamError: it is one.
    """
    keys = upsert_keys(schema)
    if keys is not None:
        raise StreamError(
            f"{call} of updates without the rows before them",
            have=f"upserts by {', '.join(keys)}",
            remedy="update_before=True of the operator before",
        )


def check_result_names(call: str, names: Sequence[str]) -> None:
    """Check that the columns of a result have different names, none of them that of the changes.

    Raises:
        StreamError: two have one.
    """
    for at, column in enumerate(names):
        if column in names[:at] or column == CHANGE_TYPE:
            raise StreamError(
                f"two columns of the result of {call} have the name {column!r}",
                have=", ".join([*names, CHANGE_TYPE]),
                remedy='Aggregate("sum", "price", name="another") · another name in a map() before',
            )


def _check_aggregates(aggregates: Sequence[Any], schema: pa.Schema, keys: Sequence[str]) -> None:
    """Check the aggregates of a call.

    Raises:
        OptionError: something else than an Aggregate, or none.
        StreamError: one from which no row can be taken away, of a stream whose rows change; two of one name.
        UnsupportedTypeError: a sum from which no row can be taken away.
    """
    remedy = 'aggregate(Aggregate("sum", "price"), Aggregate("count"))'
    wrong = [item for item in aggregates if not isinstance(item, Aggregate)]
    if wrong or not aggregates:
        what = f"is {kind_of(wrong[0])}" if wrong else "is empty"
        raise refuse("aggregates", wrong[0] if wrong else (), what, "an Aggregate", remedy)
    check_result_names("aggregate()", [*keys, *(item.result for item in aggregates)])
    if not is_changing(schema):
        return
    for item in aggregates:
        if item.kind == "approx_count_distinct":
            raise StreamError(
                f"{item.kind} of {item.column!r} in a stream whose rows change: no value can be taken out of a sketch",
                have=f"a column {CHANGE_TYPE}",
                remedy=f'Aggregate("count_distinct", {item.column!r}), which keeps the values',
            )
        if item.kind == "sum":
            of = schema.field(column_index(schema, item.column or "")).type
            if pa.types.is_uint64(of):
                raise UnsupportedTypeError(
                    f"a sum of {item.column!r}, which is of type {of}, in a stream whose rows change",
                    remedy="cast it to pa.int64() or pa.decimal128(38, 0)",
                )
