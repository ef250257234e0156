"""Streams whose rows are with the task that owns their key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from headgate._arguments import arrow_schema, takes
from headgate.stream.api.checks import (
    OPERATOR,
    check_process,
    check_side_outputs,
    wrong_stream,
)
from headgate.stream.api.datastream import (
    BroadcastConnectedStream,
    BroadcastStream,
    DataStream,
)
from headgate.stream.api.joins import join_of
from headgate.stream.api.two_streams import check_same_keys, edges_of_both, two_sides
from headgate.stream.api.updating import UpdatingStream
from headgate.stream.graph.functions import CoProcessFunction
from headgate.stream.graph.limits import batch_limits
from headgate.stream.operators.connected import CoProcessOperator

if TYPE_CHECKING:
    from datetime import timedelta

    import pyarrow as pa
    import pyarrow.compute as pc

    from headgate.stream.graph.nodes import Edge, StreamGraph
    from headgate.stream.operators.joining import How
    from headgate.stream.state.descriptors import StateTtlConfig
    from headgate.stream.windows.kinds import SlidingWindow, TumblingWindow


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
    def join(
        self,
        other: KeyedStream,
        *,
        within: timedelta
        | str
        | tuple[timedelta | str, timedelta | str | pc.Expression]
        | None = None,
        window: TumblingWindow | SlidingWindow | None = None,
        as_of: str | tuple[str, str] | None = None,
        time: str | tuple[str, str] | None = None,
        how: How = "inner",
        ttl: StateTtlConfig | timedelta | str | None = None,
        suffixes: tuple[str, str] = ("", "_right"),
        parallelism: int | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Join rows of this stream and another one that have one key. A null key matches nothing.

        The result has all columns of this stream, and behind them those of the other one but its keys. At most one of three
        arguments says which rows of a key match:

        - ``within=``: those whose times are near each other, as in Flink's interval join. State has the rows that a match may
          still come for. The watermark behind the join is later by the greater bound, so that the times of both sides are
          event times there.
        - ``window=``: those that are in one window, when it is over. The result ends with ``window_start`` and ``window_end``.
        - ``as_of=``: each row of this stream with the version of its key in the other one that was valid at its time: the
          last one up to it. A row waits for the watermark, and so for its version.
        - None of them: all, whenever they come. State has all rows, or those of ``ttl``. If it is an outer join, or a stream
          has changes, the result has changes: its last column is ``_change_type``, with ``insert`` and ``delete``.

        With times, the side outputs ``"late"`` and ``"late_right"`` have the rows of each side that came too late to match:
        behind the watermark, or behind all of their windows. A version is never late: it is there for rows that follow.

        Args:
            other: keyed by columns of the same types.
            within: the time of the other row minus that of this one: from where to where, both inclusive, such as ``("-1h",
                "0s")``. ``"1h"`` is an hour either way. The end may be a column of this stream that has the last time itself:
                ``("0s", pc.field("expires"))``.
            window: the kind of windows.
            as_of: the column of event times in both streams; a pair if they have different ones.
            time: the column of event times for ``within=`` and ``window=``; a pair if the other stream has another one.
            how: ``"inner"``, ``"left"``, ``"right"`` or ``"full"``: the side whose rows without a match are emitted too, with
                nulls for the other: when none can come, or without times at once, and deleted when one comes. ``"inner"`` or
                ``"left"`` with ``as_of=``.
            ttl: time to live of rows in state without times: a config or a length of time.
            suffixes: what the columns of each side get behind a name that both sides have.
            parallelism: number of tasks.
            name: of the operator.

        Raises:
            OptionError: an argument has a value that it does not take.
            UnknownColumnError: a column that a stream does not have.
            UnsupportedTypeError: a column of times that has none, or one whose rows pyarrow cannot choose.
            StreamError: no keys, or keys of other types; two columns of the result with one name; times over a source that
                never ends and makes no watermarks; changes in a join with times; upserts.
        """
        if not isinstance(other, KeyedStream):
            raise wrong_stream("join()", other, 'clicks.key_by("user").join(names.key_by("user"))')
        join = join_of(
            self._edges,
            other._edges,
            within=within,
            window=window,
            as_of=as_of,
            time=time,
            how=how,
            ttl=ttl,
            suffixes=suffixes,
            name=name,
        )
        self._graph.absorb(other._graph)
        both = DataStream(
            self._graph, *edges_of_both(self._graph, self._edges, other._edges, join.sides)
        )
        result = both._then("join", name, join.make, join.schema, parallelism, join.late)  # noqa: SLF001 - of this class
        result._edges[0].node.has_windows = join.has_watermarks  # noqa: SLF001 - of this class
        return result

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


class ConnectedStreams:
    """Two keyed streams. Returned by :meth:`KeyedStream.connect`."""

    def __init__(self, first: KeyedStream, second: KeyedStream) -> None:
        check_same_keys("connect()", first._edges, second._edges)  # noqa: SLF001 - of this file
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
        first, second = self._first._edges, self._second._edges  # noqa: SLF001 - of this file
        sides = two_sides(first, second)
        make = partial(CoProcessOperator, function, sides, schema, outputs)
        graph = self._first._graph  # noqa: SLF001
        graph.absorb(self._second._graph)  # noqa: SLF001
        both = DataStream(graph, *edges_of_both(graph, first, second, sides))
        return both._then("connect", name, make, schema, parallelism, outputs, limits=limits)  # noqa: SLF001
