"""The columns and functions by which rows are equal, for calls whose results are remembered."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from headgate._arguments import function, refuse, span
from headgate._kinds import kind_of
from headgate.stream.api.checks import refuse_added, refuse_changes
from headgate.stream.graph.nodes import Edge, OwnWorkers, Shipping
from headgate.stream.operators.calls.digests import DigestColumn
from headgate.stream.operators.calls.rows import DIGEST
from headgate.stream.operators.stateless import MapOperator
from headgate.stream.state.descriptors import StateTtlConfig
from headgate.stream.state.types import column_index

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.stream.api.stream_calls import StreamCalls

_REMEDY = 'memo="text" · memo=lambda row: (row["model"], row["text"]) · memo=True'


def check_memo(memo: Any, rows: pa.Schema, keys: tuple[str, ...]) -> DigestColumn | None:
    """Return what adds the column by which rows are equal; None without ``memo=``.

    Args:
        memo: as of ``map_async()``.
        rows: schema of the stream.
        keys: its key columns.

    Raises:
        OptionError: it is no column and no function of a row.
        StreamError: rows that change, or with a column of this name.
        UnknownColumnError: no column has the name.
    """
    if memo is None:
        return None
    takes = "a column, a function of a row, or True"
    if memo is not True and not isinstance(memo, str) and not callable(memo):
        raise refuse("memo", memo, f"is {kind_of(memo)}", takes, _REMEDY)
    refuse_changes("map_async(memo=)", rows, "no memo=")
    refuse_added("map_async(memo=)", rows, [DIGEST])
    places = [column_index(rows, key) for key in keys]
    if memo is True:
        return DigestColumn(rows, range(len(rows)), places)
    if isinstance(memo, str):
        return DigestColumn(rows, [column_index(rows, memo, "memo={}")], places)
    return DigestColumn(rows, (), places, function("memo", memo, 1, _REMEDY))


def check_memo_ttl(memo_ttl: Any, memo: Any) -> StateTtlConfig | None:
    """Return the time to live of results.

    Raises:
        OptionError: it is no length of time, or nothing is remembered.
    """
    if memo_ttl is None:
        return None
    ttl = span("memo_ttl", memo_ttl, 1)
    if memo is None:
        raise refuse(
            "memo_ttl", memo_ttl, "without memo=", "a time for what is remembered", _REMEDY
        )
    return StateTtlConfig(ttl)


def edge_of_digests(
    stream: StreamCalls[Any],
    digests: DigestColumn,
    keys: tuple[str, ...],
    name: str | None,
    parallelism: int | None,
    workers: OwnWorkers | None,
) -> Edge:
    """Add the operator that adds the column, and return the way of its rows: each to the task that has its key group.

    Args:
        stream: of the rows.
        digests: the operator's function.
        keys: of the stream, by which rows are with their tasks; without any they go by the new column.
        name: of the calls.
        parallelism: of the calls.
        workers: of the calls. With keys they are those of this operator, to which the calls are chained.
    """
    node = stream._add(  # noqa: SLF001 - of a stream's call
        "memo",
        None if name is None else f"{name} memo",
        partial(MapOperator, digests, digests.schema),
        digests.schema,
        parallelism if keys else None,
        workers=workers if keys else None,
    )
    return Edge(node) if keys else Edge(node, None, Shipping.HASH, (DIGEST,))
