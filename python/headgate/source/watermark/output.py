"""The outputs of a reader: they queue records, and combine the watermarks of the splits."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headgate.errors import SourceError
from headgate.source.api.output import ReaderOutput, SourceOutput
from headgate.source.watermark.clock import Clock, PausableClock
from headgate.source.watermark.generator import MAX_WATERMARK, MIN_WATERMARK
from headgate.source.watermark.partial import IdleTimer, PartialWatermark, combined_watermark

if TYPE_CHECKING:
    from headgate.source.watermark.strategy import WatermarkStrategy

T = TypeVar("T")


class WatermarkMark:
    """A place between two queued records from which on a watermark holds."""

    __slots__ = ("timestamp",)

    def __init__(self, timestamp: int) -> None:
        self.timestamp = timestamp


class PartialOutput(SourceOutput[T]):
    """The output of one split, or of records that belong to none.

    Args:
        queue: takes records.
        partial: its watermark.
        strategy: makes it.
        clock: of idleness.
    """

    __slots__ = ("_assigner", "_clock", "_events", "_generator", "_queue", "_timer", "partial")

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
        self._events = 0
        self._clock = PausableClock(clock)
        timeout = strategy.idle_timeout
        self._timer = None if timeout is None else IdleTimer(timeout, self._clock)

    def collect(self, record: T, timestamp: int | None = None) -> None:
        """Queue a record, then let the generator look at it.

        Raises:
            SourceError: the record is None, which stands for no record everywhere.
        """
        if record is None:
            raise SourceError("the reader emitted None, which is no record")
        self._queue.append(record)
        self._events += 1
        partial = self.partial
        partial.is_used = True
        if partial.is_idle:
            partial.mark_active()
        if self._generator is not None:
            if self._assigner is not None:
                timestamp = self._assigner(record, timestamp)
            self._generator.on_event(record, timestamp, partial)

    def emit_watermark(self, timestamp: int) -> None:
        """Take the source's own watermark, unless the strategy makes them."""
        if self._generator is None:
            self.partial.emit_watermark(timestamp)

    def mark_idle(self) -> None:
        """Leave this output out until its next record or watermark."""
        self.partial.mark_idle()

    def mark_active(self) -> None:
        """Count this output in again."""
        self.partial.mark_active()

    def on_periodic_emit(self) -> None:
        """Emit what the generator knows, unless the split has become idle."""
        if self._timer is not None and self._timer.is_idle(self._events):
            self.partial.mark_idle()
        elif self._generator is not None:
            self._generator.on_periodic_emit(self.partial)

    def pause(self) -> None:
        """Hold the clock of idleness: nobody reads this split now."""
        self._clock.pause()

    def resume(self) -> None:
        """Let the clock of idleness go on."""
        self._clock.resume()


class OperatorOutput(ReaderOutput[T], Generic[T]):
    """Everything a reader emits, in order: records, and between them where watermarks hold.

    The combined watermark is the minimum over the splits that are not idle, and it never goes
    back. Records that belong to no split have a watermark of their own, which passes directly: so
    readers work that never use the outputs of splits. Source: Flink's
    ProgressiveTimestampsAndWatermarks and WatermarkOutputMultiplexer.

    Args:
        strategy: of every output.
        clock: of idleness, in seconds.

    Attributes:
        queue: records and :class:`WatermarkMark`, not yet handed out.
        current: the watermark, in ms, that holds for all records not yet handed out.
        latest: the watermark that holds for all records not yet emitted.
        is_idle: whether all outputs are.
        changes: grows whenever a watermark does, or an output comes, goes, idles or wakes.
        released: splits whose outputs were released, until somebody takes them away.
        splits: the outputs of the splits that are there.
    """

    def __init__(self, strategy: WatermarkStrategy, clock: Clock) -> None:
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
        self._main: PartialOutput[T] = PartialOutput(
            self.queue, PartialWatermark(self._combine), strategy, clock
        )

    def collect(self, record: T, timestamp: int | None = None) -> None:
        """Emit a record that belongs to no split."""
        self._main.collect(record, timestamp)

    def emit_watermark(self, timestamp: int) -> None:
        """Take a watermark of the whole reader, unless the strategy makes them."""
        self._main.emit_watermark(timestamp)

    def mark_idle(self) -> None:
        """Take what belongs to no split for idle."""
        self._main.mark_idle()

    def mark_active(self) -> None:
        """Take what belongs to no split for active."""
        self._main.mark_active()

    def create_output_for_split(self, split_id: str) -> SourceOutput[T]:
        """Return the output of a split, the same one until it is released."""
        output = self.splits.get(split_id)
        if output is None:
            self._had_splits = True
            partial = PartialWatermark(self._combine)
            output = PartialOutput(self.queue, partial, self._strategy, self._clock)
            self.splits[split_id] = output
            self._combine()
        return output

    def release_output_for_split(self, split_id: str) -> None:
        """Forget a split that is finished; one that is not there changes nothing."""
        if self.splits.pop(split_id, None) is not None:
            self.released.append(split_id)
            self._combine()

    @property
    def split_watermarks(self) -> Mapping[str, int]:
        """The watermarks of the splits, in ms."""
        return {name: output.partial.watermark for name, output in self.splits.items()}

    @property
    def watermark_to_align(self) -> int | None:
        """What an alignment group is told, in ms.

        ``MAX_WATERMARK`` while nothing is at work here, so that others need not wait; None before
        the first watermark.
        """
        has_none_left = self._had_splits and not self.splits and not self._main.partial.is_used
        if self.is_idle or has_none_left:
            return MAX_WATERMARK
        return None if self.latest == MIN_WATERMARK else self.latest

    def on_periodic_emit(self) -> None:
        """Let all generators emit, then combine once."""
        self._is_deferred = True
        try:
            if self._main.partial.is_used:
                self._main.on_periodic_emit()
            for output in self.splits.values():
                output.on_periodic_emit()
        finally:
            self._is_deferred = False
        self._combine()

    def pause_split(self, split_id: str) -> None:
        """Hold the clock of idleness of a split that is not read now."""
        if split_id in self.splits:
            self.splits[split_id].pause()

    def resume_split(self, split_id: str) -> None:
        """Let the clock of idleness of a split go on."""
        if split_id in self.splits:
            self.splits[split_id].resume()

    def finish(self) -> None:
        """Emit the last watermark: nothing follows."""
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
