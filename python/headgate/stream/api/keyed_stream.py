"""Streams whose rows are with the task that owns their key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate._arguments import arrow_schema, span, takes
from headgate.errors import StreamError
from headgate.stream.api.checks import (
    OPERATOR,
    check_process,
    check_side_outputs,
    check_window,
    wrong_stream,
)
from headgate.stream.api.datastream import DataStream
from headgate.stream.api.event_time import check_watermarks
from headgate.stream.api.updates import refuse_changes
from headgate.stream.api.updating import UpdatingStream
from headgate.stream.graph.functions import CoProcessFunction
from headgate.stream.graph.limits import batch_limits
from headgate.stream.graph.nodes import Edge, StreamGraph
from headgate.stream.operators.connected import (
    CoProcessOperator,
    SideOperator,
    key_names,
    side_schema,
)
from headgate.stream.operators.windowed import LATE, WindowedOperator
from headgate.stream.state.types import check_columns as check_types

if TYPE_CHECKING:
    from headgate.stream.windows.aggregates import Aggregate, WindowFunction
    from headgate.stream.windows.kinds import SessionWindow, SlidingWindow, TumblingWindow


class KeyedStream(UpdatingStream):
    """A stream whose rows are with the task that owns their key. Returned by :meth:`DataStream.key_by`."""

    def __init__(self, graph: StreamGraph, keys: Sequence[str], *edges: Edge) -> None:
        super().__init__(graph, *edges)
        self._keys = tuple(keys)

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of the key columns."""
        return self._keys

    @takes(**OPERATOR)
    def window(
        self,
        window: TumblingWindow | SlidingWindow | SessionWindow,
        *,
        time: str,
        aggregates: Sequence[Aggregate] = (),
        function: WindowFunction | None = None,
        allowed_lateness: timedelta | str = timedelta(0),
        parallelism: int | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Collect rows in windows of event time. The side output ``"late"`` has the rows that came too late.

        Args:
            window: the kind of windows.
            time: name of the column of event times, as the watermarks have it.
            aggregates: columns of the result.
            function: makes the result of a batch of closed windows and their rows.
            allowed_lateness: time after the end of a window in which rows still change its result.
            parallelism: number of tasks.
            name: of the operator.

        Raises:
            OptionError: an argument has a value that it does not take.
            StateError: both aggregates and a function, or neither.
            UnknownColumnError: a column that the stream does not have.
            StreamError: a source of the stream never ends and makes no watermarks, so that no window would ever close;
                the rows are changes.
            UserFunctionError: the function failed without windows.
        """
        refuse_changes("window()", self.schema, "window() of the rows before they are aggregated")
        check_watermarks(name or "window()", self._edges)
        of_rows = check_window(window, time, aggregates, function, self.schema)
        make = partial(
            WindowedOperator,
            self.schema,
            function,
            window=window,
            keys=self._keys,
            time=time,
            aggregates=of_rows,
            allowed_lateness=span("allowed_lateness", allowed_lateness),
        )
        schema = make().result_schema()
        make = partial(make, schema)
        late = {LATE: self.schema}
        results = self._then("window", name, make, schema, parallelism, late)
        results._edges[0].node.has_windows = True  # noqa: SLF001 - of this class
        return results

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
