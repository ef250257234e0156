"""Streams whose rows are with the task that owns their key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pyarrow as pa

from headgate._arguments import arrow_schema, takes
from headgate.errors import StreamError
from headgate.stream.api.checks import (
    OPERATOR,
    check_process,
    check_side_outputs,
    wrong_stream,
)
from headgate.stream.api.datastream import DataStream
from headgate.stream.graph.functions import CoProcessFunction
from headgate.stream.graph.limits import batch_limits
from headgate.stream.graph.nodes import Edge, StreamGraph
from headgate.stream.operators.connected import (
    CoProcessOperator,
    SideOperator,
    key_names,
    side_schema,
)
from headgate.stream.state.types import check_columns as check_types


class KeyedStream(DataStream):
    """A stream whose rows are with the task that owns their key. Returned by :meth:`DataStream.key_by`."""

    def __init__(self, graph: StreamGraph, keys: Sequence[str], *edges: Edge) -> None:
        super().__init__(graph, *edges)
        self._keys = tuple(keys)

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of the key columns."""
        return self._keys

    def connect(self, other: KeyedStream) -> ConnectedStreams:
        """Return this stream and another one with keys of the same types, for one function with common state.

        Raises:
            StreamError: keys of other types, or none.
        """
        if not isinstance(other, KeyedStream):
            raise wrong_stream(
                "connect()", other, 'clicks.key_by("user").connect(names.key_by("user"))'
            )
        return ConnectedStreams(self, other)


class ConnectedStreams:
    """Two keyed streams. Returned by :meth:`KeyedStream.connect`."""

    def __init__(self, first: KeyedStream, second: KeyedStream) -> None:
        types = [[s.schema.field(key).type for key in s.keys] for s in (first, second)]
        if types[0] != types[1]:
            raise StreamError(
                "connect() of streams with keys of different types",
                asked=", ".join(map(str, types[1])),
                have=", ".join(map(str, types[0])),
                remedy="cast the keys of one of them in a map()",
            )
        self._first, self._second = first, second

    @takes(schema=arrow_schema, **OPERATOR)
    def process(
        self,
        function: Callable[[], CoProcessFunction] | CoProcessFunction,
        *,
        schema: pa.Schema,
        side_outputs: Mapping[str, pa.Schema] | None = None,
        parallelism: int | None = None,
        name: str | None = None,
        batch_rows: int | None = None,
        batch_bytes: int | str | None = None,
    ) -> DataStream:
        """Apply a :class:`CoProcessFunction`; arguments as for :meth:`DataStream.process`."""
        methods = ("open", "process_first", "process_second", "close")
        check_process(function, CoProcessFunction, methods)
        schema, outputs = schema.remove_metadata(), check_side_outputs(side_outputs)
        limits = batch_limits(batch_rows, batch_bytes)
        first, second = self._first, self._second
        check_types(first.schema)
        check_types(second.schema)
        both = side_schema(first.schema, first.keys, second.schema)
        sides = [
            DataStream(stream._graph, *(Edge(e.node, e.output) for e in stream._edges))._then(  # noqa: SLF001 - of this file
                "side", None, partial(SideOperator, number, stream.keys, both), both, None
            )
            for number, stream in enumerate((first, second))
        ]
        rows = sides[0].union(sides[1]).key_by(*key_names(first.keys))
        key_schema = pa.schema([first.schema.field(key) for key in first.keys])
        make = partial(CoProcessOperator, function, key_schema, schema, outputs)
        return rows._then("connect", name, make, schema, parallelism, outputs, limits=limits)  # noqa: SLF001 - of this file
