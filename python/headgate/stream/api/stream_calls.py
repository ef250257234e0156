"""The base of streams: what their calls need to add operators to the job's graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headgate.stream.graph.limits import UNLIMITED, BatchLimits
from headgate.stream.graph.nodes import Edge, Node, OwnWorkers, StreamGraph

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.stream.graph.call_rates import CallRate

#: The class of the streams that calls return.
StreamT = TypeVar("StreamT", bound="StreamCalls[Any]")


class StreamCalls(ABC, Generic[StreamT]):
    """A stream, as the calls see it that other files add to it.

    Args:
        graph: of the job.
        edges: the outputs of operators that have the rows.
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

    @abstractmethod
    def _of(self, *edges: Edge) -> StreamT:
        """Return the stream of some outputs of this graph."""

    def _add(
        self,
        kind: str,
        name: str | None,
        make: Callable[[], Any],
        schema: pa.Schema,
        parallelism: int | None = None,
        side_outputs: Mapping[str, pa.Schema] | None = None,
        *,
        inputs: Sequence[Edge] | None = None,
        is_sink: bool = False,
        limits: BatchLimits = UNLIMITED,
        rate: CallRate | None = None,
        shared: Callable[[], Any] | None = None,
        workers: OwnWorkers | None = None,
    ) -> Node:
        """Add an operator behind this stream, or behind other outputs."""
        return self._graph.add(
            kind,
            name,
            schema=schema.remove_metadata(),
            inputs=self._edges if inputs is None else tuple(inputs),
            make=make,
            parallelism=parallelism,
            side_outputs=dict(side_outputs or {}),
            is_sink=is_sink,
            limits=limits,
            rate=rate,
            shared=shared,
            workers=workers,
        )

    def _then(self, *arguments: Any, **options: Any) -> StreamT:
        """Add an operator as :meth:`_add` does, and return the stream of its rows."""
        return self._of(Edge(self._add(*arguments, **options)))
