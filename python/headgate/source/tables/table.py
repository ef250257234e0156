"""The interface of a table's format: what a version of a table has, and what came after it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.source.files.listing import Files


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """Limits of a column's values in a file, by the table's log.

    Attributes:
        low: no value is below it; None if it is not known.
        high: no value is above it; None if it is not known.
        nulls: number of nulls; None if it is not known.
    """

    low: Any = None
    high: Any = None
    nulls: int | None = None


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file of a table, or a file of its changes.

    Attributes:
        path: within the table's file system.
        size: in bytes.
        version: the version that is read, or that added the file.
        values: values of columns that the file need not have, as texts.
        left_out: the rows that are deleted, as :func:`~headgate.source.tables.rows.encoded`.
        bounds: limits of columns, by name.
    """

    path: str
    size: int
    version: int
    values: Mapping[str, str | None] = field(default_factory=dict)
    left_out: str = ""
    bounds: Mapping[str, ColumnBounds] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pinned:
    """A table as it was when a source looked at it first. It is pickled with the source.

    Attributes:
        table: the table's id.
        version: the version to read; -1 for a table without any.
        latest: the newest version at that time.
        schema: the columns; the key of each is in its metadata, see :mod:`headgate.source.tables.columns`.
        files: opens the files.
        names: for files without ids of columns, the names of the columns by id, as Iceberg's name mapping.
        partitions: names of the columns whose values each file must have in ``values``.
        unread: why columns cannot be read, by their names.
        replaces: True if ``values`` of a file replace its columns, False if they stand in for missing ones.
    """

    table: str
    version: int
    latest: int
    schema: pa.Schema
    files: Files
    names: Sequence[Mapping[str, Any]] | None = None
    partitions: Sequence[str] = ()
    unread: Mapping[str, str] = field(default_factory=dict)
    replaces: bool = True


class Table(ABC):
    """A table. It is pickled to the workers, so it holds no open resources."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The table's name or address, for errors."""

    @property
    @abstractmethod
    def is_fixed(self) -> bool:
        """True if the caller chose one version to read."""

    @abstractmethod
    def pin(self) -> Pinned:
        """Look at the table; blocks."""

    @abstractmethod
    def first(self, after: int | str, pinned: Pinned) -> int:
        """Return the version after which changes are read; blocks.

        Raises:
            SourceError: there is no such version.
        """

    @abstractmethod
    def snapshot(self, pinned: Pinned, columns: Sequence[str]) -> list[TableFile]:
        """Return the files of the pinned version, with the bounds of some columns; blocks."""

    @abstractmethod
    def changes(self, pinned: Pinned, after: int, until: int | None) -> tuple[int, list[TableFile]]:
        """Return the newest version, and the files that came after another one, in their order; blocks.

        Args:
            pinned: the table when the source looked at it first.
            after: the version up to which all was read.
            until: the last version to read; None for all that are there.

        Raises:
            SourceError: rows were deleted or changed, or the version is not there any more.
        """
