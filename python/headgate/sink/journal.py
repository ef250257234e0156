"""The journal of a commit: written before the first file moves, so that a crash can be rolled forward.

A commit is decided when its journal is there. From then on every step can be done again, by anybody:
a file that is in its place stays there, one that is gone is not deleted again. Two processes may even
do it at the same time, because names are never used twice.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from headgate.errors import SinkError
from headgate.sink.failure import failing, say_decided
from headgate.sink.layout import JOB, JOURNAL, STAGING, SUCCESS

if TYPE_CHECKING:
    from headgate.sink.storage import Storage

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Move:
    """A file on its way; paths are relative to the sink's.

    Attributes:
        source: where it was staged.
        target: where it becomes visible.
        bytes: its size.
    """

    source: str
    target: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Journal:
    """A decided commit.

    Attributes:
        job: whose.
        moves: files that become visible.
        removes: files that an overwrite removes when the new ones are in place.
        marker: the file that says that a streaming batch is committed, or None.
        rows: in all files that move.
    """

    job: str
    moves: tuple[Move, ...]
    removes: tuple[str, ...] = ()
    marker: str | None = None
    rows: int = 0

    def to_json(self) -> bytes:
        """Return it as text."""
        return json.dumps({"version": _VERSION, **asdict(self)}).encode()

    @classmethod
    def from_json(cls, text: bytes, path: str) -> Journal:
        """Return what :meth:`to_json` made text of.

        Raises:
            SinkError: it is something else, or a newer version's.
        """
        try:
            told = json.loads(text)
            version = told.pop("version")
            if version != _VERSION:
                raise SinkError(
                    f"the journal {path} is of version {version}; this Headgate knows {_VERSION}",
                    remedy="the version of Headgate that wrote it",
                )
            moves = tuple(Move(**move) for move in told.pop("moves"))
            return cls(moves=moves, removes=tuple(told.pop("removes")), **told)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SinkError(
                f"the journal {path} cannot be read: {error}",
                remedy="look at the files that it names · delete it, and its job's files with it",
            ) from error


def read(storage: Storage, job: str) -> Journal | None:
    """Return the journal of a job; None when its commit is not decided."""
    path = storage.at(STAGING, job, JOURNAL)
    with failing("read", path):
        text = storage.read(path)
    return None if text is None else Journal.from_json(text, path)


def write(storage: Storage, journal: Journal) -> bool:
    """Decide a commit; return False where another process has decided it otherwise."""
    path = storage.at(STAGING, journal.job, JOURNAL)
    try:
        with failing("write", path):
            try:
                storage.write_first(path, journal.to_json(), exclusive=True)
            except FileExistsError:
                return False
    except SinkError as error:
        # Its name may be there, and only the sync after it have failed.
        if storage.is_file(path):
            say_decided(error)
        raise
    return True


def roll_forward(storage: Storage, journal: Journal) -> bool:
    """Do what a journal says, from wherever it was left; return False when it was done already.

    A batch whose marker is there is done, even if by another journal: files move before it.

    Args:
        storage: the sink's folder.
        journal: the decided commit.

    Raises:
        SinkError: a step could not be done, or a file is neither staged nor in its place.
    """
    with failing("complete the commit at", storage.root, decided=True):
        try:
            return _steps(storage, journal)
        except FileNotFoundError:
            # Without a journal another process has completed the commit, and cleaned up, meanwhile.
            if read(storage, journal.job) is not None:
                raise
            return False


def clean(storage: Storage, job: str, *, attempts: set[str] | None = None) -> None:
    """Remove a job's folder: what it staged first, then the journal, then what says whose it is.

    In this order a crash leaves something that can still be told and cleaned.

    Args:
        storage: the sink's folder.
        job: whose folder.
        attempts: only these attempts' and, if no other is there then, the rest.
    """
    folder = storage.at(STAGING, job)
    with failing("clean up", folder):
        for info in storage.list(folder):
            name = info.path.rpartition("/")[2]
            if name in {JOURNAL, JOB}:
                continue
            if info.is_file:
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


def _steps(storage: Storage, journal: Journal) -> bool:
    marker = None if journal.marker is None else storage.at(journal.marker)
    if marker is not None and storage.is_file(marker):
        return False
    if marker is None:
        # Absent while files move: who waits for it sees no half of a job.
        storage.delete_file(storage.at(SUCCESS))
    for move in journal.moves:
        _move(storage, journal, move)
    storage.sync(storage.root)
    for path in journal.removes:
        storage.delete_file(storage.at(path))
    _remove_folders(storage, journal)
    folder = storage.at(STAGING, journal.job)
    if marker is None:
        # Empty, so it is never half there; and made even if the job's folder is gone meanwhile.
        storage.open_output(storage.at(SUCCESS)).close()
        storage.sync(storage.root)
        return True
    storage.make_folder(marker.rpartition("/")[0], parents=True)
    told = {"rows": journal.rows, "files": [move.target for move in journal.moves]}
    storage.write_atomic(marker, json.dumps(told).encode(), through=folder)
    return True


def _move(storage: Storage, journal: Journal, move: Move) -> None:
    source, target = storage.at(move.source), storage.at(move.target)
    try:
        storage.move(source, target)
    except OSError:
        if storage.is_file(source):
            raise
        if storage.is_file(target) or read(storage, journal.job) is None:
            return  # done before, here or by another process that has ended the commit since
        raise SinkError(
            f"a file of a decided commit is gone: neither {source} nor {target} is there",
            asked=f"{move.bytes} bytes",
            remedy="write those rows again · look for who removed the file",
            details={"path": target},
        ) from None


def _remove_folders(storage: Storage, journal: Journal) -> None:
    folders = {path.rpartition("/")[0] for path in journal.removes} - {""}
    for folder in sorted(folders, key=len, reverse=True):
        while folder and storage.remove_empty(storage.at(folder)):
            folder = folder.rpartition("/")[0]  # noqa: PLW2901 - climbs
