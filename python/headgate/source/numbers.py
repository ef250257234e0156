"""A source of consecutive whole numbers, for tests and demos, with an optional rate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

import pyarrow as pa

from headgate._arguments import names
from headgate.errors import UnknownColumnError
from headgate.source.api import Boundedness, SourceSplit
from headgate.source.arguments import Texts, refuse, whole_number
from headgate.source.batch_source import BatchSource
from headgate.source.sequential import Pace, Positioned

_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1

#: Default number of splits per reader, so that a slow reader can take fewer than the others.
_SPLITS_PER_READER: Final = 8
#: Batches in a split of a sequence that has no end.
_BATCHES_PER_SPLIT: Final = 8
#: Seconds of rows in a batch if there is a rate, so that rows come evenly.
_SECONDS_PER_BATCH: Final = 0.1

_OPTIONS: Final = ("start", "end", "batchSize", "splits", "rowsPerSecond", "column")


@dataclass(frozen=True, slots=True)
class NumberSplit(SourceSplit):
    """The numbers from ``start`` up to and excluding ``end``; ``position`` counts emitted ones.

    The enumerator cuts splits of ``step`` numbers off one that has a step.
    """

    start: int
    end: int
    position: int = 0
    step: int = 0

    @property
    def split_id(self) -> str:
        """The range, such as ``numbers[0:100]``."""
        return f"numbers[{self.start}:{self.end}]"


class NumberSequenceSource(BatchSource[NumberSplit]):
    """The numbers from ``start`` up to and excluding ``end``, as in Python's and Spark's ``range``.

    A record is a batch with one column of 64-bit integers.

    Args:
        start: the first number.
        end: the number after the last one; None for a sequence that runs until it is stopped
            (or reaches 2**63 - 1).
        batch_size: rows in a batch, at most.
        splits: number of splits; by default 8 per reader. A sequence without end has splits of 8
            batches instead.
        rows_per_second: limit over all readers together. Each reader keeps to its share, even if
            the others do not run. Lost time is not caught up.
        column: the name of the column.
        unbounded: True if ``end`` is None on purpose; an error if it contradicts ``end``.

    Raises:
        OptionError: an argument is outside its limits.
    """

    split_type = NumberSplit

    def __init__(
        self,
        start: int = 0,
        end: int | None = None,
        *,
        batch_size: int = 131_072,
        splits: int | None = None,
        rows_per_second: float | None = None,
        column: str = "id",
        unbounded: bool | None = None,
    ) -> None:
        self._start = whole_number("start", start, _INT64_MIN)
        self._end = None if end is None else whole_number("end", end, _INT64_MIN)
        if self._end is not None and self._end < self._start:
            raise refuse("end", end, f"is before start={start}", f"at least start={start}")
        if unbounded is not None and unbounded != (end is None):
            raise refuse("unbounded", unbounded, f"contradicts end={end}", f"{end is None}")
        self._batch_size = whole_number("batch_size", batch_size, 1, 2**31 - 1)
        self._splits = None if splits is None else whole_number("splits", splits, 1, 10**7)
        if rows_per_second is not None and not is_rate(rows_per_second):
            raise refuse("rows_per_second", rows_per_second, "is no rate", "a number above 0")
        self._rate = rows_per_second
        if not isinstance(column, str):
            raise refuse("column", column, "is no name", "a text")
        self._column = column

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Return the source of ``start``, ``end``, ``batchSize``, ``splits``, ``rowsPerSecond``.

        Without ``end`` it has no end; ``column`` names the column.

        Raises:
            OptionError: an option is unknown or malformed.
        """
        texts = Texts(cls.__name__, options, _OPTIONS)
        return cls(
            texts.integer("start", 0),
            texts.integer("end"),
            batch_size=texts.integer("batchSize", 131_072),
            splits=texts.integer("splits"),
            rows_per_second=texts.number("rowsPerSecond"),
            column=texts.text("column", "id"),
        )

    @property
    def boundedness(self) -> Boundedness:
        """``BOUNDED`` if it has an end."""
        return Boundedness.CONTINUOUS_UNBOUNDED if self._end is None else Boundedness.BOUNDED

    @property
    def rows_per_second(self) -> float | None:
        """The limit over all readers together; None for no limit."""
        return self._rate

    @property
    def schema(self) -> pa.Schema:
        """One column of 64-bit integers without nulls."""
        return pa.schema([pa.field(self._column, pa.int64(), nullable=False)])

    @property
    def name(self) -> str:
        """The range, such as ``NumberSequenceSource(0, 100)``."""
        return f"NumberSequenceSource({self._start}, {self._end})"

    def first_splits(self, readers: int) -> Sequence[NumberSplit]:
        """Return all numbers, to be cut."""
        if self._end is None:
            step = self._rows_per_batch(readers) * _BATCHES_PER_SPLIT
            return [NumberSplit(self._start, _INT64_MAX, step=step)]
        step = max(
            1, -(-(self._end - self._start) // (self._splits or _SPLITS_PER_READER * readers))
        )
        return [NumberSplit(self._start, self._end, step=step)] if self._end > self._start else []

    def cut(self, split: NumberSplit) -> tuple[NumberSplit, NumberSplit | None]:
        """Return the first numbers, and the rest."""
        if not split.step:
            return split, None
        middle = min(split.start + split.step, split.end)
        rest = NumberSplit(middle, split.end, step=split.step) if middle < split.end else None
        return NumberSplit(split.start, middle), rest

    def count(self, split: NumberSplit) -> int | None:
        """Return how many splits are cut from one."""
        if not split.step:
            return 1
        return None if self._end is None else -(-(split.end - split.start) // split.step)

    def pace_of(self, readers: int) -> Callable[[NumberSplit], Pace] | None:
        """Return the reader's share of the rate, for all its splits together."""
        if self._rate is None:
            return None
        pace = Pace(self._rate / readers)
        return lambda _: pace

    never_waits = True

    def open_split(self, split: NumberSplit, readers: int) -> Iterator[Positioned]:
        """Yield the numbers of a split."""
        rows, schema = self._rows_per_batch(readers), self.schema
        for first in range(split.start + split.position, split.end, rows):
            end = min(first + rows, split.end)
            batch = pa.record_batch([numbers_between(first, end)], schema=schema)
            yield batch, end - split.start

    def with_columns(self, columns: Sequence[str]) -> NumberSequenceSource | None:
        """Return this source when its only column is asked for, None when no column is.

        Raises:
            UnknownColumnError: another column.
        """
        unknown = [name for name in names("columns", columns) if name != self._column]
        if unknown:
            raise UnknownColumnError(
                f"{self.name} has no column {unknown[0]!r}", asked=unknown[0], have=self._column
            )
        return self if columns else None

    def _rows_per_batch(self, parallelism: int) -> int:
        if self._rate is None:
            return self._batch_size
        return max(1, min(self._batch_size, int(self._rate / parallelism * _SECONDS_PER_BATCH)))


def is_rate(value: object) -> bool:
    """Return True for a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return 0 < value < float("inf")


def numbers_between(start: int, end: int) -> pa.Array:
    """Return the numbers of a range as an array, without a Python object for each of them."""
    if hasattr(pa, "arange"):
        return pa.arange(start, end)
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import, and only old versions need it

    counted = pc.subtract(pc.cumulative_sum(pa.repeat(1, end - start)), 1)
    return pc.add(counted, start)
