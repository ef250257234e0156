"""The lifetime of the files of kept partitions on an executor: as long as that of Spark's own shuffle files.

Spark's files of the map output of a task attempt have its id in their names, as ours have:
``shuffle_<shuffle>_<attempt>_0.index``. Spark deletes them once the plan is garbage. A file of ours whose
shuffle file was there and is gone can never be asked for again. A sweep or a consumer that finds the shuffle
file, or reads the file, marks it by its modification time.

Times are those of the host's monotonic clock, which all processes share and nobody can set.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate._directories import local_directories
from headgate.spark.tasks.kept_files import FOLDER, KEPT, folder_for, is_own

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

_SHUFFLE: Final = re.compile(r"shuffle_\d+_(\d+)_\d+\.(?:index|data)")
#: Seconds from one sweep of an executor to the next.
_PERIOD: Final = 10.0
#: Seconds after which the attempt has failed if its file has no shuffle file. Once the pages are
#: written, Spark has only a row for each to write.
_ABANDONED: Final = 600.0
#: Modification time of a file whose task attempt is known to have succeeded.
_COMMITTED: Final = 1.0


def discard(exchange: str, producer: int, attempt: int) -> None:
    """Delete what a task attempt has kept, since it fails."""
    for path in folder_for(attempt).glob(f"kept-{exchange}-{producer}-{attempt}-*"):
        path.unlink(missing_ok=True)


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
    match = KEPT.fullmatch(path.name)
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
            folder = directory / FOLDER
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
    ours = [(match[3], match[4], Path(e)) for e in entries if (match := KEPT.fullmatch(e.name))]
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
            if folder.is_dir() and folder.name != FOLDER:
                for entry in os.scandir(folder):
                    if match := _SHUFFLE.fullmatch(entry.name):
                        yield match[1], Path(entry.path)
