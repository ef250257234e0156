"""Readers of sources whose splits are read one at a time, batch by batch.

A source supplies a function that opens a split and yields its batches, each with the position
after it. This module adds wake-ups, pauses, state and split requests.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headgate.errors import HeadgateError, SourceError
from headgate.source.api import (
    InputStatus,
    ReaderOutput,
    SourceOutput,
    SourceReaderContext,
    SourceSplit,
)
from headgate.source.base.emitter import RecordEmitter
from headgate.source.base.reader import SingleThreadMultiplexSourceReaderBase
from headgate.source.base.records import RecordsBySplits, RecordsWithSplitIds
from headgate.source.base.split_reader import (
    SplitReader,
    SplitsAddition,
    SplitsChange,
    SplitsRemoval,
)

if TYPE_CHECKING:
    import pyarrow as pa

SplitT = TypeVar("SplitT", bound=SourceSplit)
#: Rows of small batches that are handed over together, and the seconds that this may take: each handover wakes a thread.
_ROWS: Final = 4096
_SECONDS: Final = 0.001

#: A batch, the split's position after it, and the latest timestamp of its rows in ms since 1970, if the source has any.
#: A batch without rows only advances the position.
Positioned = tuple["pa.RecordBatch", int] | tuple["pa.RecordBatch", int, int | None]


class Pace:
    """Limits the rate of rows. Used by one thread.

    Lost time is not caught up, so the rate is an upper limit at every moment.

    Args:
        rows_per_second: the rate of this reader alone.
        clock: a monotonic clock in seconds.

    Attributes:
        due: time at which the next rows are due.
    """

    def __init__(self, rows_per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rows_per_second
        self._clock = clock
        self.due = clock()

    def delay(self) -> float:
        """Return the seconds until the next rows are due; 0 or less if they are due now."""
        return self.due - self._clock()

    def took(self, rows: int) -> None:
        """Count rows that were read."""
        self.due = max(self.due, self._clock()) + rows / self._rate


class SequentialSplitReader(SplitReader[Positioned, SplitT]):
    """Reads splits in the order of their arrival, except paused ones; or, with a pace for each, the one that is due first.

    Args:
        open_split: yields the batches of a split from its position on; None to let wake-ups and changes in.
        pace_of: returns the pace of a split, which it may share with others; None for no limit.
        reads_in_order: False if splits have paces of their own.
        never_waits: True if the next batch of a split is there at once.
    """

    def __init__(
        self,
        open_split: Callable[[SplitT], Iterator[Positioned | None]],
        pace_of: Callable[[SplitT], Pace] | None = None,
        *,
        reads_in_order: bool = True,
        never_waits: bool = False,
    ) -> None:
        self.reads_in_order = reads_in_order
        self._never_waits = never_waits
        #: Raised behind the batches that were read before it.
        self._error: Exception | None = None
        self._open_split = open_split
        self._pace_of = pace_of
        self._splits: dict[str, SplitT] = {}
        self._paces: dict[str, Pace] = {}
        self._open: dict[str, Iterator[Positioned | None]] = {}
        self._paused: set[str] = set()
        self._condition = threading.Condition()
        self._woken = False

    def fetch(self) -> RecordsWithSplitIds[Positioned]:
        """Return the next batch, or several small ones that are there; nothing after a wake-up."""
        split_id = self._wait_for_work()
        if split_id is None:
            return RecordsBySplits({})
        if self._error is not None:
            raise self._error
        batches = self._open.get(split_id)
        if batches is None:
            batches = self._open[split_id] = self._open_split(self._splits[split_id])
        try:
            positioned = next(batches)
        except StopIteration:
            self._forget(split_id)
            return RecordsBySplits({}, [split_id])
        if positioned is None:
            return RecordsBySplits({})
        if split_id in self._paces:
            self._paces[split_id].took(positioned[0].num_rows)
        elif self._never_waits and positioned[0].num_rows < _ROWS:
            return self._several(split_id, positioned, batches)
        return RecordsBySplits({split_id: [positioned]})

    def _several(
        self, split_id: str, first: Positioned, batches: Iterator[Positioned | None]
    ) -> RecordsWithSplitIds[Positioned]:
        """Return a batch with those behind it, as far as they are small and come at once."""
        several, rows, until = [first], first[0].num_rows, time.perf_counter() + _SECONDS
        while rows < _ROWS and not self._woken and time.perf_counter() < until:
            try:
                positioned = next(batches)
            except StopIteration:
                self._forget(split_id)
                return RecordsBySplits({split_id: several}, [split_id])
            except Exception as error:  # noqa: BLE001 - raised by the next call
                self._error = error
                break
            if positioned is None:
                break
            several.append(positioned)
            rows += positioned[0].num_rows
        return RecordsBySplits({split_id: several})

    def handle_splits_changes(self, change: SplitsChange[SplitT]) -> None:
        """Add or remove splits."""
        match change:
            case SplitsAddition():
                self._splits.update((split.split_id, split) for split in change.splits)
                if self._pace_of is not None:
                    self._paces.update((s.split_id, self._pace_of(s)) for s in change.splits)
            case SplitsRemoval():
                for split in change.splits:
                    self._forget(split.split_id)
            case _:
                raise TypeError(f"unknown change of splits: {type(change).__name__}")

    def wake_up(self) -> None:
        """Interrupt a waiting fetch; from any thread."""
        with self._condition:
            self._woken = True
            self._condition.notify_all()

    def pause_or_resume_splits(
        self, splits_to_pause: Sequence[SplitT], splits_to_resume: Sequence[SplitT]
    ) -> None:
        """Pause and resume single splits, which keep their order."""
        self._paused.update(split.split_id for split in splits_to_pause)
        self._paused.difference_update(split.split_id for split in splits_to_resume)

    def close(self) -> None:
        """Close all open splits."""
        for split_id in list(self._splits):
            self._forget(split_id)

    def _wait_for_work(self) -> str | None:
        """Wait until a split may be read; return None after a wake-up, or if there is no split."""
        with self._condition:
            while not self._woken:
                ready = (split for split in self._splits if split not in self._paused)
                if self._paces:
                    split_id = min(ready, key=lambda split: self._paces[split].due, default=None)
                else:
                    split_id = next(ready, None)
                if split_id is None:
                    if not self._splits:
                        return None
                    self._condition.wait()
                    continue
                delay = self._paces[split_id].delay() if self._paces else 0.0
                if delay <= 0:
                    return split_id
                self._condition.wait(delay)
            self._woken = False
            return None

    def _forget(self, split_id: str) -> None:
        self._splits.pop(split_id, None)
        self._paces.pop(split_id, None)
        self._paused.discard(split_id)
        batches = self._open.pop(split_id, None)
        close = getattr(batches, "close", None)
        if close is not None:
            close()


@dataclasses.dataclass(slots=True)
class Progress:
    """A split, and the position after its last emitted batch."""

    split: Any
    position: int


class BatchEmitter(RecordEmitter[Positioned, "pa.RecordBatch", Progress]):
    """Emits a batch, and advances the position of its split past it."""

    def emit_record(
        self, element: Positioned, output: SourceOutput[pa.RecordBatch], split_state: Progress
    ) -> None:
        """Emit a batch, unless it has no rows."""
        batch, split_state.position, *timestamp = element
        if batch.num_rows:
            output.collect(batch, *timestamp)


class BatchSourceReader(
    SingleThreadMultiplexSourceReaderBase[Positioned, "pa.RecordBatch", SplitT, Progress]
):
    """Reads positioned splits with one fetcher, and requests a split when one ends.

    Args:
        split_reader_supplier: makes the split reader, such as a :class:`SequentialSplitReader`; its
            splits are frozen dataclasses with a ``position``, 0 at the beginning.
        context: the reader's context.
    """

    def __init__(
        self,
        split_reader_supplier: Callable[[], SplitReader[Positioned, SplitT]],
        context: SourceReaderContext,
    ) -> None:
        super().__init__(split_reader_supplier, BatchEmitter(), context)

    @property
    def reads_in_order(self) -> bool:
        """True if the split reader reads one split after another."""
        reader = self._fetcher.split_reader
        return isinstance(reader, SequentialSplitReader) and reader.reads_in_order

    def start(self) -> None:
        """Request the first split."""
        self.context.send_split_request()

    def poll_next(self, output: ReaderOutput[pa.RecordBatch]) -> InputStatus:
        """Emit the next batch.

        Raises:
            HeadgateError: the split reader raised it, for example for a schema that does not fit.
            SourceError: the split reader raised another exception, which is its cause.
        """
        try:
            return super().poll_next(output)
        except SourceError as error:
            if isinstance(error.__cause__, HeadgateError):
                raise error.__cause__ from error.__cause__.__cause__
            raise

    def initialized_state(self, split: SplitT) -> Progress:
        """Return the progress of a split that was just added."""
        positioned: Any = split
        return Progress(split, positioned.position)

    def to_split_type(self, split_id: str, state: Progress) -> SplitT:  # noqa: ARG002 - in the split
        """Return the split at its emitted position."""
        split: SplitT = dataclasses.replace(state.split, position=state.position)
        return split

    def on_split_finished(self, finished: Mapping[str, Progress]) -> None:
        """Request as many splits as have ended."""
        for _ in finished:
            self.context.send_split_request()
