"""The stages of a job: operators that one task runs, and the edges to other tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headgate._arguments import whole_number
from headgate.errors import StreamError, UnsupportedTypeError
from headgate.key_groups import MAX_KEY_GROUPS
from headgate.source.api import Boundedness
from headgate.stream.graph.limits import BatchLimits, least
from headgate.stream.graph.nodes import Edge, Node, Shipping, StreamGraph
from headgate.stream.state.types import check_sent

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.source import Source

#: Stage and index of a task.
TaskId: TypeAlias = tuple[int, int]
#: Key groups of a job by default. State cannot be restored into another number.
MAX_PARALLELISM: Final = 128


@dataclass(frozen=True, slots=True)
class OutputEdge:
    """An exchange from a stage to another one.

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
        own_workers: number of workers that run it and no other stage; 0 for those of the job.
    """

    number: int
    parallelism: int
    head: Node
    chained: dict[tuple[str, str | None], list[Node]] = field(default_factory=dict)
    edges: list[OutputEdge] = field(default_factory=list)
    operators: list[Node] = field(default_factory=list)
    own_workers: int = 0

    @property
    def name(self) -> str:
        """The names of its operators."""
        return " -> ".join(node.uid for node in self.operators)

    @property
    def limits(self) -> BatchLimits:
        """The smallest limits of its operators: its tasks have a pause between all slow batches."""
        return least(node.limits for node in self.operators)


@dataclass(frozen=True, slots=True)
class JobGraph:
    """The stages of a job.

    Attributes:
        stages: by their numbers.
        max_parallelism: number of key groups.
        ends_open: True if the end of the sources closes no window, because a later run continues.
        watermark_interval: ms between two watermarks of a source that has rows.
        state_memory: bytes of keyed state of a worker that stay in memory; None for all.
    """

    stages: tuple[Stage, ...]
    max_parallelism: int = MAX_PARALLELISM
    ends_open: bool = False
    watermark_interval: int = 20
    state_memory: int | None = None

    @property
    def tasks(self) -> list[TaskId]:
        """Stage and index of every task."""
        return [(stage.number, at) for stage in self.stages for at in range(stage.parallelism)]

    @property
    def own_workers(self) -> int:
        """Number of the workers that stages have for themselves."""
        return sum(stage.own_workers for stage in self.stages)

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

    def replace_sources(
        self, change: Callable[[str, Source[Any, Any, Any]], Source[Any, Any, Any]]
    ) -> None:
        """Let the job read other sources. The graph of the streams, which may be started again, keeps its own.

        Args:
            change: returns what is read in place of a source, which it gets with its uid.
        """
        for stage in self.stages:
            if stage.head.source is not None:
                head = replace(stage.head, source=change(stage.head.uid, stage.head.source))
                stage.operators[stage.operators.index(stage.head)] = head
                stage.head = head

    def inputs_of(self, stage: int) -> list[tuple[Stage, int]]:
        """Return the stages that send to a stage, each with the position of the edge among its edges."""
        return [
            (sender, at)
            for sender in self.stages
            for at, edge in enumerate(sender.edges)
            if edge.stage == stage
        ]


def default_parallelism(workers: int | None, max_parallelism: int) -> int:
    """Return the number of tasks of operators for which neither they nor the job have one: a task for each worker.

    Args:
        workers: of the job; None or 0 if it has no number of them.
        max_parallelism: number of key groups.

    Raises:
        OptionError: ``max_parallelism`` is outside its limits.
    """
    whole_number("max_parallelism", max_parallelism, 1, MAX_KEY_GROUPS)
    return min(max(1, workers or 0), max_parallelism)


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
        StreamError: the parallelism of an operator is above the number of key groups, or below that of its workers.
        UnsupportedTypeError: rows that move to another task have a column of a type that cannot be sent.
    """
    whole_number("max_parallelism", max_parallelism, 1, MAX_KEY_GROUPS)
    whole_number("parallelism", parallelism, 1, max_parallelism)
    stages: list[Stage] = []
    stage_of: dict[str, Stage] = {}
    for node in _nodes_of(graph, job):
        own_parallelism = _own_parallelism(node)
        chosen = parallelism if own_parallelism is None else own_parallelism
        if chosen > max_parallelism:
            raise StreamError(
                f"parallelism={chosen} of {node.uid} is outside its limits",
                have=f"1 to max_parallelism={max_parallelism}",
                remedy=f"parallelism= from 1 to {max_parallelism}",
            )
        before = _chains_to(node, stage_of, own_parallelism)
        if before is not None:
            (edge,) = node.inputs
            before.chained.setdefault((edge.node.uid, edge.output), []).append(node)
            before.operators.append(node)
            stage_of[node.uid] = before
            continue
        stage = Stage(len(stages), chosen, node, operators=[node])
        if node.workers is not None:
            stage.own_workers = node.workers.number or chosen
        stages.append(stage)
        stage_of[node.uid] = stage
        for edge in node.inputs:
            _check_columns(edge, node)
            shipping = Shipping.REBALANCE if edge.shipping is Shipping.FORWARD else edge.shipping
            stage_of[edge.node.uid].edges.append(
                OutputEdge(
                    edge.node.uid, edge.output, stage.number, shipping, edge.keys, edge.schema
                )
            )
    return JobGraph(tuple(stages), max_parallelism)


def _check_columns(edge: Edge, node: Node) -> None:
    """Check that the rows of an edge can move to the tasks of an operator.

    Raises:
        UnsupportedTypeError: a column of a type that cannot be sent.
    """
    try:
        check_sent(edge.schema)
    except UnsupportedTypeError as error:
        error.details["from"], error.details["to"] = edge.node.uid, node.uid
        error.summary += f", from {edge.node.uid} to {node.uid}"
        raise


def _nodes_of(graph: StreamGraph, job: object) -> list[Node]:
    """Return the sinks of a job and all operators before them, in the order of the graph."""
    needed: set[int] = set()
    for node in reversed(graph.nodes):
        if (node.is_sink and node.job is job) or id(node) in needed:
            needed.add(id(node))
            needed.update(id(edge.node) for edge in node.inputs)
    return [node for node in graph.nodes if id(node) in needed]


def _own_parallelism(node: Node) -> int | None:
    """Return the number of tasks of an operator: a task for each of its own workers, if it has no other number.

    Raises:
        StreamError: it has more workers than tasks.
    """
    workers = None if node.workers is None else node.workers.number
    if workers is None or node.parallelism is None:
        return node.parallelism if workers is None else workers
    if workers > node.parallelism:
        raise StreamError(
            f"workers={workers} of {node.uid} are more than its tasks, and some would have nothing to do",
            have=f"parallelism={node.parallelism}",
            remedy=f"workers={node.parallelism} · parallelism={workers} · no parallelism=, for a task in each worker",
        )
    return node.parallelism


def _chains_to(
    node: Node, stage_of: Mapping[str, Stage], own_parallelism: int | None
) -> Stage | None:
    """Return the stage whose tasks can run an operator, or None if it needs an exchange."""
    if len(node.inputs) != 1 or node.inputs[0].shipping is not Shipping.FORWARD or node.workers:
        return None
    stage = stage_of[node.inputs[0].node.uid]
    return stage if own_parallelism in {None, stage.parallelism} else None
