"""What a file source asks of a format: its schema, its parts, and their rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa
import pyarrow.types as pt

from headgate.source.files.split import FileSplit, ListedFile

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from headgate.source.files.listing import Files

#: Bytes that a batch should have where nobody says how many rows: large ones cost less per row,
#: and a reader holds a few at a time.
BATCH_BYTES: Final = 4 * 1024 * 1024

#: Below this a split costs more to hand out than to read.
_SMALLEST_SPLIT: Final = 1024 * 1024
_FEWEST_ROWS: Final = 1024
_MOST_ROWS: Final = 1024 * 1024
#: What a value is taken for whose type does not say how wide it is.
_WIDTH_OF_A_TEXT: Final = 16


@dataclass(frozen=True, slots=True)
class Cut:
    """How files are cut into splits.

    Attributes:
        columns: names of the columns that are read; what they weigh is the size of a split.
        schema: the source's own, all columns.
        filter: rows for which it is not true need not be read; None for all rows.
        bytes: what a split weighs at most, where it can be cut so small.
        fixed: columns that the file's folders say, and the value; its own of that name do not
            count.
        share: bytes of a whole file that make a split when all readers shall get some.
    """

    columns: Sequence[str]
    schema: pa.Schema
    filter: pc.Expression | None
    bytes: int
    share: float
    fixed: Mapping[str, pa.Scalar] = field(default_factory=dict)

    def limit(self, fraction: float = 1.0) -> int:
        """Return what a split weighs at most when that fraction of a file's bytes is read."""
        return max(1, int(min(self.bytes, max(self.share * fraction, _SMALLEST_SPLIT))))


class FileFormat(ABC):
    """A format of files. Without state, so that it may be pickled and shared by threads."""

    name: ClassVar[str]

    @abstractmethod
    def schema(self, files: Files, file: ListedFile) -> pa.Schema:
        """Return the schema of a file; reads as little of it as it can."""

    @abstractmethod
    def plan(self, files: Files, file: ListedFile, cut: Cut) -> list[FileSplit]:
        """Return the splits of a file, in its order."""

    @abstractmethod
    def read(
        self, files: Files, split: FileSplit, wanted: pa.Schema, batch_rows: int | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split from its position on, in batches of the file's own schema.

        Args:
            files: opens the file.
            split: what to read.
            wanted: the columns that are needed; those that the file has not are left out, and
                others may be there.
            batch_rows: rows in a batch, at most; None for about 4 MiB.
        """


def rows_per_batch(batch_rows: int | None, bytes_per_row: float) -> int:
    """Return how many rows a batch should have."""
    if batch_rows is not None:
        return batch_rows
    return int(min(max(BATCH_BYTES / max(bytes_per_row, 1), _FEWEST_ROWS), _MOST_ROWS))


def width(kind: pa.DataType) -> int:
    """Return the bytes of a value in memory, roughly where its type does not say."""
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
        step = rows_per_batch(rows, batch.nbytes / max(1, batch.num_rows))
        for start in range(begin, batch.num_rows, step):
            yield batch.slice(start, step)


def split_of(file: ListedFile, kind: str, start: int, end: int, size: int) -> FileSplit:
    """Return a split of a listed file."""
    return FileSplit(file.path, kind, start, end, size, file.size, file.modified)


def grouped(sizes: Sequence[int], limit: int) -> Iterator[tuple[int, int, int]]:
    """Yield neighbouring parts put together up to a limit, as ``(start, end, size)``.

    Args:
        sizes: of the parts; a negative one is a part that is left out.
        limit: what a group weighs at most, unless it is a single part.
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
