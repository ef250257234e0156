"""Reads the state in a snapshot as Arrow tables, without the job that wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.errors import SnapshotError
from headgate.stream.state.backend import KeyedStateBackend
from headgate.stream.state.files import MANIFEST, SnapshotFolder

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyarrow import fs


def read_savepoint(
    path: str | Sequence[str],
    *,
    filesystem: fs.FileSystem | None = None,
    snapshot: int | None = None,
) -> dict[str, pa.Table]:
    """Return all state of one operator.

    Args:
        path: a folder that has the folders of all tasks, at any depth, or is the one of the only task; or the folders of
            all tasks.
        filesystem: the file system of the paths; None for paths or URIs.
        snapshot: number of the snapshot; None for the newest one that each task has.

    Returns:
        A table per state, with the key columns, those of the namespace, and: ``value``, with a list for a list state;
        ``map_key`` and ``value`` with a row per entry of a map; ``timestamp`` for timers.

    Raises:
        SnapshotError: there is no snapshot, a file is missing or damaged, or a key group is missing.
        StateError: the snapshots are not of one operator.
    """
    roots = [path] if isinstance(path, str) else path
    tasks = [task for root in roots for task in _tasks(SnapshotFolder(root, filesystem))]
    numbers = [(task, task.snapshots()[-1] if snapshot is None else snapshot) for task in tasks]
    newest = {number for _, number in numbers}
    if len(newest) != 1:
        raise SnapshotError(
            f"the tasks have different newest snapshots: {sorted(newest)}"
            if newest
            else f"there is no snapshot in {', '.join(roots)}",
            remedy="give snapshot=, a number that all tasks have · give the folder of the tasks"
            if newest
            else "give the folder that savepoint() or stop(savepoint=) was given",
        )
    backend = KeyedStateBackend.restore(numbers)
    return {name: state.table() for name, state in backend.states.items()}


def _tasks(root: SnapshotFolder) -> list[SnapshotFolder]:
    """Return the folders with manifests."""
    files = root.files(recursive=True)
    folders = {path.rpartition("/")[0] for path in files if path.endswith(MANIFEST)}
    return [SnapshotFolder(folder, root.storage.filesystem) for folder in sorted(folders)]
