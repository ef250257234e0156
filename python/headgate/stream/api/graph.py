"""The graph that a builder describes: operators, and the edges between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from headgate._arguments import whole_number
from headgate._matches import close_matches
from headgate.errors import StreamError, UnknownColumnError
from headgate.key_groups import MAX_KEY_GROUPS
from headgate.source.api import Boundedness
from headgate.stream.operators.limits import UNLIMITED, BatchLimits

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.source import Source, WatermarkStrategy
    from headgate.stream.operators.operator import Operator

#: Key groups of a job by default. State cannot be restored into another number.
MAX_PARALLELISM: Final = 128


class Shipping(Enum):
    """How rows go from the tasks of one operator to those of the next."""

    FORWARD = auto()
    """In the same task."""
    HASH = auto()
    """By the key group of each row's key."""
    REBALANCE = auto()
    """In turn to all tasks."""
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
        own = {node.uid for node in self.nodes}
        for node in other.nodes:
            if node.uid in own:
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
            own.add(node.uid)
        for kind, number in other._names.items():
            self._names[kind] = max(self._names.get(kind, 0), number)
        for graph in tuple(other._same):
            graph.nodes, graph._names, graph._same = self.nodes, self._names, self._same  # noqa: SLF001 - of this class
            graph.job = self.job
            self._same.append(graph)


@dataclass(frozen=True, slots=True)
class OutputEdge:
    """What a stage sends to another one.

    Attributes:
        operator: uid of the operator that emits.
        output: name of its side output; None for the main one.
        stage: number of the stage that receives.
        shipping: how rows are sent.
        keys: the key columns with :attr:`Shipping.HASH`.
        schema: of the rows.
    """

    operator: str
    output: str | None
    stage: int
    shipping: Shipping
    keys: tuple[str, ...]
    schema: pa.Schema


@dataclass(slots=True)
class Stage:
    """Operators that run in one task, without an exchange between them.

    Attributes:
        number: position in the job.
        parallelism: number of tasks.
        head: the operator that gets the input.
        chained: operators by the uid of the one before and its output: the rest of the task.
        edges: what the tasks send to other stages.
        operators: all operators, inputs first.
    """

    number: int
    parallelism: int
    head: Node
    chained: dict[tuple[str, str | None], list[Node]] = field(default_factory=dict)
    edges: list[OutputEdge] = field(default_factory=list)
    operators: list[Node] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The names of its operators."""
        return " -> ".join(node.uid for node in self.operators)


@dataclass(frozen=True, slots=True)
class JobGraph:
    """The stages of a job.

    Attributes:
        stages: by their numbers.
        max_parallelism: number of key groups.
        ends_open: True if the end of the sources closes no window, because a later run continues.
    """

    stages: tuple[Stage, ...]
    max_parallelism: int = MAX_PARALLELISM
    ends_open: bool = False

    @property
    def tasks(self) -> list[tuple[int, int]]:
        """Stage and index of every task."""
        return [(stage.number, at) for stage in self.stages for at in range(stage.parallelism)]

    @property
    def sources(self) -> dict[str, Source[Any, Any, Any]]:
        """The sources of the job, by uid."""
        heads = [stage.head for stage in self.stages]
        return {head.uid: head.source for head in heads if head.source is not None}

    @property
    def is_bounded(self) -> bool:
        """True if all sources end by themselves, and a later run has nothing new of them."""
        all_end = all(source.boundedness is Boundedness.BOUNDED for source in self.sources.values())
        return all_end and not self.ends_open

    def inputs_of(self, stage: int) -> list[tuple[Stage, int]]:
        """Return the stages that send to a stage, each with the position of the edge among its edges."""
        return [
            (sender, at)
            for sender in self.stages
            for at, edge in enumerate(sender.edges)
            if edge.stage == stage
        ]


def plan(
    graph: StreamGraph, job: object, parallelism: int, max_parallelism: int = MAX_PARALLELISM
) -> JobGraph:
    """Cut a job into stages: an operator runs in the task of its input if rows need not move.

    Args:
        graph: all operators.
        job: of the sinks; operators of which no row reaches one of them are left out.
        parallelism: of operators that have none of their own.
        max_parallelism: number of key groups.

    Raises:
        OptionError: a number is outside its limits.
        StreamError: the parallelism of an operator is above the number of key groups.
    """
    whole_number("max_parallelism", max_parallelism, 1, MAX_KEY_GROUPS)
    whole_number("parallelism", parallelism, 1, max_parallelism)
    stages: list[Stage] = []
    stage_of: dict[str, Stage] = {}
    for node in _nodes_of(graph, job):
        chosen = parallelism if node.parallelism is None else node.parallelism
        if chosen > max_parallelism:
            raise StreamError(
                f"parallelism={chosen} of {node.uid} is outside its limits",
                have=f"1 to max_parallelism={max_parallelism}",
                remedy=f"parallelism= from 1 to {max_parallelism}",
            )
        before = _chains_to(node, stage_of, chosen if node.parallelism is not None else None)
        if before is not None:
            (edge,) = node.inputs
            before.chained.setdefault((edge.node.uid, edge.output), []).append(node)
            before.operators.append(node)
            stage_of[node.uid] = before
            continue
        stage = Stage(len(stages), chosen, node, operators=[node])
        stages.append(stage)
        stage_of[node.uid] = stage
        for edge in node.inputs:
            shipping = Shipping.REBALANCE if edge.shipping is Shipping.FORWARD else edge.shipping
            stage_of[edge.node.uid].edges.append(
                OutputEdge(
                    edge.node.uid, edge.output, stage.number, shipping, edge.keys, edge.schema
                )
            )
    return JobGraph(tuple(stages), max_parallelism)


def _nodes_of(graph: StreamGraph, job: object) -> list[Node]:
    """Return the sinks of a job and all operators before them, in the order of the graph."""
    needed: set[int] = set()
    for node in reversed(graph.nodes):
        if (node.is_sink and node.job is job) or id(node) in needed:
            needed.add(id(node))
            needed.update(id(edge.node) for edge in node.inputs)
    return [node for node in graph.nodes if id(node) in needed]


def _chains_to(
    node: Node, stage_of: Mapping[str, Stage], own_parallelism: int | None
) -> Stage | None:
    """Return the stage whose tasks can run an operator, or None if it needs an exchange."""
    if len(node.inputs) != 1 or node.inputs[0].shipping is not Shipping.FORWARD:
        return None
    stage = stage_of[node.inputs[0].node.uid]
    return stage if own_parallelism in {None, stage.parallelism} else None


def check_columns(names: Sequence[str], schema: pa.Schema) -> None:
    """Check that a schema has each column once.

    Raises:
        UnknownColumnError: it has not.
    """
    for name in names:
        if len(schema.get_all_field_indices(name)) != 1:
            near = close_matches(name, schema.names)
            raise UnknownColumnError(
                f"the stream has no single column {name!r}",
                asked=f"key_by({name!r})",
                have=", ".join(schema.names),
                remedy=" · ".join(f"key_by({one!r})" for one in near),
            )
