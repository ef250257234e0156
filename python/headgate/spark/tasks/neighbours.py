"""The subpartitions of one call of reduce, joined by what is read of them; for ``num_partitions="auto"``.

Decision: ADR 0049.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from headgate.spark.tasks.kept_locations import Row

#: Bytes that a value of variable width is taken for before any was read.
_VALUE: Final = 16


def subpartitions_in(batches: Iterable[pa.RecordBatch], inputs: int) -> Iterator[list[list[Row]]]:
    """Yield the rows of producers of each subpartition, by input; they come in the order of the subpartitions."""
    rows = (row for batch in batches for row in batch.to_pylist())
    for _, neighbours in groupby(rows, key=lambda row: row["subpartition"]):
        by_input: list[list[Row]] = [[] for _ in range(inputs)]
        for row in neighbours:
            by_input[row["input"]].append(row)
        yield by_input


class Neighbours:
    """Neighbouring subpartitions, of which more are taken while those that were taken are small.

    The first input that has been read to its end decides about the next subpartition, for all inputs. So
    functions may read their inputs one after the other, or side by side.

    Args:
        coming: the subpartitions from the first one on; those that are not taken are left there.
        schemas: of the inputs.
        advisory_bytes: bytes of rows from which on no further one is taken.
    """

    def __init__(
        self, coming: Iterator[list[list[Row]]], schemas: Iterable[pa.Schema], advisory_bytes: int
    ) -> None:
        self._coming = coming
        self._inputs = [_InputSize(schema) for schema in schemas]
        self._advisory_bytes = advisory_bytes
        self._is_closed = False
        #: By subpartition, then by input: the rows of producers, until they are read.
        self._subpartitions: list[list[list[Row]]] = []
        self._take()

    def __len__(self) -> int:
        """Return the number of subpartitions with rows."""
        return len(self._subpartitions)

    def pieces(self, number: int) -> Iterator[list[Row]]:
        """Yield the rows of producers of each subpartition for an input."""
        at = 0
        while at < len(self._subpartitions) or self._take():
            rows, self._subpartitions[at][number] = self._subpartitions[at][number], []
            if rows:
                yield rows
            at += 1

    def count(self, number: int, batch: pa.RecordBatch) -> None:
        """Count a batch of an input that was read."""
        size = self._inputs[number]
        size.rows += batch.num_rows
        size.bytes += batch.nbytes

    def _take(self) -> bool:
        """Take one more subpartition; return False if there is none, or if those that were taken are large enough."""
        if self._is_closed:
            return False
        is_large = sum(size.total for size in self._inputs) >= self._advisory_bytes
        following = None if self._subpartitions and is_large else next(self._coming, None)
        if following is None:
            self._is_closed = True
            return False
        self._subpartitions.append(following)
        for size, rows in zip(self._inputs, following, strict=True):
            size.announced += sum(row["rows"] or 0 for row in rows)
        return True


class _InputSize:
    """The rows of an input in the subpartitions that were taken: those that were read, and those that producers tell of."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.rows = 0
        self.bytes = 0
        self.announced = 0

    @property
    def total(self) -> float:
        """Bytes of the rows that were read, and of the others by their number."""
        left = max(0, self.announced - self.rows)
        width = self.bytes / self.rows if self.rows else row_width(self._schema)
        return self.bytes + left * width


def row_width(schema: pa.Schema) -> float:
    """Return the bytes of a row by the types of its columns alone."""
    return sum(_width(field.type) for field in schema)


def _width(kind: pa.DataType) -> float:
    try:
        return kind.bit_width / 8  # type: ignore[no-any-return]
    except ValueError:
        return _VALUE
