"""Keeps the newest completed snapshots of a task, and deletes what only older ones name."""

from __future__ import annotations

from collections.abc import Collection

from headgate.errors import StateError
from headgate.stream.state.files import SnapshotFolder, manifest_name


class SnapshotRetention:
    """Deletes older snapshots when a newer one is completed.

    A chunk file is deleted once no manifest in the folder names it. Files that a stopped task left without a
    manifest stay, since a task that is still alive may be writing them.

    Args:
        folder: the folder of one task.
        retained: number of completed snapshots to keep, at least 1.
    """

    def __init__(self, folder: SnapshotFolder, retained: int = 1) -> None:
        if retained < 1:
            raise StateError(f"retained={retained} is less than 1", remedy="retained=1")
        self.folder = folder
        self.retained = retained
        self._completed: set[int] = set()
        #: The first one that was completed here; those before it are from before a restart.
        self._first: int | None = None

    def complete(self, snapshot: int, in_flight: Collection[str] = ()) -> None:
        """Delete the snapshots that are older than the newest completed ones.

        Of the snapshots from before a restart, each counts as completed.

        Args:
            snapshot: number of the completed snapshot.
            in_flight: files that snapshots without a manifest will name: ``backend.files_in_flight``.

        Raises:
            SnapshotError: a manifest is damaged, or a file cannot be deleted. If a manifest is damaged, nothing
                is deleted.
        """
        numbers = self.folder.snapshots()
        self._first = snapshot if self._first is None else min(self._first, snapshot)
        self._completed.add(snapshot)
        # The last one of a job that has ended has no manifest, and still replaces those before it.
        completed = [
            n for n in sorted({*numbers, snapshot}) if n in self._completed or n < self._first
        ]
        newest = completed[-self.retained :]
        self._completed.intersection_update(newest)
        dropped = [n for n in numbers if n < newest[0]]
        if not dropped:
            return
        named = {n: self.folder.read_manifest(n).names for n in numbers}
        still = set(in_flight).union(*(named[n] for n in numbers if n not in dropped))
        # Manifests first: none may name a file that is gone.
        for number in dropped:
            self.folder.delete(manifest_name(number))
        for name in sorted(set().union(*(named[n] for n in dropped)) - still):
            self.folder.delete(name)

    def discard(self, snapshot: int) -> None:
        """Delete an aborted snapshot, if its manifest was written.

        Raises:
            SnapshotError: a manifest is damaged, or a file cannot be deleted.
        """
        numbers = self.folder.snapshots()
        if snapshot not in numbers:
            return
        names = self.folder.read_manifest(snapshot).names
        for other in numbers:
            if other != snapshot:
                names -= self.folder.read_manifest(other).names
        self.folder.delete(manifest_name(snapshot))
        for name in sorted(names):
            self.folder.delete(name)
