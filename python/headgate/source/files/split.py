"""Splits and checkpoints of a file source, and their bytes."""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.errors import StateVersionError
from headgate.source.api import SimpleVersionedSerializer, SourceSplit

#: format -> unit of a split's ``start`` and ``end``, for its id.
UNITS: Final = {"parquet": "row groups", "arrow": "batches", "csv": "bytes", "json": "bytes"}


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file at the time of its listing.

    Attributes:
        path: within its file system.
        size: in bytes; -1 if it is not known, as in checkpoints of version 1.
        modified: modification time, ns since 1970; None if the file system does not have it.
        parts: number of its parts, such as row groups, if the file need not be opened to cut it; else None.
    """

    path: str
    size: int
    modified: int | None
    parts: int | None = None


@dataclass(frozen=True, slots=True)
class FileSplit(SourceSplit):
    """A part of a file.

    Attributes:
        path: the file, within its file system.
        format: the format's name, which determines the unit of ``start`` and ``end``.
        start: the first row group, record batch or byte.
        end: the row group, record batch or byte after the last one.
        size: bytes to read of the wanted columns.
        file_size: size of the file at its listing, in bytes.
        modified: modification time at its listing, ns since 1970; None if it is not known.
        hosts: hosts on which reading the file is cheap; empty if they are not known.
        position: rows of the split that were read, before the filter.
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
        """The file and the range, such as ``/data/a.parquet[row groups 0:4]``."""
        return f"{self.path}[{UNITS.get(self.format, 'parts')} {self.start}:{self.end}]"


@dataclass(frozen=True, slots=True)
class FileCheckpoint:
    """The state of an enumerator of files.

    Attributes:
        listed: True once the files have been listed.
        made: number of splits created so far.
        pending: splits that are not assigned.
        unplanned: listed files that are not cut into splits yet.
        known: all listed files, sorted by path.
    """

    listed: bool = False
    made: int = 0
    pending: Sequence[FileSplit] = ()
    unplanned: Sequence[ListedFile] = ()
    known: Sequence[ListedFile] = ()


class FileCheckpointSerializer(SimpleVersionedSerializer[FileCheckpoint]):
    """Writes compressed JSON, because the paths in a long list are similar."""

    @property
    def version(self) -> int:
        """The version of the fields; 1 has only the paths of the known files."""
        return 2

    def serialize(self, value: FileCheckpoint) -> bytes:
        """Return the compressed JSON of a checkpoint."""
        # Not by asdict(), which makes a dozen calls per split.
        fields = {
            **_shallow(value, _CHECKPOINT),
            "pending": [_shallow(split, _SPLIT) for split in value.pending],
            "unplanned": [_shallow(file, _LISTED) for file in value.unplanned],
            "known": [(file.path, file.size, file.modified) for file in value.known],
        }
        return zlib.compress(json.dumps(fields, separators=(",", ":")).encode())

    def deserialize(self, version: int, data: bytes) -> FileCheckpoint:
        """Return the checkpoint.

        Raises:
            StateVersionError: the version is unknown, or the bytes do not belong to it.
        """
        wanted, have = f"version {version}", f"FileCheckpoint of version {self.version}"
        if version not in {1, self.version}:
            raise StateVersionError(
                "stored state is of a version that FileSource cannot read", asked=wanted, have=have
            )
        try:
            return _checkpoint(json.loads(zlib.decompress(data)))
        except (zlib.error, ValueError, TypeError, KeyError) as error:
            raise StateVersionError(
                "stored state is not a checkpoint of FileSource", asked=wanted, have=have
            ) from error


_CHECKPOINT: Final = tuple(field.name for field in dataclasses.fields(FileCheckpoint))
_SPLIT: Final = tuple(field.name for field in dataclasses.fields(FileSplit))
_LISTED: Final = tuple(field.name for field in dataclasses.fields(ListedFile))


def _shallow(record: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


def _checkpoint(fields: Mapping[str, Any]) -> FileCheckpoint:
    pending = (
        FileSplit(**{**split, "hosts": tuple(split["hosts"])}) for split in fields["pending"]
    )
    return FileCheckpoint(
        listed=fields["listed"],
        made=fields["made"],
        pending=tuple(pending),
        unplanned=tuple(ListedFile(**file) for file in fields["unplanned"]),
        known=tuple(
            ListedFile(file, -1, None) if isinstance(file, str) else ListedFile(*file)
            for file in fields["known"]
        ),
    )
