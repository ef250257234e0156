"""The commits in the log of a Delta table, one version after another.

deltalake gives the state of a version, but neither which files a version has added nor if that changed rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow.fs as pafs

from headgate.errors import NotBuiltError, SourceError

if TYPE_CHECKING:
    from headgate.source.files.listing import Files

_COMMIT: Final = re.compile(r"(\d{20})\.json")
#: Kinds of actions that say nothing about rows.
_IGNORED: Final = frozenset({"txn", "domainMetadata"})


@dataclass(slots=True)
class Commit:
    """The actions of one version.

    Attributes:
        version: its number.
        adds: files that were added.
        removes: files that were removed.
        changes: files with the rows that were changed.
        metadata: the new schema and properties; None if they stay.
        protocol: the new protocol; None if it stays.
        time: of the commit, ms since 1970.
    """

    version: int
    adds: list[dict[str, Any]] = field(default_factory=list)
    removes: list[dict[str, Any]] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=list)
    metadata: dict[str, Any] | None = None
    protocol: dict[str, Any] | None = None
    time: int = 0


def commits(files: Files, root: str, after: int, until: int | None) -> Iterator[Commit]:
    """Yield the commits after a version, up to another one or the newest.

    Raises:
        NotBuiltError: a commit has an action that is not known.
        SourceError: a commit cannot be read.
    """
    version = after + 1
    while until is None or version <= until:
        commit = read_commit(files, root, version)
        if commit is None:
            return
        yield commit
        version += 1


def read_commit(files: Files, root: str, version: int) -> Commit | None:
    """Return a commit; None if its file is not there.

    Raises:
        NotBuiltError: the commit has an action that is not known.
        SourceError: it cannot be read.
    """
    path = _path(root, version)
    info = files.filesystem.get_file_info(path)
    if info.type != pafs.FileType.File:
        return None
    try:
        with files.filesystem.open_input_stream(path, compression=None) as stream:
            text = bytes(stream.read()).decode()
        actions = [json.loads(line) for line in text.splitlines() if line.strip()]
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise SourceError(
            f"{path} cannot be read: {error}", remedy="mend the table", details={"path": path}
        ) from error
    commit = Commit(version, time=(info.mtime_ns or 0) // 1_000_000)
    for action in actions:
        for kind, content in action.items():
            _add(commit, kind, content, path)
    return commit


def has_commit(files: Files, root: str, version: int) -> bool:
    """Return True if the commit of a version is there."""
    info = files.filesystem.get_file_info(_path(root, version))
    return bool(info.type == pafs.FileType.File)


def first_commit(files: Files, root: str) -> int | None:
    """Return the first version whose commit is still there; None if there is none."""
    selector = pafs.FileSelector(f"{root}/_delta_log", allow_not_found=True)
    names = (info.path.rpartition("/")[2] for info in files.filesystem.get_file_info(selector))
    return min((int(match[1]) for match in map(_COMMIT.fullmatch, names) if match), default=None)


def _path(root: str, version: int) -> str:
    return f"{root}/_delta_log/{version:020}.json"


def _add(commit: Commit, kind: str, content: Mapping[str, Any], path: str) -> None:
    match kind:
        case "add":
            commit.adds.append(dict(content))
        case "remove":
            commit.removes.append(dict(content))
        case "cdc":
            commit.changes.append(dict(content))
        case "metaData":
            commit.metadata = dict(content)
        case "protocol":
            commit.protocol = dict(content)
        case "commitInfo":
            times = (content.get("inCommitTimestamp"), content.get("timestamp"), commit.time)
            commit.time = next(time for time in times if isinstance(time, int))
        case _ if kind not in _IGNORED:
            raise NotBuiltError(
                f"{path} has the action {kind!r}, which is not known",
                have="add, remove, cdc, metaData, protocol, commitInfo, txn, domainMetadata",
                remedy='spark.readStream.format("delta")',
                details={"path": path},
            )
