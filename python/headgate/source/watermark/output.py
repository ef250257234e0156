"""The outputs of a reader: they queue records, and combine the watermarks of the splits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from headgate.errors import SourceError
from headgate.source.api.output import ReaderOutput, SourceOutput
from headgate.source.watermark.clock import Clock, PausableClock
from headgate.source.watermark.generator import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    BoundedOutOfOrderness,
)
from headgate.source.watermark.partial import IdleTimer, PartialWatermark, combined_watermark

if TYPE_CHECKING:
    from headgate.source.watermark.strategy import WatermarkStrategy

T = TypeVar("T")
#: Batches whose timestamps are read at once, as long as no watermark is to be emitted; and the rows that one may have. Of
#: more rows, a call of Arrow for each takes little beside what is done with them.
_TABLE_BATCHES: Final = 64
_TABLE_ROWS: Final = 512


class WatermarkMark:
    """A watermark in the queue, which applies to the records behind it."""

    __slots__ = ("timestamp",)

    def __init__(self, timestamp: int) -> None:
        self.timestamp = timestamp


class PartialOutput(SourceOutput[T]):
    """The output of one split, or of the records that belong to no split.

    Args:
        queue: takes the records.
        partial: the watermark of this output.
        strategy: makes the watermark.
        clock: the clock of idleness.
    """

    __slots__ = (
        "_assigner",
        "_clock",
        "_events",
        "_generator",
        "_queue",
        "_takes_tables",
        "_timer",
        "_unread",
        "partial",
    )

    def __init__(
        self,
        queue: deque[Any],
        partial: PartialWatermark,
        strategy: WatermarkStrategy,
        clock: Clock,
    ) -> None:
        self.partial = partial
        self._queue = queue
        self._assigner = strategy.assigner
        self._generator = strategy.create_generator()
        #: True if the generator only looks at the latest timestamp; a class below it may look at more.
        self._takes_tables = (
            self._assigner is not None
            and isinstance(self._assigner.column, str)
            and type(self._generator) is BoundedOutOfOrderness
        )
        #: Batches of which the generator has not heard.
        self._unread: list[Any] = []
        self._events = 0
        self._clock = PausableClock(clock)
        timeout = strategy.idle_timeout
        self._timer = None if timeout is None else IdleTimer(timeout, self._clock)

    def collect(self, record: T, timestamp: int | None = None) -> None:
        """Queue a record, then pass it to the generator.

        Raises:
            SourceError: the record is None, which everywhere means that there is no record.
        """
        if record is None:
            raise SourceError("the reader emitted None, which is not a record")
        self._queue.append(record)
        self._events += 1
        partial = self.partial
        partial.is_used = True
        if partial.is_idle:
            partial.mark_active()
        if self._generator is None:
            return
        # The first batch is read at once: it tells whether the column is there.
        if (
            self._takes_tables
            and self._events > 1
            and 0 < getattr(record, "num_rows", 0) < _TABLE_ROWS
        ):
            self._unread.append(record)
            if len(self._unread) == _TABLE_BATCHES:
                self._read()
            return
        self._read()
        self._tell(record, timestamp)

    def _tell(self, record: Any, timestamp: int | None) -> None:
        """Tell the generator of a record."""
        if self._generator is not None:
            if self._assigner is not None:
                timestamp = self._assigner(record, timestamp)
            self._generator.on_event(record, timestamp, self.partial)

    def _read(self) -> None:
        """Tell the generator of the batches that it has not heard of."""
        unread, self._unread = self._unread, []
        if not unread:
            return
        import pyarrow as pa  # noqa: PLC0415 - the batches are pyarrow's

        try:
            self._tell(pa.Table.from_batches(unread), None)
        except (TypeError, pa.ArrowException):  # of several schemas, or tables among them
            for record in unread:
                self._tell(record, None)

    def emit_watermark(self, timestamp: int) -> None:
        """Take the source's own watermark, unless the strategy makes the watermarks."""
        if self._generator is None:
            self.partial.emit_watermark(timestamp)

    def mark_idle(self) -> None:
        """Mark this output idle until its next record or watermark."""
        self.partial.mark_idle()

    def mark_active(self) -> None:
        """Mark this output active."""
        self.partial.mark_active()

    def on_periodic_emit(self) -> None:
        """Emit the generator's watermark, unless the split has become idle."""
        self._read()
        if self._timer is not None and self._timer.is_idle(self._events):
            self.partial.mark_idle()
        elif self._generator is not None:
            self._generator.on_periodic_emit(self.partial)

    def last_watermark(self) -> int | None:
        """Return the watermark behind the last record; None if there is none."""
        self._read()
        if self._generator is not None:
            self._generator.on_periodic_emit(self.partial)
        return self.partial.watermark if self.partial.watermark > MIN_WATERMARK else None

    def pause(self) -> None:
        """Pause the clock of idleness while the split is not read."""
        self._clock.pause()

    def resume(self) -> None:
        """Resume the clock of idleness."""
        self._clock.resume()


class OperatorOutput(ReaderOutput[T], Generic[T]):
    """Queues the records and watermarks of a reader, in order.

    The combined watermark is the minimum over the splits that are not idle, and never decreases.
    The watermark of records that belong to no split is emitted directly, for readers that do not
    use the outputs of splits. Source: Flink's ProgressiveTimestampsAndWatermarks and
    WatermarkOutputMultiplexer.

    Args:
        strategy: makes the watermarks of every output.
        clock: the clock of idleness, in seconds.
        at_end: how the last watermark of the job follows from those of the splits: ``max`` if the next job has other
            splits, ``min`` if it goes on with these; None if the end of input is the end of all.

    Attributes:
        queue: records and :class:`WatermarkMark`, not yet handed out.
        current: the watermark in ms of all records not yet handed out.
        latest: the watermark in ms of all records not yet emitted.
        is_idle: True while all outputs are idle, or the reader has had no split for the idle timeout.
        changes: grows whenever a watermark grows, or an output is added, removed, idle or active.
        released: splits whose outputs were released; the caller clears it.
        splits: the outputs of the unfinished splits.
    """

    def __init__(
        self,
        strategy: WatermarkStrategy,
        clock: Clock,
        *,
        at_end: Callable[[int, int], int] | None = None,
    ) -> None:
        self._at_end = at_end
        #: Of the splits that have ended, if they had any.
        self._last: int | None = None
        self.queue: deque[Any] = deque()
        self.current = MIN_WATERMARK
        self.latest = MIN_WATERMARK
        self.is_idle = False
        self.changes = 0
        self.released: list[str] = []
        self.splits: dict[str, PartialOutput[T]] = {}
        self._strategy = strategy
        self._clock = clock
        self._is_deferred = False
        self._had_splits = False
        timeout = strategy.idle_timeout
        self._timer = None if timeout is None else IdleTimer(timeout, clock)
        #: Splits that were added or released, as events of the timer.
        self._moves = 0
        #: True once there was no split for the timeout.
        self._waits_for_splits = False
        self._main: PartialOutput[T] = PartialOutput(
            self.queue, PartialWatermark(self._combine), strategy, clock
        )

    def collect(self, record: T, timestamp: int | None = None) -> None:
        """Emit a record that belongs to no split."""
        self._main.collect(record, timestamp)
        if self._waits_for_splits:
            self._waits_for_splits = False
            self._combine()

    def emit_watermark(self, timestamp: int) -> None:
        """Take a watermark of the whole reader, unless the strategy makes the watermarks."""
        self._main.emit_watermark(timestamp)

    def mark_idle(self) -> None:
        """Mark the output of records without a split idle."""
        self._main.mark_idle()

    def mark_active(self) -> None:
        """Mark the output of records without a split active."""
        self._main.mark_active()

    def create_output_for_split(self, split_id: str) -> SourceOutput[T]:
        """Return the output of a split, the same one until it is released."""
        output = self.splits.get(split_id)
        if output is None:
            self._had_splits = True
            self._waits_for_splits = False
            self._moves += 1
            partial = PartialWatermark(self._combine)
            output = PartialOutput(self.queue, partial, self._strategy, self._clock)
            self.splits[split_id] = output
            self._combine()
        return output

    def release_output_for_split(self, split_id: str) -> None:
        """Remove the output of a finished split; ignore an unknown split."""
        output = self.splits.pop(split_id, None)
        if output is not None:
            self.released.append(split_id)
            self._moves += 1
            self._keep_last(output)
            self._combine()

    def _keep_last(self, output: PartialOutput[T]) -> None:
        last = output.last_watermark()
        if self._at_end is not None and last is not None:
            self._last = last if self._last is None else self._at_end(self._last, last)

    def end(self) -> None:
        """Handle the end of input, after which a later job continues: emit what the last records say of the time."""
        if self._at_end is not None:
            self._keep_last(self._main)
            if self._last is not None:
                self._emit(self._last)
            self.is_idle = self._at_end is max or self._last is None

    @property
    def split_watermarks(self) -> Mapping[str, int]:
        """The watermarks of the splits, in ms."""
        return {name: output.partial.watermark for name, output in self.splits.items()}

    @property
    def watermark_to_align(self) -> int | None:
        """The watermark to report to the alignment group, in ms.

        ``MAX_WATERMARK`` while this reader has nothing to read, so that others need not wait for
        it; None before the first watermark.
        """
        has_none_left = self._had_splits and not self.splits and not self._main.partial.is_used
        if self.is_idle or has_none_left:
            return MAX_WATERMARK
        return None if self.latest == MIN_WATERMARK else self.latest

    def on_periodic_emit(self) -> None:
        """Emit the watermarks of all generators, then combine them once."""
        self._is_deferred = True
        try:
            if self._main.partial.is_used:
                self._main.on_periodic_emit()
            elif self._timer is not None and not self.splits:
                self._waits_for_splits = self._timer.is_idle(self._moves)
            for output in self.splits.values():
                output.on_periodic_emit()
        finally:
            self._is_deferred = False
        self._combine()

    def pause_split(self, split_id: str) -> None:
        """Pause the clock of idleness of a split that is not read now."""
        if split_id in self.splits:
            self.splits[split_id].pause()

    def resume_split(self, split_id: str) -> None:
        """Resume the clock of idleness of a split."""
        if split_id in self.splits:
            self.splits[split_id].resume()

    def finish(self) -> None:
        """Emit the last watermark, after which no record follows."""
        self._emit(MAX_WATERMARK)

    def _combine(self) -> None:
        if self._is_deferred:
            return
        self.changes += 1
        partials = [output.partial for output in self.splits.values()]
        self.is_idle = self._find_idle(partials)
        combined = combined_watermark(partials)
        if combined is not None:
            self._emit(combined)
        self._emit(self._main.partial.watermark)

    def _find_idle(self, splits: list[PartialWatermark]) -> bool:
        main = self._main.partial
        if main.is_used and not main.is_idle:
            return False
        if not splits and not main.is_used:
            return self._waits_for_splits
        if splits and all(split.is_idle for split in splits):
            return True
        return main.is_used and not any(split.is_used for split in splits)

    def _emit(self, timestamp: int) -> None:
        if timestamp <= self.latest:
            return
        self.latest = min(timestamp, MAX_WATERMARK)
        if self.queue:
            self.queue.append(WatermarkMark(self.latest))
        else:
            self.current = self.latest
