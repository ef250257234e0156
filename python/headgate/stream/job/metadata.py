"""The content of a complete checkpoint.

::

    checkpoint        its id
    max_parallelism   number of key groups
    savepoint         in the log only: the folder that has the rest
    is_initial        true if no job has written it: a job begins with its state
    has_ended         true if all sources had ended
    sinks             uid -> name of each sink
    name              of the job
    operators         uid -> parallelism; state: folder and number of each task's snapshot, or null;
                      committables: of its sink, each with the checkpoint that it was made for; watermark: of windows;
                      left_out: true if it had state, and the job had ended
    sources           uid -> name: of the source; enumerator: its state; version: of the split serializer; splits: id and bytes of each
    stages            uid of the first operator -> tasks: rows in flight of each; inputs: for the edges to it, in the order
                      of the channels, operator, side output, stage and number of the senders; outputs: operator, side
                      output and stage of the edges from it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headgate.stream.job.messages import from_base64
from headgate.stream.state.locations import relative

if TYPE_CHECKING:
    from headgate.stream.graph.stages import JobGraph, TaskId


def metadata(
    graph: JobGraph,
    checkpoint: int,
    states: Mapping[TaskId, Mapping[str, Any]],
    enumerators: Mapping[str, str],
    after: int,
    base: str,
) -> dict[str, Any]:
    """Return the content of a complete checkpoint.

    Args:
        graph: the job.
        checkpoint: its id.
        states: what each task acknowledged with.
        enumerators: state of each source's enumerator, by uid.
        after: the last complete checkpoint; committables that were made for it or earlier are committed.
        base: path or URI of the folder that paths below it are relative to.
    """
    operators: dict[str, Any] = {}
    sources: dict[str, Any] = {}
    stages: dict[str, Any] = {}
    for stage in graph.stages:
        parts = [states[stage.number, at] for at in range(stage.parallelism)]
        stages[stage.head.uid] = {
            "tasks": [_channels(part.get("channels"), base) for part in parts],
            "inputs": [
                [
                    sender.edges[at].operator,
                    sender.edges[at].output,
                    sender.head.uid,
                    sender.parallelism,
                ]
                for sender, at in graph.inputs_of(stage.number)
            ],
            "outputs": [
                [edge.operator, edge.output, graph.stages[edge.stage].head.uid]
                for edge in stage.edges
            ],
        }
        for node in stage.operators:
            if node.source is not None:
                splits = [split for part in parts for split in part["splits"][1]]
                version = parts[0]["splits"][0]
                enumerator = enumerators[node.uid]
                sources[node.uid] = {
                    "name": node.source.name,
                    "enumerator": enumerator,
                    "version": version,
                    "splits": splits,
                }
                continue
            entries = [part["operators"].get(node.uid, {}) for part in parts]
            committables = [
                committable
                for entry in entries
                for committable in entry.get("committables", ())
                if committable[0] > after
            ]
            is_left_out = any(entry.get("left_out") for entry in entries)
            operators[node.uid] = ({"left_out": True} if is_left_out else {}) | {
                "parallelism": stage.parallelism,
                "state": [_relative(entry.get("state"), base) for entry in entries],
                "committables": committables,
                "watermark": _least([entry.get("watermark") for entry in entries]),
            }
    return {
        "checkpoint": checkpoint,
        "max_parallelism": graph.max_parallelism,
        "operators": operators,
        "sources": sources,
        "stages": stages,
    }


def names(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the sources and sinks of a checkpoint, by uid, as far as it has them."""
    sources = {uid: entry["name"] for uid, entry in fields["sources"].items() if "name" in entry}
    sinks: dict[str, str] = fields.get("sinks", {})
    job = {"name=": fields["name"]} if "name" in fields else {}
    return sources | sinks | job


def enumerator_of(fields: Mapping[str, Any] | None, uid: str) -> bytes | None:
    """Return the state of a source's enumerator; None for a new one."""
    source = None if fields is None else fields["sources"].get(uid)
    return None if source is None else from_base64(source["enumerator"])


def committables_of(fields: Mapping[str, Any], uid: str) -> list[bytes]:
    """Return what a checkpoint has for the committer of a sink."""
    entry = fields["operators"].get(uid)
    return [] if entry is None else [from_base64(body) for _, body in entry["committables"]]


def _relative(snapshot: Any, base: str) -> Any:
    """Return a snapshot with its folder relative to that of the checkpoint, so that this one can be moved."""
    if snapshot is None:
        return None
    folder, number = snapshot
    return [relative(folder, base), number]


def _channels(channels: Any, base: str) -> Any:
    """Return a task's rows in flight with the path relative to that of the checkpoint."""
    if channels is None:
        return None
    path, size, crc32 = channels["file"]
    return {**channels, "file": [relative(path, base), size, crc32]}


def _least(watermarks: Sequence[int | None]) -> int | None:
    """Return the lowest watermark; None if a task has none."""
    times = [time for time in watermarks if time is not None]
    return min(times) if len(times) == len(watermarks) and times else None
