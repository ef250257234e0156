"""The interface of file formats: schema, splits and rows of a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa
import pyarrow.types as pt

from headgate.source.files.split import FileSplit, ListedFile

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from headgate.source.files.listing import Files

#: Target bytes of a batch if ``batch_rows`` is not given: large batches cost less per row, and a
#: reader holds only a few at a time.
BATCH_BYTES: Final = 4 * 1024 * 1024

#: Bytes below which the assignment of a split costs more than its reading.
_SMALLEST_SPLIT: Final = 1024 * 1024
#: Fewest rows of a batch of as many columns or more.
_FEWEST_ROWS: Final = 1024
_MOST_ROWS: Final = 1024 * 1024
#: Assumed bytes of a value of variable width.
_WIDTH_OF_A_TEXT: Final = 16


@dataclass(frozen=True, slots=True)
class Planning:
    """The parameters for cutting files into splits.

    Attributes:
        columns: names of the columns to read; their bytes are the size of a split.
        schema: the source's schema, with all columns.
        filter: rows for which it is not true need not be read; None for all rows.
        bytes: largest size of a split, unless the file cannot be cut so small.
        share: bytes of whole files per split at which there are enough splits for all readers.
        fixed: values of the columns in the file's folders, which replace the file's own.
    """

    columns: Sequence[str]
    schema: pa.Schema
    filter: pc.Expression | None
    bytes: int
    share: float
    fixed: Mapping[str, pa.Scalar] = field(default_factory=dict)

    def limit(self, fraction: float = 1.0) -> int:
        """Return the largest size of a split if only a fraction of the file's bytes is read."""
        return max(1, int(min(self.bytes, max(self.share * fraction, _SMALLEST_SPLIT))))


@dataclass(frozen=True, slots=True)
class SplitRead:
    """A split to read, and how.

    Attributes:
        files: opens the file.
        split: the split; its rows before its position are left out.
        wanted: the columns to read. The batches may lack columns that the file lacks, and may have others.
        batch_rows: rows in a batch, at most; None for about 4 MiB.
        guessed: all columns, if their types were inferred from the beginning of a file: a value that would change, and
            a field that is not among them, is an error then.
        check_columns: gets the names of the file's columns, if a file of this format may lack all that are wanted.
        headers: names of the columns of the file that was read last, by path.
    """

    files: Files
    split: FileSplit
    wanted: pa.Schema
    batch_rows: int | None
    guessed: pa.Schema | None
    check_columns: Callable[[Sequence[str]], None]
    headers: dict[str, list[str]]


class FileFormat(ABC):
    """A format of files. Stateless, so that it can be pickled and shared by threads."""

    name: ClassVar[str]

    @abstractmethod
    def schema(self, files: Files, file: ListedFile) -> pa.Schema:
        """Return the schema of a file, and read as little of it as possible."""

    @abstractmethod
    def plan(self, files: Files, file: ListedFile, planning: Planning) -> list[FileSplit]:
        """Return the splits of a file, in the order of the file."""

    @abstractmethod
    def read(self, read: SplitRead) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split from its position on, in batches of the file's own schema."""

    def explained(self, files: Files, path: str, error: Exception) -> tuple[str, str]:  # noqa: ARG002 - for overrides
        """Return the text of an error of reading a file, and a remedy for just this error or ""."""
        text = str(error).strip().partition("\n")[0]
        return text or type(error).__name__, getattr(error, "remedy", "")

    def hint(self, files: Files, path: str) -> str:  # noqa: ARG002 - for overrides
        """Return the remedy if a look at a file says why it seems to have other columns, else ""."""
        return ""


def rows_per_batch(batch_rows: int | None, bytes_per_row: float, columns: int = 1) -> int:
    """Return the number of rows of a batch of so many columns, each of which costs time per batch."""
    if batch_rows is not None:
        return batch_rows
    fewest = min(columns, _FEWEST_ROWS)
    return int(min(max(BATCH_BYTES / max(bytes_per_row, 1), fewest), _MOST_ROWS))


def plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of a dictionary; other types as they are."""
    return kind.value_type if pt.is_dictionary(kind) else kind


def width(kind: pa.DataType) -> int:
    """Return the bytes of a value in memory; an estimate for types of variable width."""
    if pt.is_boolean(kind) or pt.is_null(kind):
        return 1
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return _WIDTH_OF_A_TEXT


def sliced(
    batches: Iterator[pa.RecordBatch], skip: int, rows: int | None
) -> Iterator[pa.RecordBatch]:
    """Yield batches without the first ``skip`` rows, cut to ``rows`` or about 4 MiB each."""
    for batch in batches:
        begin = min(skip, batch.num_rows)
        skip -= begin
        step = rows_per_batch(
            rows, _decoded_bytes(batch) / max(1, batch.num_rows), batch.num_columns
        )
        for start in range(begin, batch.num_rows, step):
            yield batch.slice(start, step)


def with_types(batch: pa.RecordBatch, types: Mapping[str, pa.DataType]) -> pa.RecordBatch:
    """Return a batch whose columns with these names are cast to these types."""
    if not types:
        return batch
    columns = [
        column.cast(types.get(name, column.type))
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _decoded_bytes(batch: pa.RecordBatch) -> int:
    """Return the bytes of a batch, with the values in place of dictionaries."""
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

    size: int = batch.nbytes
    for column in batch.columns:
        if not pt.is_dictionary(column.type):
            continue
        values = column.dictionary
        try:
            widths = pc.binary_length(values)
        except pa.ArrowNotImplementedError:  # values of a fixed width, or nested ones
            widths = pa.repeat(values.nbytes // max(1, len(values)), len(values))
        size += pc.sum(widths.take(column.indices)).as_py() or 0
    return size


def split_of(file: ListedFile, kind: str, start: int, end: int, size: int) -> FileSplit:
    """Return a split of a listed file."""
    return FileSplit(file.path, kind, start, end, size, file.size, file.modified)


def grouped(sizes: Sequence[int], limit: int) -> Iterator[tuple[int, int, int]]:
    """Group adjacent parts up to a limit, and yield each group as ``(start, end, size)``.

    Args:
        sizes: sizes of the parts; a part with a negative size is skipped.
        limit: largest size of a group of more than one part.
    """
    start, total = 0, 0
    for place, size in enumerate(sizes):
        if place > start and (size < 0 or total + size > limit):
            yield start, place, total
            start, total = place, 0
        if size < 0:
            start = place + 1
        else:
            total += size
    if start < len(sizes):
        yield start, len(sizes), total
