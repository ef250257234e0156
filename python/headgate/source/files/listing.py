"""Lists the files of a source, and checks that a file has not changed since.

ADR 0001 says why ``pyarrow.dataset`` does not do this.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import PurePath
from typing import Any, Final

import pyarrow.fs as pafs

from headgate._locations import from_uri, is_uri, refuse_uri
from headgate._values import parse_path
from headgate.errors import OptionError, SourceError
from headgate.source.files.partitions import folder_values
from headgate.source.files.split import FileSplit, ListedFile
from headgate.source.files.tables import refuse_inside_table, refuse_tables

#: Prefixes of names that are not data: staged files, markers, checksums.
IGNORED: Final = ("_", ".")

#: The remedy for files that are read while they are written.
RENAMED: Final = "write a file as _name, and rename it when it is complete"

#: Most paths of a remote file system that are listed at the same time.
_ROUND_TRIPS: Final = 16
_GLOB: Final = re.compile(r"[*?\[]")


class Files:
    """The files of a source, given as folders, patterns or single files.

    Args:
        paths: files, folders (recursively) or patterns (``*`` and ``?`` within a name, ``**``
            across folders).
        filesystem: a ``pyarrow.fs.FileSystem``, a URI such as ``"s3://bucket"``, or None for the
            file system of the paths' URIs, or else the local one.

    Raises:
        OptionError: there is no path, or the paths are on several file systems.
    """

    def __init__(self, paths: Any, filesystem: Any = None) -> None:
        values = _path_values(paths)
        texts = [
            path.as_posix() if isinstance(path, PurePath) else os.fspath(path) for path in values
        ]
        if not texts or not all(texts):
            raise OptionError(
                "a file source needs at least one path", asked=f"paths={values!r}", remedy='"/data"'
            )
        for text in texts:
            if not _is_unicode(text):
                raise OptionError(
                    f"the path {os.fsencode(text)!r} is not UTF-8",
                    remedy="rename the file or folder",
                )
        self.filesystem, self.paths = _resolve(texts, filesystem)
        #: Folders that are known to be in no table.
        self._plain: set[str] = set()
        self._roots = [_fixed_folder(path) if _GLOB.search(path) else path for path in self.paths]

    @property
    def is_local(self) -> bool:
        """True for the local file system, where a read costs no round trip."""
        return isinstance(self.filesystem, pafs.LocalFileSystem)

    def listed(self, *, missing_ok: bool) -> list[ListedFile]:
        """Return the files, each once, sorted by path. May take long.

        Args:
            missing_ok: True to treat a missing path as an empty folder.

        Raises:
            SourceError: a path is missing or cannot be listed.
        """
        files: dict[str, ListedFile] = {}
        list_path = partial(self._list_path, missing_ok=missing_ok)
        for info in chain.from_iterable(_answers(self.filesystem, list_path, self.paths)):
            files[info.path] = ListedFile(info.path, info.size or 0, _modified(info))
        return [files[path] for path in sorted(files)]

    def would_list(self, filesystem: pafs.FileSystem, file: str) -> bool:
        """Return True if a file that does not exist yet would be listed."""
        real: Callable[[str], str] = os.path.realpath if self.is_local else str
        for path, root in zip(self.paths, self._roots, strict=True):
            below = real(file).removeprefix(f"{real(root).rstrip('/')}/")
            is_below = filesystem == self.filesystem and below != real(file)
            if is_below and not _is_ignored(below):
                rest = path[len(root) :].lstrip("/")
                if not rest or re.fullmatch(_regex(rest), below):
                    return True
        return False

    def folder_values(self, path: str) -> dict[str, str | None]:
        """Return the columns in the names of a file's folders, such as ``day=2026-01-31``."""
        return folder_values(path, self._roots)

    def check(self, split: FileSplit) -> None:
        """Check that a split's file has not changed since it was listed.

        Raises:
            SourceError: the file is gone, or its size or time differs; the error names the split.
        """
        info = self.filesystem.get_file_info(split.path)
        if info.type != pafs.FileType.File:
            raise failed(split, "is gone: it was deleted after it was listed")
        then = ListedFile(split.path, split.file_size, split.modified)
        now = ListedFile(split.path, info.size or 0, _modified(info))
        if has_changed(then, now):
            raise changed(then, now, split)

    def _list_path(self, path: str, *, missing_ok: bool) -> Sequence[Any]:
        try:
            info = self.filesystem.get_file_info(path)
            if info.type == pafs.FileType.File:
                return [info]
            if info.type == pafs.FileType.NotFound and _GLOB.search(path):
                matches = re.compile(_regex(path)).fullmatch
                infos = self._list_folder(_fixed_folder(path) or "/")
                return [info for info in infos if matches(info.path)]
            if info.type == pafs.FileType.NotFound and not missing_ok:
                raise SourceError(
                    f"there is no file or folder {path}",
                    asked=path,
                    remedy="give a path that exists on the driver and on all executors",
                    details={"path": path},
                )
            return self._list_folder(path)
        except OSError as error:
            raise SourceError(
                f"{path} cannot be listed: {error}", asked=path, details={"path": path}
            ) from error

    def _list_folder(self, folder: str) -> list[Any]:
        selector = pafs.FileSelector(folder, allow_not_found=True, recursive=True)
        start = len(folder.rstrip("/")) + 1
        infos = [
            (info, path[start:])
            for info in self.filesystem.get_file_info(selector)
            if (path := _path_of(info, start)) is not None
        ]
        if folder not in self._plain:
            refuse_inside_table(self.filesystem, folder)
            self._plain.add(folder)
        refuse_tables(folder, (below for _, below in infos))
        return [
            info
            for info, below in infos
            if info.type == pafs.FileType.File and not _is_ignored(below)
        ]


class KnownFiles(Files):
    """Files that were listed before.

    Args:
        filesystem: of the files.
        files: in any order.
    """

    def __init__(self, filesystem: pafs.FileSystem, files: Sequence[ListedFile]) -> None:
        self.filesystem, self.paths = filesystem, [file.path for file in files]
        self._listed, self._roots = sorted(files, key=lambda file: file.path), []
        #: Of all files.
        self.bytes = sum(file.size for file in files)

    def listed(self, *, missing_ok: bool) -> list[ListedFile]:  # noqa: ARG002 - they were there
        """Return the files, sorted by path."""
        return self._listed

    def would_list(self, filesystem: pafs.FileSystem, file: str) -> bool:  # noqa: ARG002 - no new file
        """Return False."""
        return False


def listed(filesystem: pafs.FileSystem, paths: Sequence[str]) -> list[ListedFile]:
    """Return files with their sizes and times, in the order of their paths.

    Raises:
        FileNotFoundError: one is missing.
    """
    files = []
    for info in _answers(filesystem, filesystem.get_file_info, paths):
        if info.type != pafs.FileType.File:
            raise FileNotFoundError(info.path)
        files.append(ListedFile(info.path, info.size, _modified(info)))
    return files


def _answers(
    filesystem: pafs.FileSystem, ask: Callable[[str], Any], paths: Sequence[str]
) -> Iterable[Any]:
    """Return the answers for paths, in their order."""
    if isinstance(filesystem, pafs.LocalFileSystem):
        return map(ask, paths)
    # Each costs a round trip.
    with ThreadPoolExecutor(_ROUND_TRIPS) as pool:
        return list(pool.map(ask, paths))


def _path_of(info: Any, start: int) -> str | None:
    """Return the path of a listed file; None if it is ignored and not UTF-8.

    Raises:
        SourceError: the path is not UTF-8.
    """
    try:
        return str(info.path)
    except UnicodeDecodeError as error:
        path = bytes(error.object)
        if _is_ignored(os.fsdecode(path)[start:]):
            return None
        raise SourceError(
            f"the name of the file {path!r} is not UTF-8, so pyarrow cannot open it",
            asked=repr(path),
            remedy="rename the file · begin its name with _, which sources ignore",
        ) from error


def _is_ignored(below: str) -> bool:
    return any(part.startswith(IGNORED) for part in below.split("/"))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _path_values(paths: Any) -> list[Any]:
    if isinstance(paths, (str, os.PathLike)):
        return [paths]
    values = list(paths) if isinstance(paths, Iterable) else [paths]
    wrong = [path for path in values if not isinstance(path, (str, os.PathLike))]
    if wrong:
        raise OptionError(
            f"paths has {wrong[0]!r}, which is not a path",
            asked=f"paths={paths!r}",
            have="paths takes one path or several",
            remedy='"/data" · ["/data/a", "/data/b"]',
        )
    return values


def has_changed(then: ListedFile, now: ListedFile) -> bool:
    """Return True if the size or the time of a file differs, as far as both are known."""
    return (min(then.size, now.size) >= 0 and then.size != now.size) or (
        None not in {then.modified, now.modified} and then.modified != now.modified
    )


def changed(then: ListedFile, now: ListedFile, split: FileSplit | None = None) -> SourceError:
    """Return the error for a file that changed after it was listed."""
    return SourceError(
        f"{then.path} has changed since it was listed"
        + (f"; split {split.split_id}" if split else ""),
        asked=f"{then.size} bytes, modified {then.modified}",
        have=f"{now.size} bytes, modified {now.modified}",
        remedy=f"{RENAMED} · give new rows in a new file, and take this one away · run a job of one listing again",
        details={"path": then.path} if split is None else _details(split),
    )


def failed(split: FileSplit, what: str, remedy: str = "", have: str = "") -> SourceError:
    """Return an error that names a split and its file."""
    return SourceError(
        f"{split.path} {what}; split {split.split_id}",
        asked=split.split_id,
        have=have,
        remedy=remedy,
        details=_details(split),
    )


def _details(split: FileSplit) -> dict[str, Any]:
    return {"path": split.path, "splits": [split.split_id]}


def _modified(info: Any) -> int | None:
    modified = info.mtime_ns
    return None if modified is None or modified < 0 else int(modified)


def _resolve(texts: list[str], filesystem: Any) -> tuple[Any, list[str]]:
    if filesystem is not None:
        for text in texts:
            refuse_uri(text, filesystem)
    if isinstance(filesystem, str):
        resolved_filesystem, base = from_uri(filesystem)
        return resolved_filesystem, [f"{base.rstrip('/')}/{text.lstrip('/')}" for text in texts]
    if filesystem is not None:
        return filesystem, texts
    if not any(map(is_uri, texts)):
        return pafs.LocalFileSystem(), [_local(text)[1] for text in texts]
    resolved = [from_uri(text) if is_uri(text) else _local(text) for text in texts]
    if any(resolved_filesystem != resolved[0][0] for resolved_filesystem, _ in resolved):
        raise OptionError(
            "the paths are in more than one file system",
            asked=f"paths={texts!r}",
            remedy="use one source for each file system",
        )
    return resolved[0][0], [path for _, path in resolved]


def _local(path: str) -> tuple[Any, str]:
    return pafs.LocalFileSystem(), os.path.abspath(parse_path(path))  # noqa: PTH100 - as given


def _fixed_folder(pattern: str) -> str:
    """Return the innermost folder that a pattern names without wildcards."""
    return _GLOB.split(pattern, maxsplit=1)[0].rpartition("/")[0]


def _regex(pattern: str) -> str:
    """Return the regular expression of a pattern: ``*`` does not match ``/``, ``**`` does."""
    parts = re.split(r"(\*\*/?|\*|\?|\[[^]]+\])", pattern)
    expressions = {"*": "[^/]*", "?": "[^/]", "**": ".*", "**/": "(?:.*/)?"}
    return "".join(
        part
        if part.startswith("[") and part.endswith("]")
        else expressions.get(part, re.escape(part))
        for part in parts
    )
