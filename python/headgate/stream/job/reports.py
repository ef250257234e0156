"""Checks that a worker's message can be true: that it is about tasks of that worker, and about what they have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.errors import ProtocolError
from headgate.stream.job.status import JobState

if TYPE_CHECKING:
    from headgate.control.messages import Message
    from headgate.stream.graph.stages import JobGraph
    from headgate.stream.job.attempt import Attempt

#: Messages of the reader of a source.
READER_MESSAGES: Final = frozenset(
    {"SPLIT_REQUEST", "SPLITS_FINISHED", "WATERMARK", "SOURCE_EVENT"}
)


def check_report(
    graph: JobGraph, attempt: Attempt, worker: int, message: Message, state: JobState
) -> None:
    """Check a message of a worker about the current attempt.

    Raises:
        ProtocolError: it speaks of tasks that are not placed on the worker, or of something that they do not have.
    """
    fields = message.fields
    tasks = [fields["task"]] if "task" in fields else []
    tasks += [figures["task"] for figures in fields.get("tasks", ())]
    for task in tasks:
        if attempt.worker_of.get(tuple(task)) != worker:
            raise _odd(worker, message, f"of task {task}, which is not placed on it")
    if message.kind in READER_MESSAGES and graph.stages[fields["task"][0]].head.source is None:
        raise _odd(worker, message, f"of task {fields['task']}, which reads no source")
    if message.kind == "DEPLOYED":
        _check_deployed(graph, attempt, worker, message)
    if message.kind == "ACKNOWLEDGED":
        _check_acknowledged(graph, worker, message)
    if message.kind == "TOKENS_WANTED":
        nodes = graph.stages[fields["task"][0]].operators
        if all(node.uid != fields["operator"] or node.rate is None for node in nodes):
            raise _odd(worker, message, "of an operator without a rate")
    if message.kind == "FINISHED" and state is not JobState.FINISHING:
        raise _odd(worker, message, f"of task {fields['task']} before the last checkpoint")


def _check_deployed(graph: JobGraph, attempt: Attempt, worker: int, message: Message) -> None:
    if worker in attempt.deployed:
        raise _odd(worker, message, "twice")
    partitions = sorted([(stage, at), len(ids)] for stage, at, ids in message["partitions"])
    tasks = sorted(task for task, number in attempt.worker_of.items() if number == worker)
    if partitions != [[task, len(graph.stages[task[0]].edges)] for task in tasks]:
        raise _odd(worker, message, "of other partitions than its tasks have")


def _check_acknowledged(graph: JobGraph, worker: int, message: Message) -> None:
    state, checkpoint = message["state"], message["checkpoint"]
    stage = graph.stages[message["task"][0]]
    operators = {node.uid for node in stage.operators}
    if not state["operators"].keys() <= operators:
        raise _odd(worker, message, "of operators that its task does not have")
    if ("splits" in state) is not (stage.head.source is not None):
        raise _odd(worker, message, "with splits of a task without a source, or without them")
    for operator in state["operators"].values():
        numbers = [number for number, _ in operator.get("committables", ())]
        if any(number > checkpoint for number in numbers):
            raise _odd(worker, message, "with output of a later checkpoint")
        if operator.get("state", ["", checkpoint])[1] != checkpoint:
            raise _odd(worker, message, "with the state of another checkpoint")


def _odd(worker: int, message: Message, problem: str) -> ProtocolError:
    return ProtocolError(
        f"worker {worker} has sent {message.kind} {problem}",
        remedy="install the same version of headgate everywhere · report it if it repeats",
    )
