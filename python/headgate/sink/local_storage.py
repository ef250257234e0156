"""The local file system of a sink. It obeys and deletes only files of its own user.

Other users may be able to write below a sink's path, and a sink acts on files that it finds there:
a recovery moves and deletes what a journal names. So every path below the sink's is opened folder
by folder, from the descriptor of the folder above, and no step follows a symbolic link. In the
folders that belong to Headgate, all files and folders must belong to the user of this process, and
a file must have no name in another folder. Files are made with ``O_EXCL``. The sink's path itself
may have links, because the caller names it.

A move is an atomic rename, and files and folders are synced to the disk.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat as kinds
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from headgate._locations import from_uri, is_uri, refuse_uri
from headgate.sink.failure import UnsafeError
from headgate.sink.layout import MARKERS, PARTIAL, STAGING
from headgate.sink.storage import TRIES, Entry, Storage, while_gone

#: Errors of file systems without hard links.
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})

#: Windows, which has only the wheel without the native module, lacks some of the flags.
_DIRECTORY: Final[int] = getattr(os, "O_DIRECTORY", 0)
_NO_FOLLOW: Final[int] = getattr(os, "O_NOFOLLOW", 0)
_FOLDER: Final = os.O_RDONLY | _DIRECTORY
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW
#: Not blocked by a pipe that somebody put there.
_READ: Final = os.O_RDONLY | _NO_FOLLOW | getattr(os, "O_NONBLOCK", 0)

_FOREIGN: Final = (
    "FileSink(path).recover() by that user · one user for driver and executors · another path"
)


class LocalStorage(Storage):
    """A folder of a local file system.

    Args:
        root: the folder's path; absolute.

    All methods raise an :class:`~headgate.sink.failure.UnsafeError` for a link below the root, and
    in Headgate's folders for a file of another user or with a name elsewhere.
    """

    is_local = True
    #: Modes of new files and folders. Readers of other users may list a sink's folders, but never write there.
    _file_mode = 0o666
    _folder_mode = 0o755
    _root_mode = 0o777

    def __init__(self, root: str) -> None:
        super().__init__(fs.LocalFileSystem(), root)
        self._mapped: int | None = None

    def info(self, path: str) -> Entry:
        """Return the facts of a path. A link below the root is neither a file nor a folder."""
        try:
            if self._is_outside(path):
                return _entry(path, os.stat(path))  # noqa: PTH116 - the path is a text
            with self._parent(path) as (folder, name):
                if self._is_ours(path):
                    return _entry(path, self._checked(folder, name, path))
                return _entry(path, _stat(folder, name))
        except (FileNotFoundError, NotADirectoryError):
            return Entry(path)

    def list(self, path: str, *, recursive: bool = False) -> list[Entry]:
        """Return the contents of a folder, sorted by path; none if the folder is missing."""
        entries: list[Entry] = []
        try:
            with suppress(FileNotFoundError, NotADirectoryError), self._folder(path) as folder:
                for below, folders, files, number in os.fwalk(dir_fd=folder, onerror=_raise):
                    above = path.rstrip("/") + below[1:]
                    for name in (*folders, *files):
                        with suppress(FileNotFoundError):
                            entries.append(_entry(f"{above}/{name}", _stat(number, name)))
                    if not recursive:
                        break
        except RecursionError:
            raise UnsafeError(f"{path} has too many folders, one in another") from None
        return sorted(entries, key=lambda entry: entry.path)

    def open_output(self, path: str) -> Any:
        """Return the output stream of a new file."""
        with self._parent(path) as (folder, name):
            number = os.open(name, _NEW, self._file_mode, dir_fd=folder)
        try:
            # pyarrow opens paths only. This path is the open file, wherever its name leads by now.
            return pa.OSFile(f"/proc/self/fd/{number}", "wb")
        finally:
            os.close(number)

    def touch(self, path: str) -> None:
        """Make an empty file, unless there is a file."""
        try:
            self.open_output(path).close()
        except FileExistsError:
            # Another job's is as good; one that is gone again will be written by whoever removed it.
            with suppress(FileNotFoundError), self._parent(path) as (folder, name):
                _check_kind(_stat(folder, name), path)

    def make_folder(self, path: str, *, parents: bool) -> None:
        """Make a folder; without ``parents`` its parent must exist, and it must not."""

        def make() -> None:
            os.makedirs(self.root, self._root_mode, exist_ok=True)  # noqa: PTH103 - the path is a text
            with self._folder(path, make=True):
                pass

        if parents:
            while_gone(make)
            return
        with self._parent(path) as (folder, name):
            os.mkdir(name, self._folder_mode, dir_fd=folder)

    def sync(self, path: str) -> None:
        """Make a file, or the names in a folder, durable."""
        if path == self.root:
            number = os.open(path, os.O_RDONLY)
        else:
            with self._parent(path) as (folder, name):
                number = os.open(name, _READ, dir_fd=folder)
        try:
            os.fsync(number)
        except OSError as error:
            # Some network file systems do not support the sync of a folder.
            if error.errno != errno.EINVAL:
                raise
        finally:
            os.close(number)

    def move(self, source: str, target: str) -> None:
        """Move a file of this user; replace a file of this user only."""
        with self._parent(source) as (here, old), self._parent(target) as (there, new):
            self._check_file(here, old, source)
            with suppress(FileNotFoundError):
                self._check_file(there, new, target)
            os.rename(old, new, src_dir_fd=here, dst_dir_fd=there)

    def move_new(self, source: str, target: str) -> None:
        """Move a file, without replacing another one.

        Raises:
            FileExistsError: the target exists.
        """
        with self._parent(source) as (here, old), self._parent(target) as (there, new):
            try:
                os.link(old, new, src_dir_fd=here, dst_dir_fd=there, follow_symlinks=False)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
            else:
                self.delete_file(source)
                return
        super().move_new(source, target)

    def delete_file(self, path: str) -> None:
        """Delete a file, if it exists; of a link, the link. In Headgate's folders only own ones."""
        with suppress(FileNotFoundError), self._parent(path) as (folder, name):
            if self._is_ours(path):
                self._check_owner(_stat(folder, name), path)
            os.unlink(name, dir_fd=folder)

    def remove_empty(self, path: str) -> bool:
        """Remove a folder if it is empty, in one atomic step; return True if it was removed."""
        try:
            if self._is_outside(path):
                os.rmdir(path)  # noqa: PTH106 - one call, atomic
                return True
            with self._parent(path) as (folder, name):
                if self._is_ours(path):
                    self._check_owner(_stat(folder, name), path)
                os.rmdir(name, dir_fd=folder)
        except OSError:
            return False
        return True

    def read(self, path: str) -> bytes | None:
        """Return the contents of a file; None if it does not exist."""
        try:
            with self._parent(path) as (folder, name):
                status = self._check_file(folder, name, path)
                number = os.open(name, _READ, dir_fd=folder)
        except FileNotFoundError:
            return None
        with open(number, "rb") as stream:  # noqa: PTH123 - a descriptor
            if not os.path.samestat(status, os.fstat(number)):
                raise UnsafeError(f"{path} was replaced while it was opened")
            return stream.read()

    def _delete_folder(self, path: str) -> None:
        with self._parent(path) as (folder, name):
            self._check_owner(_stat(folder, name), path)
            for below, _, files, number in os.fwalk(name, dir_fd=folder, onerror=_raise):
                self._check_owner(os.fstat(number), path)
                for file in files:
                    self._check_owner(_stat(number, file), f"{path}{below[len(name) :]}/{file}")
            shutil.rmtree(name, dir_fd=folder)

    def _is_outside(self, path: str) -> bool:
        """Return True for the root and the folders above it, whose links the caller chose."""
        return f"{self.root}/".startswith(path.rstrip("/") + "/")

    def _is_ours(self, path: str) -> bool:
        """Return True for a path in a folder of Headgate, where all files must be this user's."""
        return path[len(self.at("")) :].partition("/")[0] in {STAGING, MARKERS}

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        """Yield a descriptor of the folder of a path below the root, and the name in it."""
        above, _, name = path.rpartition("/")
        if self._is_outside(path) or name in {"", ".", ".."}:
            raise UnsafeError(f"{path} is no path below {self.root}")
        with self._folder(above or "/") as folder:
            yield folder, name

    @contextmanager
    def _folder(self, path: str, *, make: bool = False) -> Iterator[int]:
        """Yield a descriptor of the root or a folder below it; make missing ones if asked to."""
        number = os.open(self.root, _FOLDER)
        try:
            at = self.root.rstrip("/")
            for name in self._names(path):
                at = f"{at}/{name}"
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, self._folder_mode, dir_fd=number)
                inner = self._enter(number, name, at)
                os.close(number)
                number = inner
            yield number
        finally:
            os.close(number)

    def _names(self, path: str) -> Sequence[str]:
        """Return the names that lead from the root to a folder."""
        start = self.at("")
        names = path[len(start) :].split("/") if path != self.root else []
        if not f"{path}/".startswith(start) or not {"", ".", ".."}.isdisjoint(names):
            raise UnsafeError(f"{path} is no path below {self.root}")
        return names

    def _enter(self, folder: int, name: str, path: str) -> int:
        try:
            number = os.open(name, _FOLDER | _NO_FOLLOW, dir_fd=folder)
        except NotADirectoryError:
            _check_kind(_stat(folder, name), path)
            raise UnsafeError(f"{path} is no folder") from None
        try:
            if self._is_ours(path):
                self._check_owner(os.fstat(number), path)
        except BaseException:
            os.close(number)
            raise
        return number

    def _checked(self, folder: int, name: str, path: str) -> os.stat_result:
        """Return the facts of a file or folder of this user that has no name elsewhere."""
        status = _stat(folder, name)
        _check_kind(status, path)
        self._check_owner(status, path)
        for _ in range(TRIES):
            # move_new() gives a file two names in its folder for a moment, and for good in a crash.
            if not kinds.S_ISREG(status.st_mode) or status.st_nlink == _names_of(status, folder):
                return status
            status = _stat(folder, name)
        raise UnsafeError(f"{path} is a hard link: its file has a name in another folder")

    def _check_file(self, folder: int, name: str, path: str) -> os.stat_result:
        status = self._checked(folder, name, path)
        if not kinds.S_ISREG(status.st_mode):
            raise UnsafeError(f"{path} is no file")
        return status

    def _check_owner(self, status: os.stat_result, path: str) -> None:
        if status.st_uid not in {os.geteuid(), self._mapped} and status.st_uid != self._probe():
            raise UnsafeError(
                f"{path} belongs to user {status.st_uid}; this process runs as {os.geteuid()}, and"
                " Headgate uses only files of its own user there",
                _FOREIGN,
            )

    def _probe(self) -> int | None:
        """Return the owner that this file system gives to a new file: network mounts map users."""
        name = f".{secrets.token_hex(8)}{PARTIAL}"
        with suppress(OSError), self._folder(self.root) as folder:
            number = os.open(name, _NEW, 0o600, dir_fd=folder)
            try:
                self._mapped = os.fstat(number).st_uid
            finally:
                os.close(number)
                os.unlink(name, dir_fd=folder)
        return self._mapped


class PrivateStorage(LocalStorage):
    """A folder that is all Headgate's, and that no other user may read: of checkpoints and savepoints."""

    _file_mode = 0o600
    _folder_mode = _root_mode = 0o700

    def move_new(self, source: str, target: str) -> None:
        """Move a file, without replacing another one, in one atomic step.

        Raises:
            FileExistsError: the target exists.
            OSError: the file system has no hard links.
        """
        with self._parent(source) as (here, old), self._parent(target) as (there, new):
            os.link(old, new, src_dir_fd=here, dst_dir_fd=there, follow_symlinks=False)
        self.delete_file(source)

    def _is_ours(self, path: str) -> bool:
        """Return True: all files must be this user's."""
        return not self._is_outside(path)


def private_storage(filesystem: fs.FileSystem, root: str) -> tuple[Storage, str]:
    """Return the storage of a folder that is all Headgate's, and the path of its file system's root in it."""
    prefix = _local_prefix(filesystem)
    if prefix is None:
        return Storage(filesystem, root), ""
    return PrivateStorage(prefix + root), prefix


def storage_of(path: str, filesystem: fs.FileSystem | None) -> Storage:
    """Return the storage of a path: a URI, a local path, or a path of the file system.

    Raises:
        OptionError: pyarrow does not have the file system, or the path is a URI beside a file system.
    """
    if filesystem is not None:
        refuse_uri(path, filesystem)
    elif is_uri(path):
        filesystem, path = from_uri(path)
    else:
        filesystem = fs.LocalFileSystem()
    prefix = _local_prefix(filesystem)
    if prefix is None:
        return Storage(filesystem, path)
    return LocalStorage(os.path.abspath(prefix + path))  # noqa: PTH100 - links stay


def _local_prefix(filesystem: fs.FileSystem) -> str | None:
    if isinstance(filesystem, fs.LocalFileSystem):
        return ""
    if isinstance(filesystem, fs.SubTreeFileSystem):
        above = _local_prefix(filesystem.base_fs)
        return None if above is None else above + filesystem.base_path
    return None


def _stat(folder: int, name: str) -> os.stat_result:
    return os.stat(name, dir_fd=folder, follow_symlinks=False)


def _entry(path: str, status: os.stat_result) -> Entry:
    is_file, is_folder = kinds.S_ISREG(status.st_mode), kinds.S_ISDIR(status.st_mode)
    return Entry(path, is_file, is_folder, status.st_size if is_file else None, status.st_mtime_ns)


def _names_of(status: os.stat_result, folder: int) -> int:
    """Return the number of names that a file has in a folder."""
    if status.st_nlink == 1:
        return 1
    with os.scandir(folder) as names:
        return sum(entry.inode() == status.st_ino for entry in names)


def _check_kind(status: os.stat_result, path: str) -> None:
    if kinds.S_ISLNK(status.st_mode):
        raise UnsafeError(f"{path} is a symbolic link, and Headgate follows none there")
    if not kinds.S_ISREG(status.st_mode) and not kinds.S_ISDIR(status.st_mode):
        raise UnsafeError(f"{path} is neither a file nor a folder")


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
