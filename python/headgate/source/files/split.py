"""What a file source hands out and what it remembers, and how both become bytes."""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.errors import StateVersionError
from headgate.source.api import SimpleVersionedSerializer, SourceSplit

#: What ``start`` and ``end`` of a split count, for its id.
UNITS: Final = {"parquet": "row groups", "arrow": "batches", "csv": "bytes", "json": "bytes"}


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file as it was when it was listed.

    Attributes:
        path: within its file system.
        size: in bytes.
        modified: ns since 1970; None where the file system does not say.
    """

    path: str
    size: int
    modified: int | None


@dataclass(frozen=True, slots=True)
class FileSplit(SourceSplit):
    """A part of a file.

    Attributes:
        path: the file, within its file system.
        format: the format's name; it says what ``start`` and ``end`` count.
        start: the first row group, record batch or byte.
        end: the one after the last.
        size: bytes to read of the columns that are wanted; large splits are handed out first.
        file_size: of the whole file when it was listed, in bytes.
        modified: of the file when it was listed, ns since 1970; None when it is not known.
        hosts: where reading it is cheap; empty when it is not known.
        position: rows of the split that are done, before the filter.
    """

    path: str
    format: str
    start: int
    end: int
    size: int
    file_size: int
    modified: int | None = None
    hosts: Sequence[str] = ()
    position: int = 0

    @property
    def split_id(self) -> str:
        """The file and the part, as ``/data/a.parquet[row groups 0:4]``."""
        return f"{self.path}[{UNITS.get(self.format, 'parts')} {self.start}:{self.end}]"


@dataclass(frozen=True, slots=True)
class FileCheckpoint:
    """What an enumerator of files remembers.

    Attributes:
        listed: whether the files have been listed at least once.
        made: how many splits there have been.
        pending: splits that no reader has.
        unplanned: files that are listed and not cut into splits yet.
        known: paths of all files that are listed, sorted; empty for a source that lists once.
    """

    listed: bool = False
    made: int = 0
    pending: Sequence[FileSplit] = ()
    unplanned: Sequence[ListedFile] = ()
    known: Sequence[str] = ()


class FileCheckpointSerializer(SimpleVersionedSerializer[FileCheckpoint]):
    """Compressed JSON: the paths of a long list have much in common."""

    @property
    def version(self) -> int:
        """The version of the fields."""
        return 1

    def serialize(self, value: FileCheckpoint) -> bytes:
        """Return the compressed JSON of a checkpoint."""
        return zlib.compress(json.dumps(dataclasses.asdict(value), separators=(",", ":")).encode())

    def deserialize(self, version: int, data: bytes) -> FileCheckpoint:
        """Return the checkpoint.

        Raises:
            StateVersionError: the version is unknown, or the bytes are not of it.
        """
        asked, have = f"version {version}", f"FileCheckpoint of version {self.version}"
        if version != self.version:
            raise StateVersionError(
                "stored state is of a version that FileSource cannot read", asked=asked, have=have
            )
        try:
            return _checkpoint(json.loads(zlib.decompress(data)))
        except (zlib.error, ValueError, TypeError, KeyError) as error:
            raise StateVersionError(
                "stored state is no checkpoint of FileSource", asked=asked, have=have
            ) from error


def _checkpoint(fields: Mapping[str, Any]) -> FileCheckpoint:
    pending = (
        FileSplit(**{**split, "hosts": tuple(split["hosts"])}) for split in fields["pending"]
    )
    return FileCheckpoint(
        listed=fields["listed"],
        made=fields["made"],
        pending=tuple(pending),
        unplanned=tuple(ListedFile(**file) for file in fields["unplanned"]),
        known=tuple(fields["known"]),
    )
