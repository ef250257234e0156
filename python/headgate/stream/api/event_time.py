"""The sources whose watermarks close the windows of an operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headgate.errors import StreamError
from headgate.source.api import Boundedness

if TYPE_CHECKING:
    from headgate.stream.graph.nodes import Edge, Node


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
    silent = [one for one in without if one.watermarks is None or not one.watermarks.idle_timeout]
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
    own = node.source is not None and node.source.emits_watermarks
    return own or (node.watermarks is not None and node.watermarks.generator is not None)


def _sources(inputs: Sequence[Edge]) -> Iterator[Node]:
    waiting, found = [edge.node for edge in inputs], set()
    while waiting:
        node = waiting.pop()
        if id(node) not in found:
            found.add(id(node))
            waiting += [edge.node for edge in node.inputs]
            if node.source is not None:
                yield node
