"""The sources of a job: an enumerator each, whose messages go to the readers' workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from headgate.source.api.event import SourceEvent
from headgate.source.coordination import AlignmentGroups, CoordinatorThread, SourceCoordinator
from headgate.stream.job.messages import from_base64, to_base64
from headgate.stream.job.metadata import enumerator_of

if TYPE_CHECKING:
    from headgate.control.messages import Message
    from headgate.errors import HeadgateError
    from headgate.stream.graph.stages import JobGraph, Stage, TaskId

#: Sends a message to the worker of a task: kind, stage and index, fields. Called on the enumerators' thread.
Send = Callable[[str, "TaskId", "dict[str, Any]"], None]


class _Gateway:
    """Sends an enumerator's messages to its readers."""

    def __init__(self, stage: int, send: Send, failed: Callable[[HeadgateError], None]) -> None:
        self._stage, self._send, self._failed = stage, send, failed

    def assign(self, subtask: int, version: int, splits: Sequence[tuple[str, bytes]]) -> None:
        """Assign splits."""
        encoded = [[name, to_base64(body)] for name, body in splits]
        self._send("ASSIGN", (self._stage, subtask), {"version": version, "splits": encoded})

    def no_more_splits(self, subtask: int) -> None:
        """Tell a reader that no split follows."""
        self._send("NO_MORE_SPLITS", (self._stage, subtask), {})

    def event(self, subtask: int, event: SourceEvent) -> None:
        """Send an event."""
        fields = {"name": event.name, "payload": to_base64(event.payload)}
        self._send("EVENT", (self._stage, subtask), fields)

    def align(self, subtask: int, max_allowed_ms: int) -> None:
        """Send the limit of the watermark."""
        self._send("ALIGN", (self._stage, subtask), {"ms": max_allowed_ms})

    def failed(self, error: HeadgateError) -> None:
        """End the attempt."""
        self._failed(error)

    def close(self) -> None:
        """Send nothing any more, and forget the attempt, which refers to this object."""
        self._send = lambda _kind, _task, _fields: None
        self._failed = lambda _error: None


class JobSources:
    """The coordinators of all sources of one attempt.

    Args:
        graph: the job.
        restored: the checkpoint to continue from.
        send: sends a message to a task.
        failed: called with an enumerator's error.
    """

    def __init__(
        self,
        graph: JobGraph,
        restored: Mapping[str, Any] | None,
        send: Send,
        failed: Callable[[HeadgateError], None],
    ) -> None:
        self._thread = CoordinatorThread()
        groups = AlignmentGroups()
        self._stages: dict[int, Stage] = {}
        self._coordinators: dict[int, SourceCoordinator[Any, Any]] = {}
        self._gateways: list[_Gateway] = []
        for stage in graph.stages:
            source = stage.head.source
            if source is not None:
                self._stages[stage.number] = stage
                gateway = _Gateway(stage.number, send, failed)
                self._gateways.append(gateway)
                self._coordinators[stage.number] = SourceCoordinator(
                    source,
                    stage.parallelism,
                    gateway,
                    self._thread,
                    watermarks=stage.head.watermarks,
                    groups=groups,
                )
        self._restored = restored

    def start(self, host_of: Callable[[TaskId], str]) -> None:
        """Start the enumerators and register all readers, before any reader can ask for a split."""
        for number, coordinator in self._coordinators.items():
            stage = self._stages[number]
            coordinator.start(enumerator_of(self._restored, stage.head.uid))
            for at in range(stage.parallelism):
                coordinator.register_reader(at, host_of((number, at)))

    def handle(self, message: Message) -> None:
        """Handle a message of a reader."""
        stage, subtask = message["task"]
        coordinator = self._coordinators.get(stage)
        if coordinator is None:
            return
        if message.kind == "SPLIT_REQUEST":
            coordinator.request_split(subtask, message["host"])
        elif message.kind == "SPLITS_FINISHED":
            coordinator.splits_finished(subtask, message["ids"])
        elif message.kind == "WATERMARK":
            coordinator.report_watermark(subtask, message["ms"])
        elif message.kind == "SOURCE_EVENT":
            event = SourceEvent(message["name"], from_base64(message["payload"]))
            coordinator.source_event(subtask, event)

    def checkpoint(
        self,
        checkpoint: int,
        on_state: Callable[[int, str, bytes | None, HeadgateError | None], None],
    ) -> None:
        """Take the enumerators' states.

        Args:
            checkpoint: its id.
            on_state: called on the enumerators' thread with stage, uid, and state or error. Splits that are assigned
                afterwards are sent afterwards.
        """
        for number, coordinator in self._coordinators.items():
            uid = self._stages[number].head.uid
            coordinator.checkpoint(checkpoint, partial(on_state, number, uid))

    def complete(self, checkpoint: int) -> None:
        """Tell the enumerators that a checkpoint is complete."""
        for coordinator in self._coordinators.values():
            coordinator.checkpoint_complete(checkpoint)

    def abort(self, checkpoint: int) -> None:
        """Tell the enumerators that a checkpoint was given up."""
        for coordinator in self._coordinators.values():
            coordinator.checkpoint_aborted(checkpoint)

    def close(self) -> None:
        """Close all enumerators; may wait for one that is at work."""
        for coordinator in self._coordinators.values():
            coordinator.close()
        self._thread.close()
        for gateway in self._gateways:
            gateway.close()
        self._coordinators = {}
