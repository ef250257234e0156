"""Streams of rows, as Flink's DataStream names them: each call adds an operator to the job's graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from headgate._arguments import arrow_schema, calls, takes, text
from headgate.errors import StreamError
from headgate.sink.api import chosen_name
from headgate.stream.api.checks import (
    OPERATOR,
    SOURCE,
    check_keys,
    check_predicate,
    check_process,
    check_side_outputs,
    check_sink,
    no_such_call,
    refuse_changes,
    wrong_stream,
)
from headgate.stream.api.event_time import check_watermarks
from headgate.stream.api.job import StreamingJob
from headgate.stream.api.lookups import lookup_of
from headgate.stream.api.two_streams import edges_of_both, two_sides
from headgate.stream.api.windows import WindowCall
from headgate.stream.graph.functions import BroadcastProcessFunction, ProcessFunction
from headgate.stream.graph.limits import UNLIMITED, BatchLimits, batch_limits
from headgate.stream.graph.nodes import Edge, Shipping, StreamGraph
from headgate.stream.operators.connected import BroadcastOperator
from headgate.stream.operators.process import ProcessOperator
from headgate.stream.operators.results import learned_schema
from headgate.stream.operators.sinks import SinkOperator
from headgate.stream.operators.stateless import FilterOperator, MapOperator
from headgate.stream.operators.windowed import LATE
from headgate.stream.state.groups import check_keys as check_key_types
from headgate.stream.state.types import check_columns as check_types
from headgate.stream.state.types import column_index, no_rows

if TYPE_CHECKING:
    from headgate.source import Source, WatermarkStrategy
    from headgate.stream.api.keyed_stream import KeyedStream
    from headgate.stream.graph.context import FunctionRows
    from headgate.stream.windows.aggregates import Aggregate, WindowFunction
    from headgate.stream.windows.kinds import SessionWindow, SlidingWindow, TumblingWindow
    from headgate.stream.windows.top import Top


@takes(**SOURCE)
def stream(
    source: Source[Any, Any, Any],
    *,
    watermarks: WatermarkStrategy | None = None,
    parallelism: int | None = None,
    name: str | None = None,
) -> DataStream:
    """Return the stream of a source's rows.

    Args:
        source: emits record batches, and has a schema.
        watermarks: makes the watermarks; None for those that the source emits itself.
        parallelism: number of readers; None for the job's.
        name: of the source in checkpoints and reports.

    Raises:
        OptionError: an argument has a value that it does not take.
        StreamError: the source has no schema.

    Example:
        >>> import pyarrow as pa
        >>> from headgate.source import NumberSequenceSource
        >>> from headgate.stream import stream
        >>> numbers = stream(NumberSequenceSource(0, 9), parallelism=1)
        >>> numbers.schema.names
        ['id']
    """
    schema = source.schema
    if schema is None:
        raise StreamError(
            f"{source.name} has no schema, so its records are not Arrow batches",
            remedy="a source of record batches with a schema",
        )
    graph = StreamGraph()
    node = graph.add(
        "source",
        name,
        schema=schema.remove_metadata(),
        source=source,
        watermarks=watermarks,
        parallelism=parallelism,
    )
    return DataStream(graph, Edge(node))


class DataStream:
    """A stream of rows. Each method returns a new stream, and leaves this one as it is.

    Returned by :func:`stream` and its methods.
    """

    def __init__(self, graph: StreamGraph, *edges: Edge) -> None:
        self._graph = graph
        self._edges = edges
        #: The columns by which rows are with their task; only a keyed stream has any.
        self._keys: tuple[str, ...] = ()
        #: Side outputs of an operator before the one that made this stream, which belong to both.
        self._further_outputs: dict[str, Edge] = {}

    @property
    def schema(self) -> pa.Schema:
        """Schema of the batches."""
        return self._edges[0].schema

    @takes(
        function=calls(1, "def f(batch): ..., which returns rows"), schema=arrow_schema, **OPERATOR
    )
    def map(
        self,
        function: Callable[[pa.RecordBatch], FunctionRows],
        *,
        schema: pa.Schema | None = None,
        parallelism: int | None = None,
        name: str | None = None,
        batch_rows: int | None = None,
        batch_bytes: int | str | None = None,
    ) -> DataStream:
        """Apply a function to each batch.

        Args:
            function: gets a batch, and returns any number of rows: a batch, a table or a DataFrame of polars or pandas, or
                several. ``[]`` or an empty batch for no rows; None is an error.
            schema: of the result. If not given, the function is called with a batch without rows, here.
            parallelism: number of tasks; None for that of the stream before it.
            name: of the operator.
            batch_rows: most rows of a batch, for a function that is slow: barriers may pass between batches.
            batch_bytes: most bytes of a batch, about, such as ``"64k"``.

        Raises:
            OptionError: an argument has a value that it does not take.
            UserFunctionError: the function failed without rows.
            SchemaMismatchError: the function returned no rows without rows, such as None.
        """
        if schema is None:
            schema = learned_schema("map()", function, no_rows(self.schema))
        schema = schema.remove_metadata()
        make = partial(MapOperator, function, schema)
        limits = batch_limits(batch_rows, batch_bytes)
        return self._then("map", name, make, schema, parallelism, limits=limits)

    @takes(**OPERATOR)
    def filter(
        self, predicate: Any, *, parallelism: int | None = None, name: str | None = None
    ) -> DataStream:
        """Keep some of the rows.

        Args:
            predicate: an expression of ``pyarrow.compute``, or a function of a batch that returns a boolean array.
            parallelism: number of tasks; None for that of the stream before it.
            name: of the operator.

        Raises:
            OptionError: an argument has a value that it does not take.
            StreamError: the expression does not fit the rows.
            UnsupportedTypeError: the stream has a column of a type whose rows pyarrow cannot choose.
        """
        check_types(self.schema)
        check_predicate(predicate, self.schema)
        make = partial(FilterOperator, predicate)
        return self._then("filter", name, make, self.schema, parallelism)

    @takes(schema=arrow_schema, **OPERATOR)
    def process(
        self,
        function: Callable[[], ProcessFunction] | ProcessFunction,
        *,
        schema: pa.Schema,
        side_outputs: Mapping[str, pa.Schema] | None = None,
        parallelism: int | None = None,
        name: str | None = None,
        batch_rows: int | None = None,
        batch_bytes: int | str | None = None,
    ) -> DataStream:
        """Apply a :class:`ProcessFunction`: on a keyed stream with state by key and timers, else without.

        Args:
            function: each task pickles a copy of it; or a class or function that makes one.
            schema: of the result.
            side_outputs: schemas of further outputs; see :meth:`side_output`.
            parallelism: number of tasks.
            name: of the operator.
            batch_rows: most rows of a batch, for a function that is slow: barriers may pass between batches.
            batch_bytes: most bytes of a batch, about, such as ``"64k"``.

        Raises:
            OptionError: an argument has a value that it does not take.
        """
        check_process(function, ProcessFunction, ("open", "process", "close"))
        schema, outputs = schema.remove_metadata(), check_side_outputs(side_outputs)
        key_schema = pa.schema([self.schema.field(key) for key in self._keys])
        make = partial(ProcessOperator, function, key_schema, schema, outputs)
        limits = batch_limits(batch_rows, batch_bytes)
        return self._then("process", name, make, schema, parallelism, outputs, limits=limits)

    @takes(**OPERATOR)
    def window(
        self,
        window: TumblingWindow | SlidingWindow | SessionWindow,
        *,
        time: str,
        aggregates: Sequence[Aggregate] = (),
        function: WindowFunction | None = None,
        top: Top | None = None,
        allowed_lateness: timedelta | str = timedelta(0),
        parallelism: int | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Collect rows in windows of event time: those of each key, or all rows of a stream without keys.

        The side output ``"late"`` has the rows that came too late. Without keys one task has the windows. Aggregates of
        fixed windows are made in two phases: the tasks before it aggregate their own rows, and a row is late by the
        watermark of its task. For a function and for sessions, all rows go to the one task.

        Args:
            window: the kind of windows.
            time: name of the column of event times, as the watermarks have it.
            aggregates: columns of the result.
            function: makes the result of a batch of closed windows and their rows.
            top: the first rows of each window, of each key; with ``aggregates``, the first results of each window, of all
                keys. Results then have all columns of the rows.
            allowed_lateness: time after the end of a window in which rows still change its result.
            parallelism: number of tasks; without keys, of those that aggregate their own rows.
            name: of the operator. Without keys, the first phase is called so with ``-panes``.

        Raises:
            OptionError: an argument has a value that it does not take.
            StateError: both aggregates and a function, or none of aggregates, function and first rows; a filter of an
                aggregate that does not fit; first results of windows that several keys do not share.
            UnknownColumnError: a column that the stream does not have.
            StreamError: a source of the stream never ends and makes no watermarks, so that no window would ever close;
                the rows are changes.
            UserFunctionError: the function failed without windows.
        """
        refuse_changes("window()", self.schema, "window() of the rows before they are aggregated")
        check_watermarks(name or "window()", self._edges)
        call = WindowCall(
            window, time, aggregates, function, top, allowed_lateness, parallelism, name
        )
        steps = call.steps(self.schema, self._keys)
        streams = [self if self._keys else self._each_row_once()]
        for step in steps:
            rows, (kind, operator, make, schema, tasks) = streams[-1], step
            late = {LATE: rows.schema}
            streams.append(rows._then(kind, operator, make, schema, tasks, late))  # noqa: SLF001 - of this class
        results, first = streams[-1], streams[1]
        results._edges[0].node.has_windows = True  # noqa: SLF001 - of this class
        results._further_outputs[LATE] = Edge(first._edges[0].node, LATE)  # noqa: SLF001 - of this class
        return results

    @takes(name=text)
    def side_output(self, name: str) -> DataStream:
        """Return a side output of the operator that made this stream.

        Raises:
            StreamError: it has no such output.
            OptionError: the name is not a text.
        """
        if name in self._further_outputs:
            return DataStream(self._graph, self._further_outputs[name])
        node = self._edges[0].node
        if len(self._edges) != 1 or name not in node.side_outputs:
            raise StreamError(
                f"{node.uid} has no side output {name!r}",
                have=", ".join(node.side_outputs) or "none",
                remedy="side_outputs= of process() · late rows of a window: side_output('late')",
            )
        return DataStream(self._graph, Edge(node, name))

    def key_by(self, *keys: str) -> KeyedStream:
        """Send each row to the task that owns its key.

        Args:
            keys: names of columns; null is a key as well.

        Raises:
            UnknownColumnError: the stream has no such column.
            UnsupportedTypeError: a column of a type that cannot be a key.
            StreamError: no key, or one that is not a name.
        """
        check_keys(keys)
        for key in keys:
            column_index(self.schema, key, "key_by({})")
        check_key_types(pa.schema([self.schema.field(key) for key in keys]))
        # A keyed stream is a stream, so its module imports this one.
        from headgate.stream.api.keyed_stream import KeyedStream  # noqa: PLC0415

        edges = [Edge(e.node, e.output, Shipping.HASH, keys) for e in self._edges]
        return KeyedStream(self._graph, keys, *edges)

    @takes(schema=arrow_schema, **OPERATOR)
    def lookup(
        self,
        table: pa.Table
        | pa.RecordBatch
        | str
        | Source[Any, Any, Any]
        | Callable[[pa.RecordBatch], FunctionRows],
        *,
        on: str | Sequence[str] | Mapping[str, str],
        how: Literal["inner", "left"] = "inner",
        schema: pa.Schema | None = None,
        suffixes: tuple[str, str] = ("", "_right"),
        parallelism: int | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Add the columns of rows that do not come as a stream. A key with several rows gives all of them.

        Args:
            table: a table, which each worker gets with the job; a path of files or a source that ends, which each task reads
                when it starts, and again after a failure; or a function that gets a batch of the distinct keys of a
                batch, under the stream's names, and returns rows with the columns of ``on``.
            on: the columns by which rows match: of the same names in both, or a dict of columns of the stream and of the
                table. A null matches nothing.
            how: ``"left"`` to keep rows without a match, with nulls.
            schema: of what a function returns. If not given, it is called with a batch without rows, here.
            suffixes: what the columns of each side get behind a name that both sides have.
            parallelism: number of tasks.
            name: of the operator.

        Raises:
            OptionError: an argument has a value that it does not take.
            UnknownColumnError: a column that is not there.
            UnsupportedTypeError: a column of a type that cannot be a key, or whose rows pyarrow cannot choose.
            StreamError: columns of ``on`` with different types; two columns of the result with one name.
            UserFunctionError: the function failed without rows.
        """
        make, result = lookup_of(
            self.schema, table, on=on, how=how, schema=schema, suffixes=suffixes
        )
        return self._then("lookup", name, make, result, parallelism)

    def rebalance(self) -> DataStream:
        """Send batches in turn to all tasks of the next operator."""
        return self._shipped(Shipping.REBALANCE)

    def broadcast(self) -> BroadcastStream:
        """Send every row to all tasks of the next operator."""
        edges = (Edge(e.node, e.output, Shipping.BROADCAST) for e in self._edges)
        return BroadcastStream(self._graph, *edges)

    def connect(self, other: BroadcastStream) -> BroadcastConnectedStream:
        """Return this stream and a broadcast one, such as rules, for one function that gets all rows of it in each task.

        Raises:
            StreamError: the other one is no broadcast stream.
        """
        if not isinstance(other, BroadcastStream):
            remedy = 'clicks.connect(rules.broadcast()) · clicks.key_by("user").connect(names.key_by("user"))'
            raise wrong_stream("connect()", other, remedy)
        return BroadcastConnectedStream(self, other)

    def union(self, *others: DataStream) -> DataStream:
        """Return the rows of this and other streams of the same schema.

        Raises:
            StreamError: another schema.
        """
        edges = list(self._edges)
        for other in others:
            if not isinstance(other, DataStream):
                raise wrong_stream("union()", other, "stream.union(other_stream)")
            if not other.schema.equals(self.schema):
                raise StreamError(
                    "union() of streams with different schemas",
                    asked=", ".join(f"{f.name} {f.type}" for f in other.schema),
                    have=", ".join(f"{f.name} {f.type}" for f in self.schema),
                    remedy="map() one of them to the other's schema",
                )
            self._graph.absorb(other._graph)  # noqa: SLF001 - of this class
            edges += other._edges  # noqa: SLF001 - of this class
        return DataStream(self._graph, *edges)

    @takes(name=chosen_name)
    def sink(
        self,
        sink: Any,
        *,
        name: str | None = None,
        batch_rows: int | None = None,
        batch_bytes: int | str | None = None,
    ) -> StreamingJob:
        """Write the rows, and return the job: all sinks since the last start of a job of these streams.

        Args:
            sink: such as ``headgate.sink.FileSink``.
            name: of the operator, which also names the sink's state.
            batch_rows: most rows of a batch, for a sink that is slow: barriers may pass between batches.
            batch_bytes: most bytes of a batch, about, such as ``"64k"``.

        Raises:
            OptionError: an argument has a value that it does not take.
        """
        check_sink(sink, self.schema)
        make = partial(SinkOperator, sink)
        limits = batch_limits(batch_rows, batch_bytes)
        rows = self._then("sink", name, make, pa.schema([]), None, is_sink=True, limits=limits)
        return StreamingJob(self._graph, rows._edges[0].node)  # noqa: SLF001 - of this class

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raise an error that says what to write instead."""
            if name.startswith("_"):
                raise AttributeError(name)
            calls = [call for call in dir(type(self)) if not call.startswith("_")]
            kind = "keyed stream" if self._keys else "stream without keys"
            raise no_such_call(kind, name, calls)

    def _each_row_once(self) -> DataStream:
        """Return a stream whose rows are with one task each, also behind ``broadcast()``."""
        ways = {Shipping.BROADCAST: Shipping.FORWARD}
        edges = [replace(e, shipping=ways.get(e.shipping, e.shipping)) for e in self._edges]
        return DataStream(self._graph, *edges)

    def _shipped(self, shipping: Shipping) -> DataStream:
        return DataStream(self._graph, *(Edge(e.node, e.output, shipping) for e in self._edges))

    def _then(
        self,
        kind: str,
        name: str | None,
        make: Callable[[], Any],
        schema: pa.Schema,
        parallelism: int | None,
        side_outputs: Mapping[str, pa.Schema] | None = None,
        *,
        is_sink: bool = False,
        limits: BatchLimits = UNLIMITED,
    ) -> DataStream:
        node = self._graph.add(
            kind,
            name,
            schema=schema.remove_metadata(),
            inputs=self._edges,
            make=make,
            parallelism=parallelism,
            side_outputs=dict(side_outputs or {}),
            is_sink=is_sink,
            limits=limits,
        )
        return DataStream(self._graph, Edge(node))


class BroadcastStream(DataStream):
    """A stream of which each task of the next operator gets all rows. Returned by :meth:`DataStream.broadcast`."""


class BroadcastConnectedStream:
    """A stream and a broadcast one. Returned by ``connect()`` of a stream, with keys or without."""

    def __init__(self, rows: DataStream, broadcast: BroadcastStream) -> None:
        self._rows, self._broadcast = rows, broadcast

    @takes(schema=arrow_schema, **OPERATOR)
    def process(
        self,
        function: Callable[[], BroadcastProcessFunction] | BroadcastProcessFunction,
        *,
        schema: pa.Schema,
        side_outputs: Mapping[str, pa.Schema] | None = None,
        parallelism: int | None = None,
        name: str | None = None,
        batch_rows: int | None = None,
        batch_bytes: int | str | None = None,
    ) -> DataStream:
        """Apply a :class:`BroadcastProcessFunction`; arguments as for :meth:`DataStream.process`.

        Raises:
            OptionError: an argument has a value that it does not take.
            UnsupportedTypeError: a column of a type whose rows pyarrow cannot choose.
        """
        methods = ("open", "process", "process_broadcast", "close")
        check_process(function, BroadcastProcessFunction, methods)
        schema, outputs = schema.remove_metadata(), check_side_outputs(side_outputs)
        limits = batch_limits(batch_rows, batch_bytes)
        rows, broadcast = self._rows._edges, self._broadcast._edges  # noqa: SLF001 - of this file
        sides = two_sides(rows, broadcast)
        make = partial(BroadcastOperator, function, sides, schema, outputs)
        graph = self._rows._graph  # noqa: SLF001
        graph.absorb(self._broadcast._graph)  # noqa: SLF001
        stream = DataStream(graph, *edges_of_both(graph, rows, broadcast, sides))
        return stream._then(  # noqa: SLF001
            "broadcast", name, make, schema, parallelism, outputs, limits=limits
        )
