"""The names and folders of the files of kept partitions on an executor.

A producer leaves a file of pages, unless it has few, and where executors may be lost a file of indexes
beside it. Each file has the id of the task attempt that wrote it in its name.
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
    from collections.abc import Iterable, Iterator, Sequence

#: Folder of our files in each of the executor's local directories.
FOLDER: Final = "headgate"
#: Exchange, producer, task attempt, and the time at which the pages were written.
KEPT: Final = re.compile(r"kept-([0-9a-f]+)-(\d+)-(\d+)-(\d+)(\.index|\.new)?")


def folder_for(attempt: int) -> Path:
    """Return the folder for the file of a task attempt, in one of the executor's local directories.

    Raises:
        RuntimeError: this process is not a worker of Spark.
    """
    directories = local_directories()
    if not directories:
        raise RuntimeError("Spark gave this worker no local directory: SPARK_LOCAL_DIRS is not set")
    return owned(Path(directories[attempt % len(directories)], FOLDER))


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
    return [Path(directory, FOLDER) for directory in directories]


def index_files(folders: Iterable[Path]) -> Iterator[IndexFile]:
    """Yield the files of indexes in those of these folders that are ours."""
    for folder in filter(is_own, folders):
        with contextlib.suppress(OSError):  # that executor has ended
            for entry in os.scandir(folder):
                match = KEPT.fullmatch(entry.name)
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
        folders.add(directory / FOLDER)
        # Executors of YARN, and of one application in general.
        folders.update(directory.parent.glob(f"blockmgr-*/{FOLDER}"))
        if directory.parent.name.startswith("executor-"):
            # Standalone: each worker of the host has a directory, and in it one for each executor.
            folders.update(directory.parents[2].glob(f"spark-*/executor-*/blockmgr-*/{FOLDER}"))
    return folders
