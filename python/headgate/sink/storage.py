"""The file system of a sink: pyarrow's, with exclusive writes and retries.

There is no sync, because an object is durable once it is closed. If pyarrow's move is a copy and a
deletion, as on object stores, the file is in both places for a moment. Local file systems have
:class:`~headgate.sink.local_storage.LocalStorage`.
"""

from __future__ import annotations

import errno
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pyarrow import fs

from headgate.sink.failure import UnsafeError
from headgate.sink.layout import PARTIAL

#: Tries of a step that other processes may disturb, because they clean up or still write.
TRIES: Final = 20
_PAUSE: Final = 0.05

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Entry:
    """A name in a folder. A link, a socket or a missing file is neither a file nor a folder.

    Attributes:
        path: the path in the file system.
        is_file: True for a regular file.
        is_folder: True for a folder.
        size: size in bytes, if it is a file.
        mtime_ns: time of the last change, in nanoseconds since 1970, if it is known.
    """

    path: str
    is_file: bool = False
    is_folder: bool = False
    size: int | None = None
    mtime_ns: int | None = None


class Storage:
    """A folder of a file system.

    Args:
        filesystem: any file system of pyarrow.
        root: the folder's path in that file system.
    """

    #: True if a move is a rename and files can be synced.
    is_local: bool = False

    def __init__(self, filesystem: fs.FileSystem, root: str) -> None:
        self.filesystem = filesystem
        self.root = root if root == "/" else root.rstrip("/")

    def at(self, *names: str) -> str:
        """Return the path of a name below the root."""
        return "/".join([self.root.rstrip("/"), *names])

    def info(self, path: str) -> Entry:
        """Return the facts of a path."""
        return _entry(self.filesystem.get_file_info(path))

    def is_file(self, path: str) -> bool:
        """Return True if there is a file."""
        return self.info(path).is_file

    def is_folder(self, path: str) -> bool:
        """Return True if there is a folder."""
        return self.info(path).is_folder

    def list(self, path: str, *, recursive: bool = False) -> list[Entry]:
        """Return the contents of a folder, sorted by path; none if the folder is missing."""
        selector = fs.FileSelector(path, allow_not_found=True, recursive=recursive)
        # pyarrow raises if a folder disappears while it lists it.
        infos = while_gone(lambda: self.filesystem.get_file_info(selector))
        return sorted(map(_entry, infos), key=lambda entry: entry.path)

    def open_output(self, path: str) -> Any:
        """Return the output stream of a new file."""
        return self.filesystem.open_output_stream(path)

    def touch(self, path: str) -> None:
        """Make an empty file, unless there is a file."""
        self.open_output(path).close()

    def make_folder(self, path: str, *, parents: bool) -> None:
        """Make a folder; without ``parents`` its parent must exist."""

        def make() -> None:
            self.filesystem.create_dir(path, recursive=parents)

        if parents:
            while_gone(make)
        else:
            make()

    def sync(self, path: str) -> None:
        """Make a file, or the names in a folder, durable, if the file system has to be asked."""

    def move(self, source: str, target: str) -> None:
        """Move a file."""
        self.filesystem.move(source, target)

    def move_new(self, source: str, target: str) -> None:
        """Move a file, without replacing another one.

        Raises:
            FileExistsError: the target exists.
        """
        if self.is_file(target):
            raise FileExistsError(errno.EEXIST, "there is a file", target)
        self.move(source, target)

    def delete_file(self, path: str) -> None:
        """Delete a file, if it exists."""
        with suppress(FileNotFoundError):
            self.filesystem.delete_file(path)

    def delete_tree(self, path: str) -> None:
        """Delete a folder and its contents, if it exists."""
        for attempt in range(TRIES):
            try:
                self._delete_folder(path)
            except UnsafeError:
                raise
            except OSError:
                if not self.is_folder(path):
                    return
                # A task that is being cancelled may still add a file.
                if attempt == TRIES - 1:
                    raise
            else:
                return
            time.sleep(_PAUSE)

    def remove_empty(self, path: str) -> bool:  # noqa: ARG002 - overridden
        """Remove a folder if it is empty; return True if it was removed.

        Only on local file systems, where it is atomic. Most others have no empty folders.
        """
        return False

    def read(self, path: str) -> bytes | None:
        """Return the contents of a file; None if it does not exist."""
        try:
            with self.filesystem.open_input_stream(path) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def write_atomic(
        self, path: str, data: bytes, *, through: str, exclusive: bool = False
    ) -> None:
        """Write a file atomically and durably.

        Several processes may write the same contents at the same time.

        Args:
            path: the file.
            data: the contents.
            through: the folder of the unfinished file.
            exclusive: True to fail if the file exists; see :meth:`write_first`.

        Raises:
            FileExistsError: the file exists, and ``exclusive`` is True.
        """
        unfinished = f"{through}/{secrets.token_hex(4)}{PARTIAL}"
        with self.open_output(unfinished) as stream:
            stream.write(data)
        self.sync(unfinished)
        try:
            if exclusive:
                self.move_new(unfinished, path)
            else:
                self.move(unfinished, path)
        except FileExistsError:
            self.delete_file(unfinished)
            raise
        except FileNotFoundError:
            # Another process that completed the same commit has cleaned up.
            if exclusive or not self.is_file(path):
                raise
        self.sync(path.rpartition("/")[0] or "/")

    def write_first(self, path: str, data: bytes, *, exclusive: bool = False) -> None:
        """Write the first file of a folder atomically and durably, and make the folder.

        Retries if another process removes the folder, which it may do before the file is complete.

        Args:
            path: the file.
            data: the contents.
            exclusive: True to fail if the file exists. Only on local file systems the check and
                the write are one atomic step.

        Raises:
            FileExistsError: the file exists, and ``exclusive`` is True.
        """
        folder = path.rpartition("/")[0]

        def write() -> None:
            self.make_folder(folder, parents=True)
            self.write_atomic(path, data, through=folder, exclusive=exclusive)

        while_gone(write)

    def _delete_folder(self, path: str) -> None:
        self.filesystem.delete_dir(path)


def while_gone(action: Callable[[], _T]) -> _T:
    """Retry an action while other processes that clean up remove its folder."""
    for _ in range(TRIES - 1):
        with suppress(FileNotFoundError):
            return action()
    return action()


def _entry(info: Any) -> Entry:
    return Entry(
        info.path,
        is_file=info.type == fs.FileType.File,
        is_folder=info.type == fs.FileType.Directory,
        size=info.size,
        mtime_ns=info.mtime_ns,
    )
