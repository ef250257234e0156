"""The part of a complete checkpoint that each task of a new attempt gets; see :mod:`headgate.stream.job.metadata`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from headgate.errors import CheckpointError
from headgate.key_groups import key_group_range
from headgate.stream.graph.nodes import Shipping
from headgate.stream.state.locations import below, is_relative

if TYPE_CHECKING:
    from headgate.stream.graph.nodes import Node
    from headgate.stream.graph.stages import JobGraph, Stage


def check_restorable(graph: JobGraph, fields: Mapping[str, Any], *, allow_dropped: bool) -> None:
    """Check that a job can continue from a checkpoint.

    Raises:
        CheckpointError: another number of key groups, or state of an operator, or rows on their way to one, that the job
            does not have.
    """
    if fields["max_parallelism"] != graph.max_parallelism:
        raise CheckpointError(
            "the checkpoint has another number of key groups",
            asked=f"max_parallelism={graph.max_parallelism}",
            have=f"max_parallelism={fields['max_parallelism']}",
            remedy=f"max_parallelism={fields['max_parallelism']}",
        )
    uids = {node.uid for stage in graph.stages for node in stage.operators}
    with_state = {uid for uid, entry in fields["operators"].items() if any(entry["state"])}
    dropped = (with_state | set(fields["sources"])) - uids
    if dropped and not allow_dropped:
        raise CheckpointError(
            f"the checkpoint has state of operators that the job does not have: {', '.join(sorted(dropped))}",
            have=", ".join(sorted(uids)),
            remedy="name= of the operators as before · allow_dropped_state=True",
        )
    _check_in_flight(graph, fields, allow_dropped=allow_dropped)


def check_has_state(
    graph: JobGraph, fields: Mapping[str, Any], folder: str, *, allow_dropped: bool
) -> None:
    """Check that a checkpoint has the state that rows of a job meet.

    Raises:
        CheckpointError: it is the last one of a job whose sources had ended, which has no state, and this job may have
            further rows.
    """
    before = fields["operators"]
    uids = {node.uid for stage in graph.stages for node in stage.operators}
    left_out = sorted(uid for uid in uids & before.keys() if before[uid].get("left_out"))
    has_new_rows = not graph.is_bounded or not graph.sources.keys() <= fields["sources"].keys()
    if left_out and has_new_rows and not allow_dropped:
        raise CheckpointError(
            f"the job of {folder} has ended, so its last checkpoint has no state of {', '.join(left_out)}",
            asked=f"checkpoint={folder!r}, with sources that may have further rows",
            have="positions of its sources, and output",
            remedy='until="now" in each run, also the first one: state carries over · an empty folder starts over · '
            "allow_dropped_state=True to begin without this state",
        )


def restored_tasks(
    graph: JobGraph, stage: Stage, fields: Mapping[str, Any] | None, base: str
) -> list[dict[str, Any]]:
    """Return for each task of a stage the snapshots and splits that it continues from.

    The parallelism may be another than that of the checkpoint: a task gets the snapshots that have its key groups.
    """
    tasks: list[dict[str, Any]] = [
        {"state": {}, "splits": [0, []], "in_flight": [], "watermarks": {}}
        for _ in range(stage.parallelism)
    ]
    if fields is None:
        return tasks
    for at, task in enumerate(tasks):
        task["in_flight"] = in_flight(graph, stage, at, fields, base)
    for node in stage.operators:
        if node.source is not None:
            source = fields["sources"].get(node.uid)
            for at, task in enumerate(tasks):
                if source is not None:
                    task["splits"] = [source["version"], source["splits"][at :: len(tasks)]]
            continue
        entry = fields["operators"].get(node.uid)
        if entry is None:
            continue
        before, most = entry["parallelism"], graph.max_parallelism
        ranges = [key_group_range(at, before, most) for at in range(before)]
        for at, task in enumerate(tasks):
            task_groups = key_group_range(at, stage.parallelism, most)
            task["watermarks"][node.uid] = entry.get("watermark")
            if not any(entry["state"]):
                continue
            task["state"][node.uid] = [
                [_location(snapshot[0], base), snapshot[1]]
                for snapshot, groups in zip(entry["state"], ranges, strict=True)
                if snapshot and _overlap(groups, task_groups)
            ]
    return tasks


def in_flight(
    graph: JobGraph, stage: Stage, index: int, fields: Mapping[str, Any], base: str
) -> list[dict[str, Any]]:
    """Return the rows in flight that a task of a stage has to handle first, in parts.

    Rows go to the operator that they were on their way to, also if it has no exchange before it any more. With another
    parallelism a task gets the rows of all tasks that had one of its key groups, and takes those of its own. Rows that were
    sent in turn go to one task each.

    Returns:
        For each part the uid of the ``operator``; the ``keys``, columns by which the task takes the rows of its own key
        groups, empty if all rows are its own; and ``files``: path, size, checksum, offset and length.
    """
    most = graph.max_parallelism
    task_groups = key_group_range(index, stage.parallelism, most)
    parts = []
    for node in stage.operators:
        for edge in _edges_before(node.uid, fields):
            shipping, keys = _shipping(graph, stage, node, edge) or (Shipping.FORWARD, ())
            is_rescaled = edge.receivers != stage.parallelism
            for sender, receiver in product(range(edge.senders), range(edge.receivers)):
                groups = key_group_range(receiver, edge.receivers, most)
                if not is_rescaled:
                    is_own = receiver == index
                elif shipping is Shipping.HASH:
                    is_own = _overlap(groups, task_groups)
                else:
                    is_own = (sender * edge.receivers + receiver) % stage.parallelism == index
                files = edge.files(sender, receiver, base) if is_own else []
                if files:
                    part_keys = list(keys) if is_rescaled else []
                    parts.append({"operator": node.uid, "keys": part_keys, "files": files})
    return parts


@dataclass(frozen=True, slots=True)
class _Edge:
    """An edge of the job that took the checkpoint.

    Attributes:
        operator: uid of the operator that emitted.
        output: name of its side output; None for the main one.
        position: among the edges of the sending tasks.
        first: its first channel at each receiver.
        sent: rows in flight of each sending task, or None.
        received: the same of each receiving one.
    """

    operator: str
    output: str | None
    position: int
    first: int
    sent: Sequence[Any]
    received: Sequence[Any]

    @property
    def senders(self) -> int:
        return len(self.sent)

    @property
    def receivers(self) -> int:
        return len(self.received)

    def files(self, sender: int, receiver: int, base: str) -> list[Any]:
        """Return the bytes on the way from a task to another one: what the receiver has, then what the sender has."""
        return [
            *_parts(self.received[receiver], "inputs", [self.first + sender], base),
            *_parts(self.sent[sender], "outputs", [self.position, receiver], base),
        ]

    @property
    def has_rows(self) -> bool:
        pairs = product(range(self.senders), range(self.receivers))
        return any(self.files(sender, receiver, "") for sender, receiver in pairs)


def _edges_before(uid: str, fields: Mapping[str, Any]) -> list[_Edge]:
    """Return the edges of a checkpoint to the stage that began with an operator."""
    before = fields["stages"].get(uid)
    if before is None:
        return []
    edges: list[_Edge] = []
    inputs, first = before["inputs"], 0
    for at, (operator, output, sender_uid, senders) in enumerate(inputs):
        sender = fields["stages"][sender_uid]
        outputs = sender["outputs"]
        places = [n for n, edge in enumerate(outputs) if edge == [operator, output, uid]]
        # A stream may be joined with itself: then its edges are alike, and in the same order on both sides.
        earlier = sum(i[:3] == [operator, output, sender_uid] for i in inputs[:at])
        edges.append(
            _Edge(operator, output, places[earlier], first, sender["tasks"], before["tasks"])
        )
        first += senders
    return edges


def _shipping(
    graph: JobGraph, stage: Stage, node: Node, edge: _Edge
) -> tuple[Shipping, tuple[str, ...]] | None:
    """Return how rows of an edge of a checkpoint are placed among the tasks of a stage, and their keys.

    None if the operator that sent them is gone and the others do not place theirs alike.
    """
    if node is not stage.head:
        return Shipping.FORWARD, ()
    inputs = [sender.edges[at] for sender, at in graph.inputs_of(stage.number)]
    same = [e for e in inputs if (e.operator, e.output) == (edge.operator, edge.output)]
    shippings = {(e.shipping, e.keys) for e in same or inputs}
    return shippings.pop() if len(shippings) == 1 else None


def _check_in_flight(graph: JobGraph, fields: Mapping[str, Any], *, allow_dropped: bool) -> None:
    """Check that all rows in flight have a place in a job.

    Raises:
        CheckpointError: some have none.
    """
    places = {node.uid: (stage, node) for stage in graph.stages for node in stage.operators}
    for uid in fields["stages"]:
        for edge in _edges_before(uid, fields):
            if not edge.has_rows:
                continue
            if uid not in places:
                if allow_dropped:
                    continue
                raise CheckpointError(
                    f"the checkpoint has rows on their way to {uid}, which the job does not have",
                    have=", ".join(sorted(places)),
                    remedy="name= of the operators as before · stop() or a savepoint before such a change, which leaves none "
                    "on the way · allow_dropped_state=True",
                )
            stage, node = places[uid]
            is_placed = _shipping(graph, stage, node, edge) is not None
            if not is_placed and edge.receivers != stage.parallelism:
                raise CheckpointError(
                    f"the checkpoint has rows on their way from {edge.operator} to {uid}, and the job has no {edge.operator} "
                    "that says by what they are placed",
                    have=", ".join(sorted(places)),
                    remedy=f"name= of the operators as before · parallelism={edge.receivers} of {uid}",
                )


def _parts(channels: Any, side: str, which: list[int], base: str) -> list[Any]:
    """Return path, size, checksum, offset and length of the bytes of a channel or subpartition."""
    if channels is None:
        return []
    path, size, crc32 = channels["file"]
    return [
        [_location(path, base), size, crc32, *entry[len(which) :]]
        for entry in channels[side]
        if entry[: len(which)] == which
    ]


def _overlap(groups: range, others: range) -> bool:
    return groups.start < others.stop and others.start < groups.stop


def _location(path: str, base: str) -> str:
    """Return where a file or folder of a checkpoint is, wherever the checkpoint is now."""
    return below(base, path) if is_relative(path) else path
