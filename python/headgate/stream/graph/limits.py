"""Limits of the batches that an operator gets at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate._arguments import size, whole_number

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Most rows and bytes of a batch; None for any number.

    Attributes:
        rows: at least 1.
        bytes: at least 1; a single row may have more.
    """

    rows: int | None = None
    bytes: int | None = None

    def parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield a batch in parts of about the same bytes per row."""
        most = batch.num_rows if self.rows is None else self.rows
        if self.bytes is not None and batch.nbytes > self.bytes:
            most = min(most, max(1, self.bytes * batch.num_rows // batch.nbytes))
        if most >= batch.num_rows:
            yield batch
            return
        for start in range(0, batch.num_rows, most):
            yield batch.slice(start, most)


UNLIMITED: Final = BatchLimits()


def batch_limits(rows: object, of_bytes: object) -> BatchLimits:
    """Return the limits that the arguments ``batch_rows`` and ``batch_bytes`` say.

    Raises:
        OptionError: one has a value that it does not take.
    """
    return BatchLimits(
        None if rows is None else whole_number("batch_rows", rows, 1),
        None if of_bytes is None else size("batch_bytes", of_bytes, 1),
    )


def least(limits: Iterable[BatchLimits]) -> BatchLimits:
    """Return the limits that fulfil several ones."""
    several = list(limits)
    return BatchLimits(
        min((limit.rows for limit in several if limit.rows is not None), default=None),
        min((limit.bytes for limit in several if limit.bytes is not None), default=None),
    )
