"""Reads the rows of a split of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.fs as pafs

from headgate.errors import HeadgateError, SourceError
from headgate.source.files.conform import ComputedColumns, RowFilter, conformer, filter_columns
from headgate.source.files.footer import Footer
from headgate.source.files.format import Planning, SplitRead
from headgate.source.files.parquet import ParquetFormat
from headgate.source.files.partitions import constants
from headgate.source.files.reading import columns_to_read
from headgate.source.files.split import FileSplit, ListedFile
from headgate.source.tables.columns import Projection, plain_types, projection, with_ids
from headgate.source.tables.pruning import may_have_rows
from headgate.source.tables.rows import decoded, without_deleted
from headgate.source.tables.split import TableSplit

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from headgate.source.sequential import Positioned
    from headgate.source.tables.table import Pinned, TableFile

_VACUUMED: Final = (
    "read a newer version · keep removed files longer, by the properties of the table"
)
_NO_LIMIT: Final = 2**62


@dataclass(frozen=True, slots=True)
class _Opened:
    """A file whose footer was read.

    Attributes:
        footer: the footer.
        columns: the columns of the file that are read.
        stored: the schema of these columns.
        fixed: columns with one value in all rows.
        pieces: ranges of row groups that may have rows of the filter.
    """

    footer: Footer
    columns: Projection
    stored: pa.Schema
    fixed: dict[str, pa.Scalar]
    pieces: list[FileSplit]


class TableReading:
    """Plans and reads the files of a table, for a choice of columns and rows.

    Args:
        pinned: the table.
        columns: names of the columns to read, in order.
        row_filter: rows for which it is not true are dropped; None for all rows.
        batch_rows: rows in a batch before deletes and the filter, at most; None for about 4 MiB.
        computed: columns of the result that are computed -> their expressions; None if there are none.
    """

    def __init__(
        self,
        pinned: Pinned,
        columns: Sequence[str],
        row_filter: pc.Expression | None,
        batch_rows: int | None,
        computed: Mapping[str, pc.Expression] | None = None,
    ) -> None:
        self._pinned, self._batch_rows, self._filter = pinned, batch_rows, row_filter
        self._schema = plain_types(pinned.schema)
        names = columns_to_read(self._schema, columns, row_filter, computed)
        self._wanted = pa.schema([pinned.schema.field(name) for name in names])
        self._read, self._columns = plain_types(self._wanted), list(columns)
        self._rows = None if row_filter is None else RowFilter(row_filter, self._read)
        self._computed = (
            None if computed is None else ComputedColumns(columns, computed, self._read)
        )

    @property
    def filtered(self) -> list[str]:
        """Names of the columns that the filter may use."""
        return [] if self._filter is None else filter_columns(self._filter, self._schema)

    def may_have_rows(self, file: TableFile) -> bool:
        """Return False if the table's log says that no row of a file passes the filter."""
        if self._filter is None:
            return True
        replaces = self._pinned.replaces
        fixed = constants(file.values, self._schema, file.path) if replaces else {}
        return may_have_rows(file, self._filter, fixed, self._schema)

    def row_groups(self, file: TableFile, size: int) -> list[tuple[int, int, int]]:
        """Return the ranges of row groups to read, each as ``(start, end, size)``.

        Args:
            file: a file of the table.
            size: largest bytes of a range of more than one row group.

        Raises:
            SourceError: the file is gone or damaged.
        """
        try:
            pieces = self._opened(file.path, file.size, file.values, size).pieces
        except HeadgateError:
            raise
        except FileNotFoundError as error:
            raise _failed(file, _GONE, _VACUUMED) from error
        except Exception as error:
            raise _failed(file, f"cannot be read: {_text(error)}", "mend the table") from error
        return [(piece.start, piece.end, piece.size) for piece in pieces]

    def __call__(self, split: TableSplit) -> Iterator[Positioned]:
        """Yield the batches of a split from its position on, each with the position after it.

        Raises:
            SourceError: the file is gone, changed or damaged; the error names split and file.
            SchemaMismatchError: a column does not fit; the error names file and column.
        """
        try:
            yield from self._batches(split)
        except HeadgateError as error:
            error.details.setdefault("splits", [split.split_id])
            raise
        except FileNotFoundError as error:
            raise _failed(split, _GONE, _VACUUMED) from error
        except Exception as error:
            raise _failed(split, f"cannot be read: {_text(error)}", "mend the table") from error

    def _batches(self, split: TableSplit) -> Iterator[Positioned]:
        opened = self._opened(split.path, split.file_size, split.values, _NO_LIMIT)
        metadata = opened.footer.metadata
        counts = [metadata.row_group(place).num_rows for place in range(metadata.num_row_groups)]
        pieces = opened.pieces if split.end < 0 else [_piece(split, split.start, split.end)]
        mask, position, skip = decoded(split.left_out), 0, split.position
        for piece in pieces:
            rows = sum(counts[piece.start : piece.end])
            if rows <= skip:
                skip -= rows
                position += rows
                continue
            first = sum(counts[: piece.start]) + skip
            position += skip
            for batch in self._rows_of(replace(piece, position=skip), opened):
                conformed = without_deleted(batch, mask, first)
                first += batch.num_rows
                position += batch.num_rows
                if self._rows is not None:
                    conformed = self._rows.apply(conformed)
                if self._computed is not None:
                    conformed = self._computed.apply(conformed)
                elif conformed.schema.names != self._columns:
                    conformed = conformed.select(self._columns)
                yield conformed, position
            skip = 0

    def _rows_of(self, piece: FileSplit, opened: _Opened) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range of row groups, with the columns of the table."""
        files = self._pinned.files
        read = SplitRead(files, piece, opened.stored, self._batch_rows, None, lambda _: None, {})
        schema, conform = None, None
        for batch in ParquetFormat().read(read):
            named = opened.columns(batch)
            if conform is None or named.schema != schema:
                schema = named.schema
                conform = conformer(schema, self._read, piece.path, opened.fixed)
            yield conform(named)

    def _opened(
        self, path: str, size: int, values: Mapping[str, str | None], limit: int
    ) -> _Opened:
        """Read the footer of a file, and find the row groups that may have rows.

        Raises:
            SourceError: the file has another size.
        """
        files, pinned = self._pinned.files, self._pinned
        info = files.filesystem.get_file_info(path)
        if info.type != pafs.FileType.File:
            raise FileNotFoundError(path)
        if info.size != size:
            raise SourceError(
                f"{path} has another size than the log of its table says",
                asked=f"{size} bytes",
                have=f"{info.size} bytes",
                remedy="write the table again: its files must not change",
                details={"path": path},
            )
        footer = Footer.read(files.filesystem, path, size)
        schema = with_ids(footer.schema, pinned.names)
        fixed = constants(values, self._read, path)
        replaced = fixed if pinned.replaces else ()
        wanted = pa.schema([field for field in self._wanted if field.name not in replaced])
        columns = projection(schema, wanted, path)
        fixed = {name: value for name, value in fixed.items() if name not in columns.stored}
        names = set(columns.stored.values())
        stored = pa.schema([field for field in footer.schema if field.name in names])
        row_filter = self._filter_of(columns.stored, footer.schema.names)
        planning = Planning(stored.names, self._schema, row_filter, limit, limit, fixed)
        pieces = ParquetFormat().plan(files, ListedFile(path, size, None), planning)
        return _Opened(footer, columns, stored, fixed, pieces)

    def _filter_of(self, stored: Mapping[str, str], names: Sequence[str]) -> pc.Expression | None:
        """Return the filter if each name in it means the file's column of that name, or one that the file lacks."""
        safe = all(
            stored.get(name) == name or (name not in stored and name not in names)
            for name in self.filtered
        )
        return self._filter if safe else None


_GONE: Final = "is gone, which the log of its table still had"


def _piece(split: TableSplit, start: int, end: int) -> FileSplit:
    return FileSplit(split.path, "parquet", start, end, split.size, split.file_size)


def _text(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _failed(part: TableSplit | TableFile, problem: str, remedy: str) -> SourceError:
    """Return an error that names a file, and its split if there is one."""
    splits = [part.split_id] if isinstance(part, TableSplit) else []
    return SourceError(
        f"{part.path} {problem}; {splits[0] if splits else f'version {part.version}'}",
        asked=splits[0] if splits else part.path,
        remedy=remedy,
        details={"path": part.path, "splits": splits},
    )
