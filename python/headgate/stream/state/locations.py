"""Paths and URIs of folders and files, as pyarrow's file systems open them.

A URI may have a query with options of the file system, such as ``s3://bucket/job?region=eu-west-1``. What is below it has
the same query.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyarrow import fs

from headgate._locations import from_uri, is_uri
from headgate.sink.local_storage import private_storage

if TYPE_CHECKING:
    from headgate.sink.storage import Storage

#: Folder of the tasks' folders in that of a checkpoint or savepoint.
TASKS: Final = "tasks"


def filesystem_of(path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI, and the path in it.

    Raises:
        OSError: the file system cannot be reached.
        OptionError: pyarrow knows no such file system, or the URI is none.
    """
    if not is_uri(path):
        return fs.LocalFileSystem(), absolute(path)
    filesystem, root = from_uri(path)
    return filesystem, root.rstrip("/")


def storage_of(path: str, filesystem: fs.FileSystem | None = None) -> tuple[Storage, str]:
    """Return the storage of a folder of a checkpoint or savepoint, and the folder's path in it.

    Below the folder that the user named, the storage of a local file system follows no link, uses only files of this
    process's user, and makes files that no other user can read.

    Args:
        path: the folder, in the file system if one is given, else a path or URI.
        filesystem: any file system of pyarrow.

    Raises:
        OSError: the file system cannot be reached.
        OptionError: pyarrow knows no such file system, or the URI is none.
    """
    if filesystem is None:
        filesystem, path = filesystem_of(path)
    path = path.rstrip("/")
    # The names of tasks have no slash, so this is the last one of the name.
    root = path.rpartition(f"/{TASKS}/")[0] or path
    storage, prefix = private_storage(filesystem, root)
    return storage, prefix + path


def absolute(path: str) -> str:
    """Return a path from the root, so that other processes find it as well; a URI stays as it is."""
    return below(path, "") if is_uri(path) else str(Path(path).absolute())


def below(folder: str, name: str) -> str:
    """Return the path or URI of what has this name, which may have slashes, in a folder."""
    path, query = _parts(folder)
    return f"{path.rstrip('/')}/{name}".rstrip("/") + query


def split_path(path: str) -> tuple[str, str]:
    """Return the folder and the name of a file."""
    path, query = _parts(path)
    folder, _, name = path.rpartition("/")
    return folder + query, name


def relative(path: str, folder: str) -> str:
    """Return a path or URI relative to a folder that it is below; else as it is."""
    short, base = _parts(path)[0], _parts(folder)[0].rstrip("/")
    return short.removeprefix(f"{base}/") if short.startswith(f"{base}/") else path


def is_relative(path: str) -> bool:
    """Return True if :func:`relative` has made a path relative."""
    return not is_uri(path) and not path.startswith("/")


def _parts(path: str) -> tuple[str, str]:
    """Return a path or URI without its query, and the query with its question mark; a path has none."""
    if not is_uri(path):
        return path, ""
    short, mark, query = path.partition("?")
    return short, mark + query


def safe_name(name: str) -> str:
    """Return a name as one component of a path: other characters become ``_`` and their codes."""
    return re.sub(r"[^A-Za-z0-9.-]", lambda match: f"_{ord(match[0]):x}_", name)
