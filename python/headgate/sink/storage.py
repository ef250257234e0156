"""The file system of a sink: pyarrow's, with syncs, exclusive writes and retries.

On local file systems a move is an atomic rename, and files and folders are synced to the disk. On
others there is no sync, because an object is durable once it is closed. If pyarrow's move is a copy
and a deletion, as on object stores, the file is in both places for a moment.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from pyarrow import fs

from headgate.sink.api import check_name

#: Tries of a step that other processes may disturb, because they clean up or still write.
_TRIES: Final = 20
_PAUSE: Final = 0.05
#: Errors of file systems without hard links.
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})
#: Suffix of a file that :meth:`Storage.write_atomic` has not finished.
PARTIAL: Final = ".partial"

_T = TypeVar("_T")


class Storage:
    """A folder of a file system.

    Args:
        filesystem: any file system of pyarrow.
        root: the folder's path in that file system.
    """

    def __init__(self, filesystem: fs.FileSystem, root: str) -> None:
        self.filesystem = filesystem
        self.root = root if root == "/" else root.rstrip("/")
        self._prefix = _local_prefix(filesystem)

    @classmethod
    def of(cls, path: str, filesystem: fs.FileSystem | None) -> Storage:
        """Return the storage of a path: a URI, a local path, or a path of the file system."""
        if filesystem is not None:
            return cls(filesystem, path)
        if "://" not in path and not path.startswith("file:/"):
            return cls(fs.LocalFileSystem(), os.path.abspath(path))  # noqa: PTH100 - no symlinks
        scheme, _, rest = path.partition(":")
        # Hadoop's names of S3.
        scheme = "s3" if scheme in {"s3a", "s3n"} else scheme
        return cls(*fs.FileSystem.from_uri(f"{scheme}:{rest}"))

    @property
    def is_local(self) -> bool:
        """True if a move is a rename and files can be synced."""
        return self._prefix is not None

    def at(self, *names: str) -> str:
        """Return the path of a name below the root."""
        return "/".join([self.root.rstrip("/"), *names])

    def info(self, path: str) -> Any:
        """Return pyarrow's FileInfo."""
        return self.filesystem.get_file_info(path)

    def is_file(self, path: str) -> bool:
        """Return True if there is a file."""
        return bool(self.info(path).type == fs.FileType.File)

    def is_folder(self, path: str) -> bool:
        """Return True if there is a folder."""
        return bool(self.info(path).type == fs.FileType.Directory)

    def list(self, path: str, *, recursive: bool = False) -> list[Any]:
        """Return the FileInfos in a folder, sorted by path; none if the folder is missing."""
        selector = fs.FileSelector(path, allow_not_found=True, recursive=recursive)
        # pyarrow raises if a folder disappears while it lists it.
        found = _while_gone(lambda: self.filesystem.get_file_info(selector))
        return sorted(found, key=lambda info: info.path)

    def open_output(self, path: str) -> Any:
        """Return the output stream of a new file."""
        return self.filesystem.open_output_stream(path)

    def make_folder(self, path: str, *, parents: bool) -> None:
        """Make a folder; without ``parents`` its parent must exist."""

        def make() -> None:
            self.filesystem.create_dir(path, recursive=parents)

        if parents:
            _while_gone(make)
        else:
            make()

    def sync(self, path: str) -> None:
        """Make a file, or the names in a folder, durable."""
        if self._prefix is None:
            return
        number = os.open(self._prefix + path, os.O_RDONLY)
        try:
            os.fsync(number)
        except OSError as error:
            # Some network file systems do not support the sync of a folder.
            if error.errno != errno.EINVAL:
                raise
        finally:
            os.close(number)

    def move(self, source: str, target: str) -> None:
        """Move a file."""
        self.filesystem.move(source, target)

    def move_new(self, source: str, target: str) -> None:
        """Move a file, without replacing another one.

        Raises:
            FileExistsError: the target exists.
        """
        if self._prefix is not None:
            try:
                os.link(self._prefix + source, self._prefix + target)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
            else:
                self.delete_file(source)
                return
        if self.is_file(target):
            raise FileExistsError(errno.EEXIST, "there is a file", target)
        self.move(source, target)

    def delete_file(self, path: str) -> None:
        """Delete a file, if it exists."""
        try:
            self.filesystem.delete_file(path)
        except FileNotFoundError:
            return

    def delete_tree(self, path: str) -> None:
        """Delete a folder and its contents, if it exists."""
        for attempt in range(_TRIES):
            try:
                self.filesystem.delete_dir(path)
            except OSError:
                if not self.is_folder(path):
                    return
                # A task that is being cancelled may still add a file.
                if attempt == _TRIES - 1:
                    raise
            else:
                return
            time.sleep(_PAUSE)

    def remove_empty(self, path: str) -> bool:
        """Remove a folder if it is empty; return True if it was removed.

        Only on local file systems, where it is atomic. Most others have no empty folders.
        """
        if self._prefix is None:
            return False
        try:
            os.rmdir(self._prefix + path)  # noqa: PTH106 - one call, atomic
        except OSError:
            return False
        return True

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

        _while_gone(write)


def _while_gone(action: Callable[[], _T]) -> _T:
    """Retry an action while other processes that clean up remove its folder."""
    for _ in range(_TRIES - 1):
        with suppress(FileNotFoundError):
            return action()
    return action()


def is_hidden(path: str) -> bool:
    """Return True if readers ignore a relative path: a component starts with "_" or "."."""
    return any(part.startswith(("_", ".")) for part in path.split("/"))


def is_name(text: str) -> bool:
    """Return True if a text is a valid name of a job or an attempt."""
    try:
        check_name(text)
    except ValueError:
        return False
    return True


def _local_prefix(filesystem: fs.FileSystem) -> str | None:
    if isinstance(filesystem, fs.LocalFileSystem):
        return ""
    if isinstance(filesystem, fs.SubTreeFileSystem):
        above = _local_prefix(filesystem.base_fs)
        return None if above is None else above + filesystem.base_path
    return None
