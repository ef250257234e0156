"""Splits and checkpoints of a table, and their bytes."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.errors import StateVersionError
from headgate.source.api import JsonSerializer, SourceSplit


@dataclass(frozen=True, slots=True)
class TableSplit(SourceSplit):
    """A part of a data file of a table.

    Attributes:
        path: the file, within the table's file system.
        start: the first row group.
        end: the row group after the last one; -1 for all that follow.
        size: bytes to read.
        file_size: size of the file by the table's log, in bytes.
        version: the version of the table that is read, or that added the file.
        values: values of columns that the file need not have, as texts.
        left_out: the file's rows that are deleted, as :func:`~headgate.source.tables.rows.encoded`.
        position: rows of the split that were read, before deletes and the filter.
    """

    path: str
    start: int
    end: int
    size: int
    file_size: int
    version: int
    values: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    left_out: str = ""
    position: int = 0

    @property
    def split_id(self) -> str:
        """The file, the range and the version, such as ``/t/a.parquet[row groups 0:4] of version 7``."""
        end = "" if self.end < 0 else self.end
        return f"{self.path}[row groups {self.start}:{end}] of version {self.version}"


@dataclass(frozen=True, slots=True)
class TableCheckpoint:
    """The state of the enumerator of a table.

    Attributes:
        table: the id of the table; "" until it was planned.
        version: the version up to which all files are cut into splits; None until the first plan.
        num_splits: number of splits created so far.
        pending: the fields of each split that no reader has.
    """

    table: str = ""
    version: int | None = None
    num_splits: int = 0
    pending: Sequence[Sequence[Any]] = ()


class TableCheckpointSerializer(JsonSerializer[TableCheckpoint]):
    """Writes compressed JSON, because the paths of a table's files are similar."""

    def __init__(self) -> None:
        super().__init__(TableCheckpoint)

    def serialize(self, value: TableCheckpoint) -> bytes:
        """Return the compressed JSON of a checkpoint."""
        return zlib.compress(super().serialize(value))

    def deserialize(self, version: int, data: bytes) -> TableCheckpoint:
        """Return the checkpoint.

        Raises:
            StateVersionError: the version is unknown, or the bytes do not belong to it.
        """
        try:
            plain = zlib.decompress(data)
        except zlib.error as error:
            raise StateVersionError(
                "stored state is not a checkpoint of a table", asked=f"version {version}"
            ) from error
        return super().deserialize(version, plain)
