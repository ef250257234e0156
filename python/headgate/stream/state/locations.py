"""Paths and URIs of folders and files, as pyarrow's file systems open them.

A URI may have a query with options of the file system, such as ``s3://bucket/job?region=eu-west-1``. What is below it has
the same query.
"""

from __future__ import annotations

from pathlib import Path

from pyarrow import fs


def opened(path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI, and the path in it.

    Raises:
        OSError: the file system cannot be reached.
        ValueError: pyarrow knows no such file system, or the URI is none.
    """
    if not _is_uri(path):
        return fs.LocalFileSystem(), absolute(path)
    filesystem, root = fs.FileSystem.from_uri(path)
    return filesystem, root.rstrip("/")


def absolute(path: str) -> str:
    """Return a path from the root, so that other processes find it as well; a URI stays as it is."""
    return below(path, "") if _is_uri(path) else str(Path(path).absolute())


def below(folder: str, name: str) -> str:
    """Return the path or URI of what has this name, which may have slashes, in a folder."""
    path, query = _parts(folder)
    return f"{path.rstrip('/')}/{name}".rstrip("/") + query


def parted(path: str) -> tuple[str, str]:
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
    return not _is_uri(path) and not path.startswith("/")


def _is_uri(path: str) -> bool:
    return "://" in path


def _parts(path: str) -> tuple[str, str]:
    """Return a path or URI without its query, and the query with its question mark; a path has none."""
    if not _is_uri(path):
        return path, ""
    short, mark, query = path.partition("?")
    return short, mark + query
