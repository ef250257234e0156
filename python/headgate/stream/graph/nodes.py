"""The graph that a builder describes: operators, and the edges between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from headgate.errors import StreamError
from headgate.stream.graph.limits import UNLIMITED, BatchLimits

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.source import Source, WatermarkStrategy
    from headgate.stream.graph.call_rates import CallRate
    from headgate.stream.graph.operator import Operator


class Shipping(Enum):
    """The way of rows from the tasks of one operator to those of the next."""

    FORWARD = auto()
    """In the same task."""
    HASH = auto()
    """By the key group of each row's key."""
    REBALANCE = auto()
    """In turn to all tasks."""
    LOAD = auto()
    """To the task with the least queued work."""
    BROADCAST = auto()
    """To all tasks."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Input of an operator.

    Attributes:
        node: the operator that emits.
        output: name of its side output; None for the main one.
        shipping: how rows are sent.
        keys: the key columns with :attr:`Shipping.HASH`.
    """

    node: Node
    output: str | None = None
    shipping: Shipping = Shipping.FORWARD
    keys: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows."""
        return self.node.schema if self.output is None else self.node.side_outputs[self.output]


@dataclass(frozen=True, slots=True)
class OwnWorkers:
    """Workers that run the tasks of one operator, and of those chained behind it.

    Attributes:
        number: of workers; None for one for each task.
        resources: amount of each resource that such a worker takes, by its name in Spark.
    """

    number: int | None = None
    resources: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the resources as text; empty if there are none."""
        return ", ".join(f"{name}={amount:g}" for name, amount in self.resources.items())


@dataclass(eq=False, slots=True)
class Node:
    """One operator of the graph.

    Attributes:
        uid: names the operator's state in checkpoints; unique in the graph.
        schema: of the main output.
        inputs: at least one, unless it is a source.
        make: creates the operator of one task; None for a source.
        source: what a source reads.
        watermarks: of a source.
        parallelism: number of tasks; None for the job's.
        side_outputs: schemas by name.
        is_sink: True if it has no output.
        limits: of the batches that it gets.
        job: the same object for all sinks of a job; of no meaning for other operators.
        has_windows: True if watermarks close its windows.
        rate: of its calls.
        shared: loads what its tasks in a process share; None for nothing.
        workers: its own ones; None for those of the job.
    """

    uid: str
    schema: pa.Schema
    inputs: tuple[Edge, ...] = ()
    make: Callable[[], Operator] | None = None
    source: Source[Any, Any, Any] | None = None
    watermarks: WatermarkStrategy | None = None
    parallelism: int | None = None
    side_outputs: Mapping[str, pa.Schema] = field(default_factory=dict)
    is_sink: bool = False
    limits: BatchLimits = UNLIMITED
    job: object = None
    has_windows: bool = False
    rate: CallRate | None = None
    shared: Callable[[], Any] | None = None
    workers: OwnWorkers | None = None


class StreamGraph:
    """All operators of a job, in the order in which they were added: inputs come first."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._names: dict[str, int] = {}
        #: This graph and those that it has absorbed, which share its operators: streams of all of them may go on.
        self._same: list[StreamGraph] = [self]
        #: The job of new sinks.
        self.job = object()

    def add(self, kind: str, name: str | None, **fields: Any) -> Node:
        """Add an operator; without a name it is called by its kind and a number.

        Raises:
            StreamError: another operator has the name.
        """
        if name is None:
            number = self._names.get(kind, 0) + 1
            self._names[kind] = number
            name = f"{kind}-{number}"
        if any(node.uid == name for node in self.nodes):
            raise StreamError(
                f"two operators are named {name!r}",
                remedy="name= of each operator, which also names its state in checkpoints",
            )
        node = Node(uid=name, job=self.job, **fields)
        self.nodes.append(node)
        return node

    def close_job(self, job: object) -> None:
        """Let no more sinks belong to a job, which has started: those that follow are of a new one."""
        if self.job is job:
            new = object()
            for graph in self._same:
                graph.job = new

    def absorb(self, other: StreamGraph) -> None:
        """Take the operators of another graph, which is this one from now on."""
        if other.nodes is self.nodes:
            return
        uids = {node.uid for node in self.nodes}
        for node in other.nodes:
            if node.uid in uids:
                kind, _, digits = node.uid.rpartition("-")
                is_numbered = kind in self._names and digits.isdecimal()
                if not is_numbered:
                    raise StreamError(
                        f"two operators are named {node.uid!r}", remedy="name= of each operator"
                    )
                self._names[kind] += 1
                node.uid = f"{kind}-{self._names[kind]}"
            if node.job is other.job:
                node.job = self.job
            self.nodes.append(node)
            uids.add(node.uid)
        for kind, number in other._names.items():
            self._names[kind] = max(self._names.get(kind, 0), number)
        for graph in tuple(other._same):
            graph.nodes, graph._names, graph._same = self.nodes, self._names, self._same  # noqa: SLF001 - of this class
            graph.job = self.job
            self._same.append(graph)
