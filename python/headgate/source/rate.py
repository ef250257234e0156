"""A source of rows that come at a rate, with event times, for tests, demos and load."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

import pyarrow as pa

from headgate.source.api import (
    Boundedness,
    JsonSerializer,
    SimpleVersionedSerializer,
    Source,
    SourceReader,
    SourceReaderContext,
    SourceSplit,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from headgate.source.arguments import Texts, refuse, whole_number
from headgate.source.base.records import RecordsBySplits, RecordsWithSplitIds
from headgate.source.base.split_reader import (
    SplitReader,
    SplitsAddition,
    SplitsChange,
    SplitsRemoval,
)
from headgate.source.numbers import is_rate, numbers_between
from headgate.source.sequential import BatchSourceReader, Pace, Timed, TimedBatchEmitter

#: Seconds of rows in a batch, so that rows come evenly.
_SECONDS_PER_BATCH: Final = 0.1
_MOST_SPLITS: Final = 100_000
_OPTIONS: Final = (
    *("rowsPerSecond", "rows", "startTime", "splits", "batchSize", "column", "timeColumn"),
)


@dataclass(frozen=True, slots=True)
class RateSplit(SourceSplit):
    """Every ``splits``-th number, from ``number`` on.

    Attributes:
        number: the first number of the split.
        splits: number of splits.
        start: event time of the number 0, in ms since 1970.
        position: rows emitted so far.
    """

    number: int
    splits: int
    start: int
    position: int = 0

    @property
    def split_id(self) -> str:
        """The place among the splits, such as ``rate[0/4]``."""
        return f"rate[{self.number}/{self.splits}]"


@dataclass(frozen=True, slots=True)
class RateCheckpoint:
    """The splits that no reader has.

    Attributes:
        splits: the fields of each.
    """

    splits: Sequence[Sequence[int]] = ()


class RateSource(Source[pa.RecordBatch, RateSplit, RateCheckpoint]):
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
        self._rate = rows_per_second
        self._rows = None if rows is None else whole_number("rows", rows, 0)
        self._start = None if start_time is None else whole_number("start_time", start_time, 0)
        self._splits = None if splits is None else whole_number("splits", splits, 1, _MOST_SPLITS)
        self._batch_size = whole_number("batch_size", batch_size, 1, 2**31 - 1)
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
    def boundedness(self) -> Boundedness:
        """``BOUNDED`` with ``rows``."""
        return Boundedness.CONTINUOUS_UNBOUNDED if self._rows is None else Boundedness.BOUNDED

    @property
    def has_endless_splits(self) -> bool:
        """True without ``rows``."""
        return self._rows is None

    @property
    def schema(self) -> pa.Schema:
        """The number and its event time, both without nulls."""
        types = (pa.int64(), pa.timestamp("ms", "UTC"))
        fields = zip(self._columns, types, strict=True)
        return pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields])

    @property
    def name(self) -> str:
        """The rate, such as ``RateSource(1000)``."""
        return f"RateSource({self._rate:g})"

    def create_enumerator(
        self, context: SplitEnumeratorContext[RateSplit]
    ) -> SplitEnumerator[RateSplit, RateCheckpoint]:
        """Return an enumerator of all splits."""
        count = self._splits or context.current_parallelism
        start = time.time_ns() // 1_000_000 if self._start is None else self._start
        return RateEnumerator(context, [RateSplit(n, count, start) for n in range(count)])

    def restore_enumerator(
        self, context: SplitEnumeratorContext[RateSplit], checkpoint: RateCheckpoint
    ) -> SplitEnumerator[RateSplit, RateCheckpoint]:
        """Return an enumerator of the splits that no reader had."""
        return RateEnumerator(context, [RateSplit(*fields) for fields in checkpoint.splits])

    def create_reader(
        self, context: SourceReaderContext
    ) -> SourceReader[pa.RecordBatch, RateSplit]:
        """Return a reader that keeps each split at its share of the rate."""
        return BatchSourceReader(lambda: RateSplitReader(self), context, TimedBatchEmitter())

    @property
    def split_serializer(self) -> SimpleVersionedSerializer[RateSplit]:
        """JSON."""
        return JsonSerializer(RateSplit)

    @property
    def enumerator_checkpoint_serializer(self) -> SimpleVersionedSerializer[RateCheckpoint]:
        """JSON."""
        return JsonSerializer(RateCheckpoint)

    def pace(self, split: RateSplit) -> Pace:
        """Return the pace of one split."""
        return Pace(self._rate / split.splits)

    def next_rows(self, split: RateSplit, position: int) -> Timed | None:
        """Return the batch at a position, the position after it and its latest time; None at the end."""
        per_batch = int(self._rate / split.splits * _SECONDS_PER_BATCH)
        end = position + max(1, min(self._batch_size, per_batch))
        if self._rows is not None:
            end = min(end, max(0, -(-(self._rows - split.number) // split.splits)))
        if end <= position:
            return None
        import pyarrow.compute as pc  # noqa: PLC0415 - slow to import, and only readers need it

        ids = pc.add(pc.multiply(numbers_between(position, end), split.splits), split.number)
        rate = Fraction(self._rate).limit_denominator(1000)
        after = pc.divide(pc.multiply_checked(ids, 1000 * rate.denominator), rate.numerator)
        times = pc.add(after, split.start).cast(self.schema.types[1])
        batch = pa.record_batch([ids, times], schema=self.schema)
        return batch, end, times[-1].value


class RateEnumerator(SplitEnumerator[RateSplit, RateCheckpoint]):
    """Gives each reader its share of the splits as soon as it registers."""

    def __init__(
        self, context: SplitEnumeratorContext[RateSplit], splits: Sequence[RateSplit]
    ) -> None:
        self._context = context
        self._pending = list(splits)

    def start(self) -> None:
        """Do nothing."""

    def handle_split_request(self, subtask_id: int, requester_hostname: str | None) -> None:
        """Do nothing: a reader has its splits since it registered."""

    def add_splits_back(self, splits: Sequence[RateSplit], subtask_id: int) -> None:
        """Keep the splits of a lost reader for its successor."""
        del subtask_id
        self._pending.extend(splits)

    def add_reader(self, subtask_id: int) -> None:
        """Assign the reader's splits, and signal that no more follow."""
        readers = self._context.current_parallelism
        own = [split for split in self._pending if split.number % readers == subtask_id]
        self._pending = [split for split in self._pending if split.number % readers != subtask_id]
        if own:
            self._context.assign_splits({subtask_id: own})
        self._context.signal_no_more_splits(subtask_id)

    def snapshot_state(self, checkpoint_id: int) -> RateCheckpoint:
        """Return the splits that no reader has."""
        del checkpoint_id
        return RateCheckpoint(tuple(dataclasses.astuple(split) for split in self._pending))

    def close(self) -> None:
        """Do nothing."""


class RateSplitReader(SplitReader[Timed, RateSplit]):
    """Reads the split whose rows are due first, and waits until they are.

    Args:
        source: makes the rows.
    """

    def __init__(self, source: RateSource) -> None:
        self._source = source
        self._splits: dict[str, tuple[RateSplit, Pace]] = {}
        self._positions: dict[str, int] = {}
        self._paused: set[str] = set()
        self._woken = threading.Event()

    def fetch(self) -> RecordsWithSplitIds[Timed]:
        """Return the rows that are due next, or nothing after a wake-up."""
        ready = [
            (pace, split) for split, pace in self._splits.values() if not self._is_paused(split)
        ]
        if not ready:
            if self._splits:
                self._woken.wait()
            self._woken.clear()
            return RecordsBySplits({})
        pace, split = min(ready, key=lambda one: one[0].delay())
        delay = pace.delay()
        if self._woken.wait(delay) if delay > 0 else self._woken.is_set():
            self._woken.clear()
            return RecordsBySplits({})
        timed = self._source.next_rows(split, self._positions[split.split_id])
        if timed is None:
            self._forget(split)
            return RecordsBySplits({}, [split.split_id])
        self._positions[split.split_id] = timed[1]
        pace.took(timed[0].num_rows)
        return RecordsBySplits({split.split_id: [timed]})

    def handle_splits_changes(self, change: SplitsChange[RateSplit]) -> None:
        """Add or remove splits."""
        match change:
            case SplitsAddition():
                for split in change.splits:
                    self._splits[split.split_id] = split, self._source.pace(split)
                    self._positions[split.split_id] = split.position
            case SplitsRemoval():
                for split in change.splits:
                    self._forget(split)
            case _:
                raise TypeError(f"unknown change of splits: {type(change).__name__}")

    def wake_up(self) -> None:
        """Interrupt a waiting fetch; from any thread."""
        self._woken.set()

    def pause_or_resume_splits(
        self, splits_to_pause: Sequence[RateSplit], splits_to_resume: Sequence[RateSplit]
    ) -> None:
        """Pause and resume single splits."""
        self._paused.update(split.split_id for split in splits_to_pause)
        self._paused.difference_update(split.split_id for split in splits_to_resume)

    def close(self) -> None:
        """Do nothing: numbers need no resources."""

    def _is_paused(self, split: RateSplit) -> bool:
        return split.split_id in self._paused

    def _forget(self, split: RateSplit) -> None:
        self._splits.pop(split.split_id, None)
        self._positions.pop(split.split_id, None)
        self._paused.discard(split.split_id)
