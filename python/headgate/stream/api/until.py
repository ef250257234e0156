"""Runs that read what is there, and then end; the next run continues with what is new."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from headgate.errors import OptionError
from headgate.stream.api.event_time import check_watermarks

if TYPE_CHECKING:
    from headgate.stream.graph.stages import JobGraph

Until: TypeAlias = Literal["now"]


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
        if stage.head.source is not None:
            # The graph of the streams, which may be started again, keeps its source.
            head = replace(stage.head, source=stage.head.source.until_now())
            stage.operators[stage.operators.index(stage.head)] = head
            stage.head = head
    return replace(graph, ends_open=True)
