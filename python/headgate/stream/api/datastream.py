"""Streams of rows, as Flink's DataStream names them: each call adds an operator to the job's graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

import pyarrow as pa

from headgate._arguments import arrow_schema, calls, one_of, takes, text
from headgate.errors import StreamError
from headgate.sink.api import chosen_name
from headgate.stream.api.async_sinks import AsyncSinkCalls
from headgate.stream.api.checks import (
    OPERATOR,
    OWN,
    SHARED,
    SOURCE,
    check_keys,
    check_predicate,
    check_process,
    check_side_outputs,
    check_sink,
    chosen_workers,
    no_such_call,
    wrong_stream,
)
from headgate.stream.api.frames import FrameCalls, source_of
from headgate.stream.api.job import StreamingJob
from headgate.stream.api.joins import JoinCalls
from headgate.stream.api.lookups import LookupCalls
from headgate.stream.api.two_streams import check_same_keys, edges_of_both, two_sides
from headgate.stream.api.updating import UpdateCalls
from headgate.stream.api.windows import WindowCalls
from headgate.stream.graph.functions import (
    BroadcastProcessFunction,
    CoProcessFunction,
    ProcessFunction,
)
from headgate.stream.graph.limits import batch_limits
from headgate.stream.graph.nodes import Edge, Shipping, StreamGraph
from headgate.stream.operators.connected import BroadcastOperator, CoProcessOperator
from headgate.stream.operators.process import ProcessOperator
from headgate.stream.operators.results import learned_schema
from headgate.stream.operators.sinks import SinkOperator
from headgate.stream.operators.stateless import FilterOperator, MapOperator
from headgate.stream.state.groups import check_keys as check_key_types
from headgate.stream.state.types import check_columns as check_types
from headgate.stream.state.types import column_index, no_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headgate.source import Source, WatermarkStrategy
    from headgate.stream.graph.context import FunctionRows
    from headgate.stream.graph.operator import Operator


@takes(**SOURCE)
def stream(
    source: Source[Any, Any, Any] | DataFrame,
    *,
    watermarks: WatermarkStrategy | None = None,
    parallelism: int | None = None,
    name: str | None = None,
) -> DataStream:
    """Return the stream of a source's rows.

    Args:
        source: emits record batches, and has a schema. Or a DataFrame of a classic session of Spark, with rows that end: the
            workers read its files, if they are sure to get Spark's rows; else it is written once, below the checkpoint.
        watermarks: makes the watermarks; None for those that the source emits itself.
        parallelism: number of readers; None for the job's.
        name: of the source in checkpoints and reports.

    Raises:
        OptionError: an argument has a value that it does not take.
        StreamError: the source has no schema.
        UnknownColumnError: the source has no column of the name by which the watermarks find times.
        NotBuiltError: the DataFrame belongs to Spark Connect.
        UnsupportedTypeError: the DataFrame has a column of a type that cannot be sent, or that column has no times.

    Example:
        >>> import pyarrow as pa
        >>> from headgate.source import NumberSequenceSource
        >>> from headgate.stream import stream
        >>> numbers = stream(NumberSequenceSource(0, 9), parallelism=1)
        >>> numbers.schema.names
        ['id']
    """
    source = source_of(source)
    schema = source.schema
    if schema is None:
        raise StreamError(
            f"{source.name} has no schema, so its records are not Arrow batches",
            remedy="a source of record batches with a schema",
        )
    if watermarks is not None and watermarks.assigner is not None:
        watermarks.assigner.check(schema)
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


class DataStream(
    WindowCalls["DataStream"],
    LookupCalls["DataStream"],
    AsyncSinkCalls["DataStream"],
    FrameCalls["DataStream"],
):
    """A stream of rows. Each method returns a new stream, and leaves this one as it is.

    Returned by :func:`stream` and its methods.
    """

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

    @takes(schema=arrow_schema, **SHARED, **OWN, **OPERATOR)
    def process(
        self,
        function: Callable[[], ProcessFunction] | ProcessFunction,
        *,
        schema: pa.Schema,
        side_outputs: Mapping[str, pa.Schema] | None = None,
        shared: Callable[[], Any] | None = None,
        workers: int | None = None,
        resources: Mapping[str, float] | None = None,
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
            shared: loads ``context.shared`` once for all tasks of a process; see :meth:`map_async`.
            workers: processes of its own, or Spark tasks; see :meth:`map_async`.
            resources: what each of these takes for itself on Spark; see :meth:`map_async`.
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
        own_workers = chosen_workers(workers, resources)
        more: dict[str, Any] = {"limits": limits, "shared": shared, "workers": own_workers}
        return self._then("process", name, make, schema, parallelism, outputs, **more)

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
        edges = [Edge(e.node, e.output, Shipping.HASH, keys) for e in self._edges]
        return KeyedStream(self._graph, keys, *edges)

    @takes(by=one_of("turn", "load"))
    def rebalance(self, *, by: Literal["turn", "load"] = "turn") -> DataStream:
        """Send each batch to one task of the next operator.

        Args:
            by: ``"turn"`` for all tasks in turn: a slow one stops the others once its queue is full. ``"load"`` for the
                task that has read the most of what it was sent, so that others get the batches that a slow one would get.

        Raises:
            OptionError: another ``by``.
        """
        return self._shipped(Shipping.LOAD if by == "load" else Shipping.REBALANCE)

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

    def _shipped(self, shipping: Shipping) -> DataStream:
        return self._of(*(Edge(e.node, e.output, shipping) for e in self._edges))

    def _of(self, *edges: Edge) -> DataStream:
        return DataStream(self._graph, *edges)


class BroadcastStream(DataStream):
    """A stream of which each task of the next operator gets all rows. Returned by :meth:`DataStream.broadcast`."""


class _TwoStreams:
    """Two streams of which one function gets the rows."""

    def __init__(self, first: DataStream, second: DataStream) -> None:
        self._first, self._second = first, second

    def _apply(
        self,
        call: str,
        operator: Callable[..., Operator],
        function: Any,
        schema: pa.Schema,
        side_outputs: Mapping[str, pa.Schema] | None,
        **options: Any,
    ) -> DataStream:
        """Return what an operator of both streams makes of them; options are those of any operator."""
        schema, outputs = schema.remove_metadata(), check_side_outputs(side_outputs)
        first, second = self._first._edges, self._second._edges  # noqa: SLF001 - of this file
        sides = two_sides(first, second)
        make = partial(operator, function, sides, schema, outputs)
        graph = self._first._graph  # noqa: SLF001 - of this file
        graph.absorb(self._second._graph)  # noqa: SLF001 - of this file
        both = edges_of_both(graph, first, second, sides)
        return self._first._then(  # noqa: SLF001 - of this file
            call, make=make, schema=schema, side_outputs=outputs, inputs=both, **options
        )


class BroadcastConnectedStream(_TwoStreams):
    """A stream and a broadcast one. Returned by ``connect()`` of a stream, with keys or without."""

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
        limits = batch_limits(batch_rows, batch_bytes)
        options = {"name": name, "parallelism": parallelism, "limits": limits}
        return self._apply(
            "broadcast", BroadcastOperator, function, schema, side_outputs, **options
        )


class KeyedStream(DataStream, JoinCalls["DataStream"], UpdateCalls["DataStream"]):
    """A stream whose rows are with the task that owns their key. Returned by :meth:`DataStream.key_by`."""

    def __init__(self, graph: StreamGraph, keys: Sequence[str], *edges: Edge) -> None:
        super().__init__(graph, *edges)
        self._keys = tuple(keys)

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of the key columns."""
        return self._keys

    @overload
    def connect(self, other: KeyedStream) -> ConnectedStreams: ...
    @overload
    def connect(self, other: BroadcastStream) -> BroadcastConnectedStream: ...
    def connect(self, other: Any) -> Any:
        """Return this stream and another one for one function with state by key.

        The other one has keys of the same types, and both share their state; or it is a broadcast one.

        Raises:
            StreamError: keys of other types, or none.
        """
        if isinstance(other, BroadcastStream):
            return super().connect(other)
        if not isinstance(other, KeyedStream):
            raise wrong_stream(
                "connect()", other, 'clicks.key_by("user").connect(names.key_by("user"))'
            )
        return ConnectedStreams(self, other)


class ConnectedStreams(_TwoStreams):
    """Two keyed streams. Returned by :meth:`KeyedStream.connect`."""

    def __init__(self, first: KeyedStream, second: KeyedStream) -> None:
        check_same_keys("connect()", first._edges, second._edges)  # noqa: SLF001 - of this file
        super().__init__(first, second)

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
        limits = batch_limits(batch_rows, batch_bytes)
        options = {"name": name, "parallelism": parallelism, "limits": limits}
        return self._apply("connect", CoProcessOperator, function, schema, side_outputs, **options)
