"""The sources that close the windows of an operator, and runs that read what is there and then end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from headgate.errors import OptionError, StreamError
from headgate.source.api import Boundedness

if TYPE_CHECKING:
    from headgate.stream.graph.nodes import Edge, Node
    from headgate.stream.graph.stages import JobGraph

Until: TypeAlias = Literal["now"]


def check_watermarks(operator: str, inputs: Sequence[Edge], *, stays_open: bool = False) -> None:
    """Check that windows can close.

    Args:
        operator: name of the operator with the windows.
        inputs: of the operator.
        stays_open: True if the end of a source closes no window.

    Raises:
        StreamError: a source that never ends makes no watermarks, so that no window would ever close.
    """
    sources = list(_sources(inputs))
    without = [node for node in sources if not _makes_watermarks(node)]
    # A source that is idle without rows holds nothing back, but moves nothing either.
    silent = [
        node for node in without if node.watermarks is None or not node.watermarks.idle_timeout
    ]
    blocking = without if len(without) == len(sources) else silent
    for node in blocking:
        source = node.source
        if source is None or not (stays_open or source.boundedness is not Boundedness.BOUNDED):
            continue
        raise StreamError(
            f"no window of {operator} would ever close: {source.name} makes no watermarks"
            + (" and the run leaves windows open" if stays_open else " and never ends"),
            asked=f"window() behind stream({node.uid})",
            remedy="stream(source, watermarks=WatermarkStrategy.for_bounded_out_of_orderness(5000)"
            '.with_timestamp_assigner("at"))',
            details={"operator": operator, "source": node.uid},
        )


def _makes_watermarks(node: Node) -> bool:
    if node.source is not None and node.source.emits_watermarks:
        return True
    return node.watermarks is not None and node.watermarks.generator is not None


def _sources(inputs: Sequence[Edge]) -> Iterator[Node]:
    waiting, visited = [edge.node for edge in inputs], set()
    while waiting:
        node = waiting.pop()
        if id(node) not in visited:
            visited.add(id(node))
            waiting += [edge.node for edge in node.inputs]
            if node.source is not None:
                yield node


def until_now(graph: JobGraph, until: Until, checkpoint: str | None) -> JobGraph:
    """Return a job whose sources end when they have read what is there at their start.

    Args:
        graph: the stages; they get sources that end.
        until: the option.
        checkpoint: the folder that says what was read before.

    Raises:
        OptionError: the option has another value, there is no folder, or a source cannot tell what is there now.
        StreamError: windows over sources without watermarks, which such a run never closes.
    """
    if until != "now":
        raise OptionError(f"until={until!r} is unknown", have='"now" or None', remedy='until="now"')
    if checkpoint is None:
        raise OptionError(
            'until="now" needs a folder that says what earlier runs have read',
            asked="start(until='now', checkpoint=None)",
            remedy='start(until="now", checkpoint="folder")',
        )
    for stage in graph.stages:
        for node in stage.operators:
            if node.has_windows:
                check_watermarks(node.uid, node.inputs, stays_open=True)
    graph.replace_sources(lambda _uid, source: source.until_now())
    return replace(graph, ends_open=True)
