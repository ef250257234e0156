"""Drives a reader in one thread: decides when to poll it, when it waits, and when it has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from headgate.errors import ClosedError, HeadgateError, NotBuiltError, SourceError
from headgate.source.api.reader import InputStatus
from headgate.source.runtime.availability import Availability
from headgate.source.runtime.failure import source_failure
from headgate.source.runtime.mode import OperatingMode
from headgate.source.runtime.timers import Timers
from headgate.source.watermark.alignment import SplitAlignment
from headgate.source.watermark.generator import MAX_WATERMARK
from headgate.source.watermark.output import OperatorOutput

if TYPE_CHECKING:
    from headgate.source.api.event import SourceEvent
    from headgate.source.api.reader import SourceReader, SourceReaderContext
    from headgate.source.api.source import Source
    from headgate.source.watermark.clock import Clock
    from headgate.source.watermark.strategy import WatermarkStrategy

T = TypeVar("T")

_ENDED: Final = {
    OperatingMode.SOURCE_STOPPED,
    OperatingMode.SOURCE_DRAINED,
    OperatingMode.DATA_FINISHED,
}


class ReaderDriver(Generic[T]):
    """The reader of a source, its output and its mode; used by the owner's thread only.

    Args:
        source: creates the reader.
        context: the reader's context.
        strategy: makes the watermarks.
        signal: wakes the owner; called on any thread.
        report_watermark: called with the watermark in ms, each update interval.
        report_finished: called with the ids of splits after their last record was handed out.
        ends_open: True if no last watermark follows the end of input.
        clock: in seconds.

    Attributes:
        mode: the current operating mode.
        output: takes the reader's records.
        timers: the due times of watermarks.
        availability: the time of the next poll.
        splits: the unfinished splits, in the order of their arrival.
        finished_splits: the number of finished splits.
    """

    def __init__(
        self,
        source: Source[T, Any, Any],
        context: SourceReaderContext,
        strategy: WatermarkStrategy,
        signal: Callable[[], None],
        report_watermark: Callable[[int], None] | None,
        report_finished: Callable[[Sequence[str]], None] | None,
        ends_open: bool,
        clock: Clock,
    ) -> None:
        self.mode = OperatingMode.OUTPUTS_UNINITIALISED
        self.timers = Timers(strategy, clock)
        self._ends_open = ends_open
        at_end = (min if source.has_endless_splits else max) if ends_open else None
        self.output: OperatorOutput[T] = OperatorOutput(
            strategy, self.timers.activity, at_end=at_end
        )
        self.availability = Availability(lambda _: signal())
        self.splits: dict[str, None] = {}
        self.finished_splits = 0
        self._source = source
        self._context = context
        self._report_watermark = report_watermark
        self._report_finished = report_finished
        self._clock = clock
        self._alignment = SplitAlignment()
        self._aligned_changes = 0
        self._pauses_splits = True
        alignment = strategy.alignment
        self._allow_unaligned_splits = alignment is not None and alignment.allow_unaligned_splits
        self._reader: SourceReader[T, Any] | None = None

    @property
    def reader(self) -> SourceReader[T, Any]:
        """The reader.

        Raises:
            ClosedError: the operator was not started.
        """
        if self._reader is None:
            raise ClosedError(
                f"the operator of {self._source.name} was not started", remedy="call start() first"
            )
        return self._reader

    def start(self) -> None:
        """Create and start the reader, once."""
        if self.mode is not OperatingMode.OUTPUTS_UNINITIALISED:
            return
        with self.guard("create_reader"):
            self._reader = self._source.create_reader(self._context)
        with self.guard("start"):
            self.reader.start()
        self.mode = OperatingMode.READING

    def close(self) -> None:
        """Close the reader if it was created."""
        if self._reader is not None:
            with self.guard("close"):
                self._reader.close()

    # Called for messages of the mailbox.

    def add_splits(self, version: int, splits: Sequence[tuple[str, bytes]]) -> None:
        """Create the outputs of new splits, then add the splits to the reader."""
        serializer = self._source.split_serializer
        added = []
        for split_id, data in splits:
            with self.guard("deserialize", [split_id]):
                split = serializer.deserialize(version, data)
            if split.split_id != split_id:
                raise SourceError(
                    f"{self._source.name} deserialized split {split_id} as {split.split_id}",
                    have="the split serializer has to keep a split's id",
                )
            self.splits[split_id] = None
            # The split has to hold the watermark back even before its first record.
            self.output.create_output_for_split(split_id)
            added.append(split)
        with self.guard("add_splits"):
            self.reader.add_splits(added)
        self._hold_unread()
        self.availability.reset()

    def no_more_splits(self) -> None:
        """Tell the reader that no split follows."""
        with self.guard("notify_no_more_splits"):
            self.reader.notify_no_more_splits()
        self.availability.reset()

    def source_event(self, event: SourceEvent) -> None:
        """Pass an event to the reader."""
        with self.guard("handle_source_event"):
            self.reader.handle_source_event(event)
        self.availability.reset()

    def align(self, max_allowed_ms: int) -> None:
        """Set a new limit for the watermark."""
        self._alignment.max_allowed = max_allowed_ms
        self._align()

    def stop(self, drain: bool) -> None:
        """Stop polling the reader; a second stop has no effect."""
        if self.mode not in _ENDED:
            self.mode = OperatingMode.SOURCE_DRAINED if drain else OperatingMode.SOURCE_STOPPED

    # Called by the owner between two records.

    def advance(self) -> bool:
        """Poll the reader once if it is due; called when all emitted records were handed out.

        Returns:
            True if there may be a record; False if the caller has to wait, or the input has ended.
        """
        self.timers.record_requested()
        if self.output.released:
            self._report_released()
        if self.mode in _ENDED:
            return self._end()
        now = self._clock()
        if self.timers.due is not None and now >= self.timers.due:
            self._look_at_watermarks(now)
        if self.mode is OperatingMode.WAITING_FOR_ALIGNMENT:
            return False
        if not self.availability.should_poll(now):
            return False
        self._poll_reader(now)
        if self.output.changes != self._aligned_changes:
            self._align()
        return True

    def snapshot(self, checkpoint_id: int) -> list[tuple[str, bytes]]:
        """Return the reader's unfinished splits."""
        serializer = self._source.split_serializer
        with self.guard("snapshot_state"):
            splits = self.reader.snapshot_state(checkpoint_id)
            return [(split.split_id, serializer.serialize(split)) for split in splits]

    @contextmanager
    def guard(self, during: str, splits: Sequence[str] | None = None) -> Iterator[None]:
        """Convert exceptions of the source's code into errors that name source and splits."""
        try:
            yield
        except Exception as error:
            failure = self._named(error, during, splits)
            if failure is error:
                raise
            raise failure from error

    def _named(
        self, error: Exception, during: str, splits: Sequence[str] | None = None
    ) -> HeadgateError:
        at_work = tuple(self.splits) if splits is None else splits
        return source_failure(error, self._source.name, during, at_work)

    def _poll_reader(self, now: float) -> None:
        try:
            status = self.reader.poll_next(self.output)
        except HeadgateError:
            raise
        except Exception as error:
            raise self._named(error, "poll_next") from error
        if status is InputStatus.MORE_AVAILABLE:
            self.availability.found_data()
        elif status is InputStatus.NOTHING_AVAILABLE:
            with self.guard("is_available"):
                self.availability.found_nothing(self.reader.is_available(), now)
        elif status is InputStatus.END_OF_INPUT:
            for split_id in self.splits:
                self.output.release_output_for_split(split_id)
            self.output.end()
            self.stop(drain=not self._ends_open)
        else:
            raise SourceError(
                f"poll_next() of {self._source.name} returned {status!r}",
                have="it returns an InputStatus",
            )

    def _report_released(self) -> None:
        finished, self.output.released = self.output.released, []
        for split_id in finished:
            # A split may have been added again meanwhile.
            if split_id not in self.output.splits:
                self.splits.pop(split_id, None)
        self._hold_unread()
        self.finished_splits += len(finished)
        if self._report_finished is not None:
            self._report_finished(finished)

    def _look_at_watermarks(self, now: float) -> None:
        if self.timers.must_emit(now):
            self.output.on_periodic_emit()
            self._align()
        if self.timers.must_report(now):
            self._report(self.output.watermark_to_align)

    def _report(self, watermark: int | None) -> None:
        if self._report_watermark is not None and watermark is not None:
            self._report_watermark(watermark)

    def _align(self) -> None:
        self._aligned_changes = self.output.changes
        must_wait = self._alignment.must_wait(self.output.latest)
        if must_wait and self.mode is OperatingMode.READING:
            self.mode = OperatingMode.WAITING_FOR_ALIGNMENT
            self.timers.activity.pause()
        elif not must_wait and self.mode is OperatingMode.WAITING_FOR_ALIGNMENT:
            self.mode = OperatingMode.READING
            self.timers.activity.resume()
        if self._pauses_splits and self.mode not in _ENDED:
            self._align_splits()

    def _align_splits(self) -> None:
        pause, resume = self._alignment.differences(self.output.split_watermarks)
        if not pause and not resume:
            return
        try:
            with self.guard("pause_or_resume_splits", [*pause, *resume]):
                self.reader.pause_or_resume_splits(pause, resume)
        except NotBuiltError:
            if not self._allow_unaligned_splits:
                raise
            self._pauses_splits = False
            return
        self._alignment.paused.update(pause)
        self._alignment.paused.difference_update(resume)
        for split_id in pause:
            self.output.pause_split(split_id)
        for split_id in resume:
            self.output.resume_split(split_id)
        self._hold_unread()

    def _hold_unread(self) -> None:
        """Pause the clocks of splits that wait until the reader has read another one: they are not idle."""
        if not self.timers.has_idleness or not self.reader.reads_in_order:
            return
        ready = [one for one in self.output.splits if one not in self._alignment.paused]
        for split_id in ready[1:]:
            self.output.pause_split(split_id)
        for split_id in ready[:1]:
            self.output.resume_split(split_id)

    def _end(self) -> bool:
        if self.mode is OperatingMode.SOURCE_DRAINED:
            self.output.finish()
        if self.timers.has_alignment and self.mode is not OperatingMode.DATA_FINISHED:
            # Nobody need wait for this reader, also if it was stopped early.
            self._report(MAX_WATERMARK)
        self.mode = OperatingMode.DATA_FINISHED
        return False
