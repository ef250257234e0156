"""Two streams that go to one operator."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from headgate.errors import StreamError
from headgate.stream.graph.nodes import Edge, StreamGraph
from headgate.stream.operators.sides import SideOperator, Sides, sides_of
from headgate.stream.state.types import check_columns, check_sent

if TYPE_CHECKING:
    from collections.abc import Sequence


def check_same_keys(call: str, first: Sequence[Edge], second: Sequence[Edge]) -> None:
    """Check that the keys of two streams have the same types.

    Raises:
        StreamError: they have others.
    """
    types = [[e[0].schema.field(key).type for key in e[0].keys] for e in (first, second)]
    if types[0] != types[1]:
        raise StreamError(
            f"{call} of streams with keys of different types",
            asked=", ".join(map(str, types[1])),
            have=", ".join(map(str, types[0])),
            remedy="cast the keys of one of them in a map()",
        )


def two_sides(first: Sequence[Edge], second: Sequence[Edge]) -> Sides:
    """Return how the rows of two streams travel, of which the second one has no keys or those of the first.

    Raises:
        UnsupportedTypeError: a column of a type whose rows pyarrow cannot choose, or that cannot be sent.
    """
    for edges in (first, second):
        check_columns(edges[0].schema)
        # On the way, columns have other names.
        check_sent(edges[0].schema)
    return sides_of(first[0].schema, first[0].keys, second[0].schema, second[0].keys)


def edges_of_both(
    graph: StreamGraph, first: Sequence[Edge], second: Sequence[Edge], sides: Sides
) -> tuple[Edge, Edge]:
    """Add the operators that put rows of two streams into one schema; return the edges behind them.

    Args:
        graph: of both streams.
        first: edges of the first stream, shipped as its rows are to be.
        second: edges of the second one.
        sides: how their rows travel.
    """
    behind = []
    for number, stream in enumerate((first, second)):
        node = graph.add(
            "side",
            None,
            schema=sides.schema,
            inputs=tuple(Edge(edge.node, edge.output) for edge in stream),
            make=partial(SideOperator, number, sides),
        )
        keys = tuple(sides.key_names) if stream[0].keys else ()
        behind.append(Edge(node, None, stream[0].shipping, keys))
    return behind[0], behind[1]
