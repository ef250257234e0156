"""A source of rows that come at a rate, with event times, for tests, demos and load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

import pyarrow as pa

from headgate.source.arguments import Texts, refuse, whole_number
from headgate.source.numbers import is_rate, numbers_between
from headgate.source.striped import MOST_SPLITS, Stripe, StripedSource

_OPTIONS: Final = (
    *("rowsPerSecond", "rows", "startTime", "splits", "batchSize", "column", "timeColumn"),
)


@dataclass(frozen=True, slots=True)
class RateSplit(Stripe):
    """Every ``splits``-th number."""

    kind = "rate"


class RateSource(StripedSource[RateSplit]):
    """Rows at a rate: the numbers 0, 1, 2 and so on, each with the event time at which it is due.

    A record is a batch with a column of 64-bit integers and one of timestamps. The number ``n`` has
    the event time ``start_time + n / rows_per_second``, also after a restart. Within a split the
    times only grow. Readers keep to the rate by their own clocks; lost time is not caught up.

    A split is every n-th number, and a checkpoint has its position. All splits are given out at
    the start, so a reader that gets none ends at once and holds no watermark back.

    Args:
        rows_per_second: limit over all readers together.
        rows: number of rows; None for a source that runs until it is stopped.
        start_time: event time of the first row, in ms since 1970; None for the time of the start.
        splits: number of splits; by default one per reader. It limits the readers that a restart
            with a higher parallelism can use.
        batch_size: rows in a batch, at most; a batch has at most the rows of 0.1 s.
        column: name of the column of numbers.
        time_column: name of the column of event times (``timestamp[ms, tz=UTC]``).

    Raises:
        OptionError: an argument is outside its limits.
    """

    split_type = RateSplit

    def __init__(
        self,
        rows_per_second: float,
        *,
        rows: int | None = None,
        start_time: int | None = None,
        splits: int | None = None,
        batch_size: int = 131_072,
        column: str = "id",
        time_column: str = "time",
    ) -> None:
        if not is_rate(rows_per_second):
            raise refuse("rows_per_second", rows_per_second, "is no rate", "a number above 0")
        self._rows = None if rows is None else whole_number("rows", rows, 0)
        super().__init__(
            None if start_time is None else whole_number("start_time", start_time, 0),
            None if splits is None else whole_number("splits", splits, 1, MOST_SPLITS),
            whole_number("batch_size", batch_size, 1, 2**31 - 1),
            rows_per_second,
        )
        self._event_rate = Fraction(rows_per_second).limit_denominator(1000)
        for name, value in (("column", column), ("time_column", time_column)):
            if not isinstance(value, str):
                raise refuse(name, value, "is no name", "a text")
        if column == time_column:
            raise refuse("time_column", time_column, "is column too", "another name")
        self._columns = (column, time_column)

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Return the source of ``rowsPerSecond`` and, optionally, the other arguments.

        Raises:
            OptionError: an option is unknown, missing or malformed.
        """
        texts = Texts(cls.__name__, options, _OPTIONS)
        return cls(
            texts.number("rowsPerSecond"),
            rows=texts.integer("rows"),
            start_time=texts.integer("startTime"),
            splits=texts.integer("splits"),
            batch_size=texts.integer("batchSize", 131_072),
            column=texts.text("column", "id"),
            time_column=texts.text("timeColumn", "time"),
        )

    @property
    def rows(self) -> int | None:
        """The number of rows; None for a source that has no end."""
        return self._rows

    @property
    def schema(self) -> pa.Schema:
        """The number and its event time, both without nulls."""
        types = (pa.int64(), pa.timestamp("ms", "UTC"))
        fields = zip(self._columns, types, strict=True)
        return pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields])

    @property
    def name(self) -> str:
        """The rate, such as ``RateSource(1000)``."""
        return f"RateSource({self._rows_per_second:g})"

    def _rows_of(self, split: RateSplit, position: int, end: int) -> tuple[pa.RecordBatch, int]:
        """Return numbers with their times."""
        import pyarrow.compute as pc  # noqa: PLC0415 - slow to import, and only readers need it

        ids = pc.add(pc.multiply(numbers_between(position, end), split.splits), split.number)
        rate = self._event_rate
        after = pc.divide(pc.multiply_checked(ids, 1000 * rate.denominator), rate.numerator)
        times = pc.add(after, split.start).cast(self.schema.types[1])
        return pa.record_batch([ids, times], schema=self.schema), times[-1].value
