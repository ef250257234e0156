"""The base of sources that make rows by their numbers: a split is every n-th row, and event times grow with the numbers."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from headgate.source.api import Boundedness, SourceSplit
from headgate.source.batch_source import BatchSource
from headgate.source.sequential import Pace, Positioned

if TYPE_CHECKING:
    import pyarrow as pa

#: Seconds of rows in a batch if there is a rate, so that rows come evenly.
_SECONDS_PER_BATCH: Final = 0.1
MOST_SPLITS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Stripe(SourceSplit):
    """Every ``splits``-th row, from ``number`` on.

    Attributes:
        number: the first row of the split.
        splits: number of splits.
        start: event time of the first row of all, in ms since 1970.
        position: rows emitted so far.
    """

    kind: ClassVar[str]

    number: int
    splits: int
    start: int
    position: int = 0

    @property
    def split_id(self) -> str:
        """The place among the splits, such as ``rate[0/4]``."""
        return f"{self.kind}[{self.number}/{self.splits}]"


StripeT = TypeVar("StripeT", bound=Stripe)


class StripedSource(BatchSource[StripeT]):
    """A source of numbered rows. All splits are given out at the start.

    Args:
        start: event time of the first row, in ms since 1970; None for the time of the start.
        splits: number of splits; None for one per reader.
        batch_size: rows in a batch, at most.
        rows_per_second: over all readers together; a batch then has at most the rows of 0.1 s. None for any number.
    """

    assigns_at_start = True

    def __init__(
        self, start: int | None, splits: int | None, batch_size: int, rows_per_second: float | None
    ) -> None:
        self._start, self._splits = start, splits
        self._batch_size, self._rows_per_second = batch_size, rows_per_second

    @property
    @abstractmethod
    def rows(self) -> int | None:
        """The number of rows; None for a source that has no end."""

    @abstractmethod
    def _rows_of(self, split: StripeT, position: int, end: int) -> tuple[pa.RecordBatch, int]:
        """Return the rows of a split between two positions, at least one, and their latest time."""

    @property
    def boundedness(self) -> Boundedness:
        """``BOUNDED`` if the number of rows is known."""
        return Boundedness.CONTINUOUS_UNBOUNDED if self.rows is None else Boundedness.BOUNDED

    @property
    def has_endless_splits(self) -> bool:
        """True without a number of rows."""
        return self.rows is None

    def first_splits(self, readers: int) -> Sequence[StripeT]:
        """Return all splits."""
        splits = self._splits or readers
        start = time.time_ns() // 1_000_000 if self._start is None else self._start
        return [self.split_type(number, splits, start) for number in range(splits)]

    def pace_of(self, readers: int) -> Callable[[StripeT], Pace] | None:  # noqa: ARG002 - of the splits
        """Return a function that gives each split its share of the rate."""
        rate = self._rows_per_second
        return None if rate is None else lambda split: Pace(rate / split.splits)

    def open_split(self, split: StripeT, readers: int) -> Iterator[Positioned]:  # noqa: ARG002 - of the splits
        """Yield the rows of a split."""
        position = split.position
        while (rows := self.next_rows(split, position)) is not None:
            _, position, _ = rows
            yield rows

    def next_rows(self, split: StripeT, position: int) -> tuple[pa.RecordBatch, int, int] | None:
        """Return the batch at a position, the position after it and its latest time; None at the end."""
        rows, rate = self._batch_size, self._rows_per_second
        if rate is not None:
            rows = max(1, min(rows, int(rate / split.splits * _SECONDS_PER_BATCH)))
        end = position + rows
        if self.rows is not None:
            end = min(end, max(0, -(-(self.rows - split.number) // split.splits)))
        if end <= position:
            return None
        batch, latest = self._rows_of(split, position, end)
        return batch, end, latest
