"""Reads the rows of a split, and conforms them to the source's schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headgate.errors import HeadgateError, SchemaMismatchError, SourceError
from headgate.source.files.conform import (
    ComputedColumns,
    RowFilter,
    conformer,
    filter_columns,
    plain_schema,
)
from headgate.source.files.format import SplitRead
from headgate.source.files.listing import RENAMED, failed
from headgate.source.files.partitions import with_folder_columns

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from headgate.source.files.format import FileFormat
    from headgate.source.files.listing import Files
    from headgate.source.files.partitions import FolderPartitions, GivenPartitions
    from headgate.source.files.split import FileSplit
    from headgate.source.sequential import Positioned


#: Remedies for CSV and JSON, whose types are inferred from the beginning of the first file, or declared.
_INFERRED: Final = "give the schema, where its types were guessed wrong · mend the file"
_DECLARED: Final = (
    "another type in the schema, such as string, where values do not fit · mend the file"
)
_ZONES: Final = (
    "timestamp_ntz in the schema for times without a zone, timestamp for times with one · string"
)
#: Words of pyarrow's errors for a time that has no zone, or must not have one.
_OF_ZONES: Final = "zone offset"
_REMOTE: Final = "give this host the keys and the network that the driver has"
_STILL_WRITTEN: Final = f"if it was still written: {RENAMED} · mend the file · leave it out"


class SplitOpener:
    """Opens splits for one reader.

    Args:
        files: the files of the source.
        kind: the format of the files.
        schema: the source's schema, with all columns.
        columns: names of the columns of the result, in order.
        computed: those of them that are computed -> their expressions, which see the rows that are kept.
        row_filter: rows for which it is not true are dropped; None for all rows.
        batch_rows: rows in a batch before the filter, at most; None for about 4 MiB.
        partitions: the columns with one value in a whole file; None if there are none.
        guessed_from: the file from whose beginning the schema was inferred; None if it was given.
    """

    def __init__(
        self,
        files: Files,
        kind: FileFormat,
        schema: pa.Schema,
        columns: Sequence[str],
        row_filter: pc.Expression | None,
        batch_rows: int | None,
        *,
        computed: Mapping[str, pc.Expression] | None = None,
        partitions: FolderPartitions | GivenPartitions | None = None,
        guessed_from: str | None = None,
    ) -> None:
        self._guessed = schema if guessed_from is not None else None
        self._guessed_from = guessed_from
        self._partitions = partitions
        self._files, self._kind, self._batch_rows = files, kind, batch_rows
        self._columns, self._names = list(columns), schema.names
        self._read = pa.schema(
            [schema.field(name) for name in columns_to_read(schema, columns, row_filter, computed)]
        )
        self._computed = (
            None if computed is None else ComputedColumns(columns, computed, self._read)
        )
        self._headers: dict[str, list[str]] = {}
        self._filter = None if row_filter is None else RowFilter(row_filter, self._read)

    def __call__(self, split: FileSplit) -> Iterator[Positioned]:
        """Yield the batches of a split from its position on, each with the position after it.

        Raises:
            SourceError: the file is gone, changed or damaged; the error names split and file.
            SchemaMismatchError: a column does not fit; the error names file and column.
        """
        try:
            yield from self._batches(split)
        except HeadgateError as error:
            error.details.setdefault("splits", [split.split_id])
            if isinstance(error, SchemaMismatchError) and self._is_another(split.path):
                error.have = f"{error.have}; {self._columns_from()}"
            raise
        except FileNotFoundError as error:
            raise failed(split, "is gone: it was deleted after it was listed") from error
        except Exception as error:
            text, remedy = self._kind.explained(self._files, split.path, error)
            remedies = [remedy, self._leaves_out(split.path), self._general_remedy(text, remedy)]
            if isinstance(error, OSError) and not self._files.is_local:
                remedies.insert(0, _REMOTE)
            raise failed(
                split,
                f"cannot be read: {text}",
                " · ".join(filter(None, remedies)),
                self._columns_from() if self._is_another(split.path) else "",
            ) from error

    def _general_remedy(self, text: str, remedy: str) -> str:
        if self._kind.name not in {"csv", "json"}:
            return _STILL_WRITTEN
        if remedy:
            return ""
        if self._guessed is not None:
            return _INFERRED
        return _ZONES if _OF_ZONES in text else _DECLARED

    def _is_another(self, path: str) -> bool:
        """Return True if the columns are those of another file."""
        return self._guessed_from not in {None, path}

    def _columns_from(self) -> str:
        return f"the columns are those of {self._guessed_from}, the first file"

    def _leaves_out(self, path: str) -> str:
        """Return the remedy if the first file seems to be none of the files, by its name."""
        first = self._guessed_from or path
        suffix = PurePosixPath(path).suffix
        if suffix and suffix.lower() != PurePosixPath(first).suffix.lower():
            folder = path.rpartition("/")[0]
            return f"the pattern {folder}/*{suffix} as path, which leaves out {first}"
        return ""

    def _batches(self, split: FileSplit) -> Iterator[Positioned]:
        self._files.check(split)
        position = split.position
        fixed = {}
        if self._partitions is not None:
            fixed = self._partitions.fixed(split.path, self._read)
        stored = pa.schema([field for field in self._read if field.name not in fixed])
        guessed = None
        if self._guessed is not None:
            guessed = pa.schema([field for field in self._guessed if field.name not in fixed])
        schema, conform = None, None
        read = SplitRead(
            self._files,
            split,
            stored,
            self._batch_rows,
            guessed,
            partial(self._check_columns, split.path),
            self._headers,
        )
        for batch in self._kind.read(read):
            if conform is None or batch.schema != schema:
                schema = batch.schema
                conform = conformer(schema, self._read, split.path, fixed)
            position += batch.num_rows
            rows = conform(batch)
            if self._filter is not None:
                rows = self._filter.apply(rows)
            if self._computed is not None:
                rows = self._computed.apply(rows)
            elif rows.schema.names != self._columns:
                rows = rows.select(self._columns)
            yield rows, position

    def _check_columns(self, path: str, names: Sequence[str]) -> None:
        """Refuse a text file with other columns: the first line of a CSV file may be a row, and not a header."""
        if set(names).isdisjoint(self._names):
            remedies = [
                self._kind.hint(self._files, path),
                self._leaves_out(path),
                "add a header to the file · header=False and column_names for all files",
            ]
            raise SchemaMismatchError(
                f"{path} has none of the columns of the source",
                asked=", ".join(self._names),
                have=f"{', '.join(names)} (the file's header)",
                remedy=" · ".join(filter(None, remedies)),
                details={"path": path, "columns": list(names)},
            )


def columns_to_read(
    schema: pa.Schema,
    columns: Sequence[str],
    row_filter: pc.Expression | None,
    computed: Mapping[str, pc.Expression] | None = None,
) -> list[str]:
    """Return the given columns that files have, then those that only the filter and expressions use."""
    expressions = [*(computed or {}).values(), *([] if row_filter is None else [row_filter])]
    used = [name for name in columns if name not in (computed or {})]
    for expression in expressions:
        used += filter_columns(expression, schema)
    # A batch without any column would have no number of rows.
    return list(dict.fromkeys(used)) or schema.names[:1]


def first_schema(files: Files, kind: FileFormat, *, by_folders: bool) -> tuple[pa.Schema, str]:
    """Return the schema of the first file by path, with the columns of all files' folders, and that path.

    Raises:
        SourceError: there is no file, or it cannot be read.
    """
    listed = files.listed(missing_ok=False)
    for file in listed:
        if file.size == 0:
            continue
        try:
            schema = plain_schema(kind.schema(files, file), file.path)
        except HeadgateError:
            raise
        except Exception as error:
            text, remedy = kind.explained(files, file.path, error)
            raise SourceError(
                f"{file.path} cannot be read as a {kind.name} file: {text}",
                asked=f"format={kind.name!r}",
                remedy=remedy or f"give the format of the files · {_STILL_WRITTEN}",
                details={"path": file.path},
            ) from error
        if by_folders:
            values = [files.folder_values(entry.path) for entry in listed]
            schema = with_folder_columns(schema, values)
        return schema, file.path
    raise SourceError(
        f"there is no file below {', '.join(files.paths)} to take the schema from",
        asked=f"format={kind.name!r}",
        remedy='schema=pyarrow.schema(...) · option("schema", "id long") · a path with files',
    )
