"""The files of one task of one attempt: its snapshots, its rows in flight, and which of them are deleted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headgate.errors import HeadgateError
from headgate.stream.job.messages import to_base64
from headgate.stream.runtime.channel_state import is_channels
from headgate.stream.state.files import SnapshotFolder
from headgate.stream.state.locations import TASKS, below, safe_name
from headgate.stream.state.retention import SnapshotRetention

if TYPE_CHECKING:
    from headgate.stream.runtime.task_snapshot import TaskSnapshot


class TaskFiles:
    """The files of a task. Threads that write snapshots use it.

    Args:
        deployed: what DEPLOY says of the task.
    """

    def __init__(self, deployed: Mapping[str, Any]) -> None:
        stage, index = deployed["task"]
        self._name = f"{stage}-{index}"
        self._retained: int = deployed["retained"]
        self._folders = {uid: SnapshotFolder(path) for uid, path in deployed["folders"].items()}
        path = deployed["channels"]
        self._channels = None if path is None else SnapshotFolder(path)
        #: The last complete checkpoints.
        self._completed: list[int] = []
        self._retention: dict[str, SnapshotRetention] = {}

    def write(self, snapshot: TaskSnapshot, *, has_watermarks: bool) -> dict[str, Any]:
        """Write a snapshot; return what the metadata of the checkpoint has of it.

        Args:
            snapshot: of the task.
            has_watermarks: True if the operators' watermarks belong to it.

        Raises:
            SnapshotError: a file cannot be written.
            StateError: the snapshot was cancelled.
        """
        size = snapshot.channels.size
        operators: dict[str, Any] = {}
        for uid, part in snapshot.operators.items():
            entry = operators[uid] = {}
            if part.committables:
                entry["committables"] = [
                    [number, to_base64(committable)] for number, committable in part.committables
                ]
            if part.is_left_out:
                entry["left_out"] = True
            if part.watermark is not None and has_watermarks:
                entry["watermark"] = part.watermark
            if part.state is None:
                continue
            folder = self._folder(uid, snapshot)
            if folder is None:
                part.state.cancel()
                continue
            manifest = part.state.write(folder)
            prefix = f"{snapshot.checkpoint:010d}-"
            files = (file for state in manifest.states for file in state.files)
            size += sum(file.size for file in files if file.name.startswith(prefix))
            entry["state"] = [folder.uri, snapshot.checkpoint]
        channels = None
        if self._channels is not None and snapshot.channels.size:
            channels = snapshot.channels.write(self._channels, snapshot.checkpoint)
        return {"operators": operators, "channels": channels, "bytes": size}

    def _folder(self, uid: str, snapshot: TaskSnapshot) -> SnapshotFolder | None:
        """Return the folder for an operator's snapshot; None if the job keeps no checkpoints."""
        if snapshot.savepoint:
            path = f"{TASKS}/{self._name}-{safe_name(uid)}"
            return SnapshotFolder(below(snapshot.savepoint, path))
        folder = self._folders.get(uid)
        if folder is not None and uid not in self._retention:
            self._retention[uid] = SnapshotRetention(folder, self._retained)
        return folder

    def complete(self, checkpoint: int, in_flight: Callable[[str], set[str]]) -> None:
        """Delete what a complete checkpoint replaces; what cannot be deleted is tried again after the next one.

        Args:
            checkpoint: its id.
            in_flight: returns the files that an operator's snapshots in flight build on.
        """
        if self._channels is not None:
            self._completed = [*self._completed, checkpoint][-self._retained :]
            with suppress(HeadgateError):
                for name in self._channels.names():
                    if is_channels(name) and name < f"{self._completed[0]:010d}-":
                        self._channels.delete(name)
        for uid, retention in list(self._retention.items()):
            with suppress(HeadgateError):
                retention.complete(checkpoint, in_flight(uid))

    def discard(self, checkpoint: int) -> None:
        """Delete the snapshot of an aborted checkpoint, if it was written; else its folder goes with the attempt."""
        for retention in list(self._retention.values()):
            with suppress(HeadgateError):
                retention.discard(checkpoint)
