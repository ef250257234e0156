"""Two keyed streams that go to one operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from headgate.errors import StreamError
from headgate.stream.api.datastream import DataStream
from headgate.stream.graph.limits import UNLIMITED, BatchLimits
from headgate.stream.graph.nodes import Edge
from headgate.stream.operators.sides import SideOperator, Sides, sides_of
from headgate.stream.state.types import check_columns as check_types

if TYPE_CHECKING:
    import pyarrow as pa


def check_same_keys(call: str, first: DataStream, second: DataStream) -> None:
    """Check that two keyed streams have keys of the same types.

    Raises:
        StreamError: they have others.
    """
    types = [[s.schema.field(key).type for key in s._keys] for s in (first, second)]  # noqa: SLF001 - one package
    if types[0] != types[1]:
        raise StreamError(
            f"{call} of streams with keys of different types",
            asked=", ".join(map(str, types[1])),
            have=", ".join(map(str, types[0])),
            remedy="cast the keys of one of them in a map()",
        )


def two_sides(first: DataStream, second: DataStream) -> Sides:
    """Return how the rows of two keyed streams travel.

    Raises:
        UnsupportedTypeError: a column of a type whose rows pyarrow cannot choose.
    """
    check_types(first.schema)
    check_types(second.schema)
    return sides_of(first.schema, first._keys, second.schema, second._keys)  # noqa: SLF001 - one package


def of_both(
    kind: str,
    name: str | None,
    streams: tuple[DataStream, DataStream],
    sides: Sides,
    make: Callable[[], Any],
    schema: pa.Schema,
    parallelism: int | None,
    side_outputs: Mapping[str, pa.Schema] | None = None,
    limits: BatchLimits = UNLIMITED,
) -> DataStream:
    """Add an operator of two keyed streams.

    Args:
        kind: of the operator.
        name: of the operator; None for one of the kind.
        streams: both, keyed.
        sides: how their rows travel.
        make: the operator of a task.
        schema: of the result.
        parallelism: number of tasks.
        side_outputs: schemas by name.
        limits: of the batches.
    """
    first, second = (
        DataStream(s._graph, *(Edge(e.node, e.output) for e in s._edges))._then(  # noqa: SLF001 - one package
            "side", None, partial(SideOperator, number, sides), sides.schema, None
        )
        for number, s in enumerate(streams)
    )
    rows = first.union(second).key_by(*sides.key_names)
    return rows._then(kind, name, make, schema, parallelism, side_outputs, limits=limits)  # noqa: SLF001 - one package
