"""What a complete checkpoint consists of, and what each task of a new attempt gets of it.

::

    checkpoint        its id
    max_parallelism   number of key groups
    savepoint         in the log only: the folder that has the rest
    operators         uid -> parallelism; state: folder and number of each task's snapshot, or null;
                      committables: of its sink, each with the checkpoint that it was made for
    sources           uid -> enumerator: its state; version: of the split serializer; splits: id and bytes of each
    stages            uid of the first operator -> tasks: rows in flight of each; inputs: for the edges to it, in the order
                      of the channels, operator, side output, stage and number of the senders; outputs: operator, side
                      output and stage of the edges from it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headgate.errors import CheckpointError
from headgate.key_groups import key_group_range
from headgate.stream.api.graph import Shipping
from headgate.stream.job.messages import data

if TYPE_CHECKING:
    from headgate.stream.api.graph import JobGraph, Stage

#: Stage and index of a task.
TaskId = tuple[int, int]


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
                sources[node.uid] = {"enumerator": enumerator, "version": version, "splits": splits}
                continue
            found = [part["operators"].get(node.uid, {}) for part in parts]
            committables = [
                one for part in found for one in part.get("committables", ()) if one[0] > after
            ]
            operators[node.uid] = {
                "parallelism": stage.parallelism,
                "state": [_relative(part.get("state"), base) for part in found],
                "committables": committables,
            }
    return {
        "checkpoint": checkpoint,
        "max_parallelism": graph.max_parallelism,
        "operators": operators,
        "sources": sources,
        "stages": stages,
    }


def check_restorable(graph: JobGraph, fields: Mapping[str, Any], *, allow_dropped: bool) -> None:
    """Check that a job can continue from a checkpoint.

    Raises:
        CheckpointError: another number of key groups, or state of an operator that the job does not have.
    """
    if fields["max_parallelism"] != graph.max_parallelism:
        raise CheckpointError(
            "the checkpoint has another number of key groups",
            asked=f"max_parallelism={graph.max_parallelism}",
            have=f"max_parallelism={fields['max_parallelism']}",
            remedy=f"max_parallelism={fields['max_parallelism']}",
        )
    known = {node.uid for stage in graph.stages for node in stage.operators}
    with_state = {uid for uid, one in fields["operators"].items() if any(one["state"])}
    dropped = (with_state | set(fields["sources"])) - known
    if dropped and not allow_dropped:
        raise CheckpointError(
            f"the checkpoint has state of operators that the job does not have: {', '.join(sorted(dropped))}",
            have=", ".join(sorted(known)),
            remedy="name= of the operators as before · allow_dropped_state=True",
        )


def restored_tasks(
    graph: JobGraph, stage: Stage, fields: Mapping[str, Any] | None, base: str
) -> list[dict[str, Any]]:
    """Return for each task of a stage the snapshots and splits that it continues from.

    The parallelism may be another than that of the checkpoint: a task gets the snapshots that have its key groups.
    """
    tasks: list[dict[str, Any]] = [
        {"state": {}, "splits": [0, []], "in_flight": None} for _ in range(stage.parallelism)
    ]
    if fields is None:
        return tasks
    for at, task in enumerate(tasks):
        task["in_flight"] = in_flight(graph, stage, at, fields, base)
    for node in stage.operators:
        if node.source is not None:
            found = fields["sources"].get(node.uid)
            for at, task in enumerate(tasks):
                own: Sequence[Any] = [] if found is None else found["splits"][at :: len(tasks)]
                task["splits"] = [0 if found is None else found["version"], own]
            continue
        entry = fields["operators"].get(node.uid)
        if entry is None or not any(entry["state"]):
            continue
        before, most = entry["parallelism"], graph.max_parallelism
        ranges = [key_group_range(at, before, most) for at in range(before)]
        for at, task in enumerate(tasks):
            own_groups = key_group_range(at, stage.parallelism, most)
            task["state"][node.uid] = [
                [f"{base}/{snapshot[0]}" if _is_relative(snapshot[0]) else snapshot[0], snapshot[1]]
                for snapshot, groups in zip(entry["state"], ranges, strict=True)
                if snapshot and groups.start < own_groups.stop and own_groups.start < groups.stop
            ]
    return tasks


def in_flight(
    graph: JobGraph, stage: Stage, index: int, fields: Mapping[str, Any], base: str
) -> dict[str, Any] | None:
    """Return the rows in flight that a task of a stage has to handle first; None if there are none.

    With another parallelism a task gets the rows of all tasks that had one of its key groups, and takes those of its own.
    Rows that were sent in turn go to one task each.
    """
    before = fields["stages"].get(stage.head.uid)
    if before is None:
        return None
    edges = {
        (s.edges[at].operator, s.edges[at].output): s.edges[at]
        for s, at in graph.inputs_of(stage.number)
    }
    most, receivers = graph.max_parallelism, len(before["tasks"])
    own = key_group_range(index, stage.parallelism, most)
    parts: list[Any] = []
    keys: list[str] = []
    first = 0
    for operator, output, sender_uid, senders in before["inputs"]:
        edge = edges.get((operator, output))
        sender = fields["stages"][sender_uid]
        place = sender["outputs"].index([operator, output, stage.head.uid])
        is_keyed = edge is not None and edge.shipping is Shipping.HASH
        if is_keyed and receivers != stage.parallelism:
            keys = list(edge.keys) if edge is not None else []
        for receiver in range(receivers):
            groups = key_group_range(receiver, receivers, most)
            for at in range(senders):
                if is_keyed:
                    is_own = groups.start < own.stop and own.start < groups.stop
                else:
                    is_own = (at * receivers + receiver) % stage.parallelism == index
                pair = [
                    *_parts(before["tasks"][receiver], "inputs", [first + at], base),
                    *_parts(sender["tasks"][at], "outputs", [place, receiver], base),
                ]
                if is_own and pair:
                    parts.append(pair)
        first += senders
    return {"parts": parts, "keys": keys} if parts else None


def _parts(channels: Any, side: str, which: list[int], base: str) -> list[Any]:
    """Return path, size, checksum, offset and length of the bytes of a channel or subpartition."""
    if channels is None:
        return []
    path, size, crc32 = channels["file"]
    path = f"{base}/{path}" if _is_relative(path) else path
    return [
        [path, size, crc32, *one[len(which) :]]
        for one in channels[side]
        if one[: len(which)] == which
    ]


def enumerator_of(fields: Mapping[str, Any] | None, uid: str) -> bytes | None:
    """Return the state of a source's enumerator; None for a new one."""
    found = None if fields is None else fields["sources"].get(uid)
    return None if found is None else data(found["enumerator"])


def committables_of(fields: Mapping[str, Any], uid: str) -> list[bytes]:
    """Return what a checkpoint has for the committer of a sink."""
    entry = fields["operators"].get(uid)
    return [] if entry is None else [data(one) for _, one in entry["committables"]]


def _relative(snapshot: Any, base: str) -> Any:
    """Return a snapshot with its folder relative to that of the checkpoint, so that this one can be moved."""
    if snapshot is None:
        return None
    folder, number = snapshot
    return [folder.removeprefix(f"{base}/"), number]


def _channels(channels: Any, base: str) -> Any:
    """Return a task's rows in flight with the path relative to that of the checkpoint."""
    if channels is None:
        return None
    path, size, crc32 = channels["file"]
    return {**channels, "file": [path.removeprefix(f"{base}/"), size, crc32]}


def _is_relative(folder: str) -> bool:
    return "://" not in folder and not folder.startswith("/")
