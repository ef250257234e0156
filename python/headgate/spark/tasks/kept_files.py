"""The files of kept partitions on an executor, which live as long as Spark's own shuffle files.

A producer leaves a file of pages, unless it has few, and where executors may be lost a file of indexes
beside it. Each file has the id of the task attempt that wrote it in its name. So have Spark's files of the map
output of that attempt, ``shuffle_<shuffle>_<attempt>_0.index``, which Spark deletes once the plan is
garbage. A file of ours whose shuffle file was there and is gone can never be asked for again. A sweep
or a consumer that finds the shuffle file, or reads the file, marks it by its modification time.

Times are those of the host's monotonic clock, which all processes share and nobody can set.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate._directories import local_directories
from headgate.errors import SpillError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

#: Folder of our files in each of the executor's local directories.
_FOLDER: Final = "headgate"
#: Exchange, producer, task attempt, and the time at which the pages were written.
_KEPT: Final = re.compile(r"kept-([0-9a-f]+)-(\d+)-(\d+)-(\d+)(\.index|\.new)?")
_SHUFFLE: Final = re.compile(r"shuffle_\d+_(\d+)_\d+\.(?:index|data)")
#: Seconds from one sweep of an executor to the next.
_PERIOD: Final = 10.0
#: Seconds after which the attempt has failed if its file has no shuffle file. Once the pages are
#: written, Spark has only a row for each to write.
_ABANDONED: Final = 600.0
#: Modification time of a file whose task attempt is known to have succeeded.
_COMMITTED: Final = 1.0


def folder_for(attempt: int) -> Path:
    """Return the folder for the file of a task attempt, in one of the executor's local directories.

    Raises:
        RuntimeError: this process is not a worker of Spark.
    """
    directories = local_directories()
    if not directories:
        raise RuntimeError("Spark gave this worker no local directory: SPARK_LOCAL_DIRS is not set")
    return owned(Path(directories[attempt % len(directories)], _FOLDER))


def owned(folder: Path) -> Path:
    """Return a folder of ours, which is made if it is missing.

    Raises:
        SpillError: another user has made it, or may write to it.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not is_own(folder):
        raise SpillError(
            f"{folder} is a link, belongs to another user, or can be written by others",
            remedy="delete it · set spark.local.dir to a folder of this user alone",
        )
    return folder


def is_own(folder: Path) -> bool:
    """Return True for a folder that this user alone can write to. Anybody may put others beside it below /tmp."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    is_closed = not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and is_closed


def path_in(folder: Path, exchange: str, producer: int, attempt: int, ahead: int = 0) -> Path:
    """Return the path for the pages of a task attempt that has written all of them by now.

    Args:
        folder: of :func:`folder_for`.
        exchange: name of the exchange.
        producer: number of the task.
        attempt: id of the attempt.
        ahead: seconds that the task may still take, in which no sweep takes it for a failed one.
    """
    return folder / f"kept-{exchange}-{producer}-{attempt}-{int(time.monotonic()) + ahead}"


def discard(exchange: str, producer: int, attempt: int) -> None:
    """Delete what a task attempt has kept, since it fails."""
    for path in folder_for(attempt).glob(f"kept-{exchange}-{producer}-{attempt}-*"):
        path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class IndexFile:
    """The file of indexes that one attempt at a producer left.

    Attributes:
        exchange: name of the exchange.
        producer: number of the task.
        attempt: id of the attempt, unique in the application.
        path: of the file.
    """

    exchange: str
    producer: int
    attempt: int
    path: Path

    @property
    def partition_id(self) -> bytes:
        """The name by which a host serves the partition."""
        return partition_id(self.exchange, self.producer, self.attempt)


def partition_id(exchange: str, producer: int, attempt: int) -> bytes:
    """Return 16 bytes that name what an attempt at a producer left."""
    name = f"{exchange}-{producer}-{attempt}".encode("ascii")
    return hashlib.blake2b(name, digest_size=16).digest()


def folders_of(directories: Iterable[str]) -> list[Path]:
    """Return our folders in these local directories, whether they exist or not."""
    return [Path(directory, _FOLDER) for directory in directories]


def index_files(folders: Iterable[Path]) -> Iterator[IndexFile]:
    """Yield the files of indexes in those of these folders that are ours."""
    for folder in filter(is_own, folders):
        with contextlib.suppress(OSError):  # that executor has ended
            for entry in os.scandir(folder):
                match = _KEPT.fullmatch(entry.name)
                is_index = match is not None and match[5] == ".index"
                if match is not None and is_index and entry.is_file(follow_symlinks=False):
                    yield IndexFile(match[1], int(match[2]), int(match[3]), Path(entry.path))


def find_indexes(exchange: str, directories: Sequence[str]) -> dict[int, dict[int, Path]]:
    """Return the indexes that producers left on this host: those of each attempt at each producer.

    Args:
        exchange: name of the exchange.
        directories: Spark's local directories on this executor.
    """
    indexes: dict[int, dict[int, Path]] = {}
    for index in index_files(_folders_of_host(directories)):
        if index.exchange == exchange:
            indexes.setdefault(index.producer, {})[index.attempt] = index.path
    return indexes


def _folders_of_host(directories: Sequence[str]) -> set[Path]:
    """Return our folders in the local directories of all executors of this host."""
    folders: set[Path] = set()
    for directory in map(Path, directories):
        folders.add(directory / _FOLDER)
        # Executors of YARN, and of one application in general.
        folders.update(directory.parent.glob(f"blockmgr-*/{_FOLDER}"))
        if directory.parent.name.startswith("executor-"):
            # Standalone: each worker of the host has a directory, and in it one for each executor.
            folders.update(directory.parents[2].glob(f"spark-*/executor-*/blockmgr-*/{_FOLDER}"))
    return folders


def mark_committed(file: str) -> None:
    """Mark a file as one of a task attempt that succeeded."""
    with contextlib.suppress(FileNotFoundError):  # its reader raises the error
        os.utime(file, (_COMMITTED, _COMMITTED))


def give_up(file: str) -> None:
    """Delete Spark's map output of the task attempt whose pages or indexes are damaged or gone.

    A sweep deletes our file, from which other consumers may read what is not damaged.

    Args:
        file: the name of the pages or of the indexes.
    """
    path = Path(file)
    match = _KEPT.fullmatch(path.name)
    if match is not None:
        give_up_attempts({match[3]}, {str(path.parent.parent), *local_directories()})


def give_up_attempts(attempts: Container[str], directories: Iterable[str]) -> None:
    """Delete Spark's map output of these task attempts.

    The next attempt at a consumer asks Spark for that output. Spark finds that it is gone, and runs the
    producer again.

    Args:
        attempts: ids of task attempts.
        directories: Spark's local directories on the executor that ran them.
    """
    for directory in directories:
        with contextlib.suppress(FileNotFoundError):  # that executor ends
            for attempt, output in _map_outputs([directory]):
                if attempt in attempts:
                    output.unlink(missing_ok=True)


def sweep(directories: Sequence[str], succeeded: Container[int] = ()) -> bool:
    """Delete the files of an executor that nobody can ask for any more; at most each 10 s.

    Args:
        directories: Spark's local directories on the executor, which is on this host.
        succeeded: task attempts that are known to have succeeded. Without it, a file whose shuffle file
            came and went between two sweeps stays as long as that of a failed attempt.

    Returns:
        True if files may be left.
    """
    left = False
    for directory in map(Path, directories):
        with contextlib.suppress(FileNotFoundError):  # no file of ours, or the executor ends
            folder = directory / _FOLDER
            left |= not _is_due(folder) or _sweep(folder, directories, succeeded)
    return left


def _is_due(folder: Path) -> bool:
    """Return True if the last sweep was some time ago, and note the time of this one."""
    stamp = folder / ".swept"
    now = time.monotonic()
    try:
        if now - stamp.stat().st_mtime < _PERIOD:
            return False
    except FileNotFoundError:
        folder.stat()
        stamp.touch()
    os.utime(stamp, (now, now))
    return True


def _sweep(folder: Path, directories: Sequence[str], succeeded: Container[int]) -> bool:
    if not is_own(folder):
        return False  # nobody uses it
    entries = os.scandir(folder)
    ours = [(match[3], match[4], Path(e)) for e in entries if (match := _KEPT.fullmatch(e.name))]
    if not ours:
        return False
    committed = {attempt for attempt, _ in _map_outputs(directories)}
    now = time.monotonic()
    for attempt, written, path in ours:
        with contextlib.suppress(FileNotFoundError):  # another worker sweeps too
            changed = path.stat().st_mtime
            if attempt in committed:
                if changed != _COMMITTED:
                    mark_committed(str(path))
            elif (
                changed == _COMMITTED
                or int(attempt) in succeeded
                or now - int(written) > _ABANDONED
            ):
                path.unlink()
    return True


def _map_outputs(directories: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Yield Spark's files of map output on an executor, each with the id of its task attempt."""
    for directory in directories:
        for folder in os.scandir(directory):
            if folder.is_dir() and folder.name != _FOLDER:
                for entry in os.scandir(folder):
                    if match := _SHUFFLE.fullmatch(entry.name):
                        yield match[1], Path(entry.path)
