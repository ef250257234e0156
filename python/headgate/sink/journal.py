"""The journal of a commit: written before the first file moves, so that a crash can be repaired.

A commit is decided once its journal exists: it is completed ("rolled forward") and never undone.
From then on every step is idempotent: a file that is in its place stays there, and a deletion
ignores a missing file. Two processes may roll forward at the same time, because names are never
used twice.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from headgate._partition_names import is_partition
from headgate._sealed import seal, unseal
from headgate.errors import SinkError
from headgate.sink.api import check_name
from headgate.sink.failure import UnsafeError, failing, mark_decided
from headgate.sink.layout import (
    JOB,
    JOURNAL,
    STAGING,
    SUCCESS,
    is_hidden,
    marker_of,
    staged_path,
    target_path,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.sink.storage import Storage


@dataclass(frozen=True, slots=True)
class Move:
    """The move of a staged file. Paths are relative to the sink's.

    Attributes:
        source: path of the staged file.
        target: path at which it becomes visible.
        bytes: size of the file.
    """

    source: str
    target: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Journal:
    """A decided commit.

    Attributes:
        job: the name of the job.
        moves: moves of the files that become visible.
        removes: files that an overwrite removes once the new ones are in place.
        marker: path of the file that marks a streaming batch as committed, or None.
        rows: rows in all moved files.
    """

    job: str
    moves: tuple[Move, ...]
    removes: tuple[str, ...] = ()
    marker: str | None = None
    rows: int = 0

    def to_json(self) -> bytes:
        """Return the JSON."""
        return seal(asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes, path: str, job: str) -> Journal:
        """Return the journal that :meth:`to_json` wrote.

        Args:
            text: the JSON.
            path: the file that has it, for errors.
            job: the job whose folder has the file.

        Raises:
            SinkError: the text is not a journal of this version or of this job, has changed, or
                names a path that no commit of the job names.
        """
        try:
            fields = unseal(text)
            moves = tuple(Move(**move) for move in fields.pop("moves"))
            journal = cls(moves=moves, removes=tuple(fields.pop("removes")), **fields)
            _check_paths(journal, job)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SinkError(
                f"the journal {path} cannot be read: {error}",
                remedy="check the files that it names · delete it together with its job's files",
                details={"path": path},
            ) from error
        return journal


def read(storage: Storage, job: str) -> Journal | None:
    """Return the journal of a job; None if its commit is not decided."""
    path = storage.at(STAGING, job, JOURNAL)
    with failing("read", path):
        text = storage.read(path)
    return None if text is None else Journal.from_json(text, path, job)


def write(storage: Storage, journal: Journal) -> bool:
    """Decide a commit; return False if another process has decided it already."""
    path = storage.at(STAGING, journal.job, JOURNAL)
    # Nobody could complete a commit whose journal no recovery accepts.
    Journal.from_json(journal.to_json(), path, journal.job)
    try:
        with failing("write", path):
            try:
                storage.write_first(path, journal.to_json(), exclusive=True)
            except FileExistsError:
                return False
    except SinkError as error:
        # The file may exist, if only the sync of its folder failed.
        if storage.is_file(path):
            mark_decided(error)
        raise
    return True


def roll_forward(storage: Storage, journal: Journal) -> bool:
    """Complete a decided commit; return False if it was complete already.

    A streaming batch whose marker exists is complete, even if another journal did it, because the
    marker is written after the moves.

    Args:
        storage: the sink's folder.
        journal: the decided commit.

    Raises:
        SinkError: a step failed, or a file is neither staged nor in its place.
    """
    with failing("complete the commit at", storage.root, decided=True):
        try:
            return _steps(storage, journal)
        except FileNotFoundError:
            # If the journal is gone, another process has completed the commit and cleaned up.
            if read(storage, journal.job) is not None:
                raise
            return False


def clean(storage: Storage, job: str, *, attempts: set[str] | None = None) -> None:
    """Remove a job's folder: the staged files, then the journal, then the file with its owner.

    With this order the next recovery can clean up after a crash at any step.

    Args:
        storage: the sink's folder.
        job: the job's name.
        attempts: remove these attempts only, and the rest if no other attempt is left; None for
            all attempts.
    """
    folder = storage.at(STAGING, job)
    with failing("clean up", folder):
        for info in storage.list(folder):
            name = info.path.rpartition("/")[2]
            if name in {JOURNAL, JOB}:
                continue
            if not info.is_folder:
                storage.delete_file(info.path)
            elif attempts is None or name in attempts:
                storage.delete_tree(info.path)
        storage.delete_file(f"{folder}/{JOURNAL}")
        left = {info.path.rpartition("/")[2] for info in storage.list(folder)} - {JOB}
        if left and attempts is not None:
            return
        storage.delete_file(f"{folder}/{JOB}")
        if not storage.remove_empty(folder):
            storage.delete_tree(folder)
        storage.remove_empty(storage.at(STAGING))


def _check_paths(journal: Journal, job: str) -> None:
    """Check that a journal names only the paths that a commit of its job names.

    Without this check, a journal that another user wrote could move or delete any file.

    Raises:
        ValueError: it names another path, or has a field of another kind.
    """
    if journal.job != job:
        raise ValueError(f"it is of the job {journal.job!r}")
    for move in journal.moves:
        _check_move(move, job)
    for path in journal.removes:
        if is_hidden(path) or "\0" in path or not all(path.split("/")):
            raise ValueError(f"{path!r} is no visible file below the sink's path")
    if journal.marker not in {None, marker_of(job)}:
        raise ValueError(f"{journal.marker!r} does not mark a batch of the job")
    if type(journal.rows) is not int or journal.rows < 0:
        raise ValueError("its rows are no number")
    for paths in ([m.source for m in journal.moves], [m.target for m in journal.moves]):
        if len({*paths, *journal.removes}) != len(paths) + len(journal.removes):
            raise ValueError("it names a file twice")


def _check_move(move: Move, job: str) -> None:
    above, _, name = move.source.rpartition("/")
    attempt = above.rpartition("/")[2]
    if move.source != staged_path(job, check_name(attempt), check_name(name)):
        raise ValueError(f"{move.source!r} is no staged file of the job")
    partition, _, last = move.target.rpartition("/")
    number = last.removeprefix(f"part-{job}-").partition("-")[0]
    if (
        not number.isdecimal()
        or move.target != target_path(job, int(number), name, partition)
        or not (partition == "" or is_partition(partition))
    ):
        raise ValueError(f"{move.target!r} is no file of the job")
    if type(move.bytes) is not int or move.bytes < 0:
        raise ValueError(f"the size of {move.source!r} is no number")


def _steps(storage: Storage, journal: Journal) -> bool:
    marker = None if journal.marker is None else storage.at(journal.marker)
    if marker is not None and storage.is_file(marker):
        return False
    if marker is None:
        # Absent while files move, so that readers that wait for it do not see a part of a job.
        storage.delete_file(storage.at(SUCCESS))
    partitions = dict.fromkeys(move.target.rpartition("/")[0] for move in journal.moves)
    for partition in filter(None, partitions):
        storage.make_folder(storage.at(partition), parents=True)
    for move in journal.moves:
        _move(storage, journal, move)
    for folder in folders_above(partitions):
        storage.sync(storage.at(folder))
    storage.sync(storage.root)
    for path in journal.removes:
        storage.delete_file(storage.at(path))
    _remove_folders(storage, journal)
    folder = storage.at(STAGING, journal.job)
    if marker is None:
        # An empty file is written atomically, and does not need the job's folder.
        storage.touch(storage.at(SUCCESS))
        storage.sync(storage.root)
        return True
    storage.make_folder(marker.rpartition("/")[0], parents=True)
    fields = {"rows": journal.rows, "files": [move.target for move in journal.moves]}
    storage.write_atomic(marker, json.dumps(fields).encode(), through=folder)
    return True


def folders_above(partitions: Iterable[str]) -> list[str]:
    """Return the folders of partitions and those that have them, relative to the sink's path, each once."""
    folders: set[str] = set()
    for partition in filter(None, partitions):
        parts = partition.split("/")
        folders.update("/".join(parts[: end + 1]) for end in range(len(parts)))
    return sorted(folders)


def _move(storage: Storage, journal: Journal, move: Move) -> None:
    source, target = storage.at(move.source), storage.at(move.target)
    if storage.is_local:
        _check_size(storage, source, move)
    try:
        storage.move(source, target)
    except UnsafeError:
        raise
    except OSError:
        if storage.is_file(source):
            raise
        if storage.is_file(target) or read(storage, journal.job) is None:
            return  # Moved before, or by another process that has completed the commit.
        raise SinkError(
            f"a file of a decided commit is gone: neither {source} nor {target} exists",
            asked=f"{move.bytes} bytes",
            remedy="write those rows again · find out who removed the file",
            details={"path": target},
        ) from None


def _check_size(storage: Storage, source: str, move: Move) -> None:
    info = storage.info(source)
    if info.is_file and info.size != move.bytes:
        raise SinkError(
            f"a staged file of a decided commit has changed: {source}",
            asked=f"{move.bytes} bytes",
            have=f"{info.size} bytes",
            remedy="write those rows again · find out who changed the file",
            details={"path": source},
        )


def _remove_folders(storage: Storage, journal: Journal) -> None:
    folders = {path.rpartition("/")[0] for path in journal.removes} - {""}
    for folder in sorted(folders, key=len, reverse=True):
        while folder and storage.remove_empty(storage.at(folder)):
            folder = folder.rpartition("/")[0]  # noqa: PLW2901 - the parent
