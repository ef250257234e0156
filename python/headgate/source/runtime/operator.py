"""The operator drives the reader of a source in one thread: when to poll it, when it waits, and when it has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from headgate.errors import ClosedError, HeadgateError, NotBuiltError, SourceError
from headgate.source.api.reader import InputStatus
from headgate.source.runtime.availability import Availability
from headgate.source.runtime.failure import source_failure
from headgate.source.runtime.mode import OperatingMode
from headgate.source.runtime.timers import WATERMARK_INTERVAL, Timers
from headgate.source.watermark.alignment import SplitAlignment
from headgate.source.watermark.generator import MAX_WATERMARK
from headgate.source.watermark.output import OperatorOutput, WatermarkMark
from headgate.source.watermark.strategy import WatermarkStrategy

if TYPE_CHECKING:
    from headgate.source.api.event import SourceEvent
    from headgate.source.api.reader import SourceReader, SourceReaderContext
    from headgate.source.api.source import Source

T = TypeVar("T")

#: Polls in a row without a record before :meth:`SourceOperator.poll` returns.
_POLLS: Final = 64
_ENDED: Final = {
    OperatingMode.SOURCE_STOPPED,
    OperatingMode.SOURCE_DRAINED,
    OperatingMode.DATA_FINISHED,
}


class SourceOperator(Generic[T]):
    """Drives the reader of a source. One thread calls all methods: :meth:`start` first, :meth:`close` last.

    Args:
        source: creates the reader.
        context: the reader's context.
        wake_up: called, on any thread, when the operator should be polled again.
        watermarks: the strategy for watermarks; None for those that the source emits itself.
        report_watermark: called with the watermark in ms, each update interval of an alignment
            group.
        report_finished: called with the ids of splits after their last record was handed out.
        ends_open: True if a later job continues after the end of input: the last watermark is that of the records.
        clock: a monotonic clock in seconds.
        watermark_interval: seconds between two periodic watermarks.

    Attributes:
        ends_open: the same, and False once the source is to end for good.
        mode: the current operating mode.
    """

    def __init__(
        self,
        source: Source[T, Any, Any],
        context: SourceReaderContext,
        wake_up: Callable[[], None],
        *,
        watermarks: WatermarkStrategy | None = None,
        report_watermark: Callable[[int], None] | None = None,
        report_finished: Callable[[Sequence[str]], None] | None = None,
        ends_open: bool = False,
        clock: Callable[[], float] = time.monotonic,
        watermark_interval: float = WATERMARK_INTERVAL,
    ) -> None:
        strategy = watermarks or WatermarkStrategy.no_watermarks()
        self.ends_open = ends_open
        self.mode = OperatingMode.OUTPUTS_UNINITIALISED
        self._source = source
        self._context = context
        self._wake_up = wake_up
        self._report_watermark = report_watermark
        self._report_finished = report_finished
        self._clock = clock
        self._timers = Timers(strategy, clock, watermark_interval)
        at_end = (min if source.has_endless_splits else max) if ends_open else None
        self._output: OperatorOutput[T] = OperatorOutput(
            strategy, self._timers.activity, at_end=at_end
        )
        self._availability = Availability(lambda _: wake_up())
        self._alignment = SplitAlignment()
        self._aligned_changes = 0
        self._pauses_splits = True
        alignment = strategy.alignment
        self._allow_unaligned_splits = alignment is not None and alignment.allow_unaligned_splits
        self._reader: SourceReader[T, Any] | None = None
        #: The first error of the source's code: nothing is read or stored after it.
        self._error: Exception | None = None
        self._is_closed = False

    @property
    def current_watermark(self) -> int:
        """The watermark in ms after the last record that was handed out."""
        return self._output.current

    @property
    def is_idle(self) -> bool:
        """True while no split has records, so that nobody should wait for the watermark."""
        return self._output.is_idle

    @property
    def split_version(self) -> int:
        """The version of the serializer that writes the splits of :meth:`snapshot`."""
        return self._source.split_serializer.version

    @property
    def is_finished(self) -> bool:
        """True once all records were handed out."""
        return self.mode is OperatingMode.DATA_FINISHED and not self._output.queue

    @property
    def pending(self) -> int:
        """The number of emitted records that were not handed out yet."""
        return sum(type(item) is not WatermarkMark for item in self._output.queue)

    def start(self) -> None:
        """Create and start the reader, once.

        Raises:
            SourceError: the reader failed. All methods below that call the reader raise it too.
        """
        self._check_open()
        if self._error is not None:
            raise self._error
        if self.mode is not OperatingMode.OUTPUTS_UNINITIALISED:
            return
        try:
            with self._guard("create_reader"):
                self._reader = self._source.create_reader(self._context)
            with self._guard("start"):
                self._reader.start()
        except Exception as error:
            self._error = error
            raise
        self.mode = OperatingMode.READING

    def close(self) -> None:
        """Close the reader, once."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._reader is not None:
                with self._guard("close"):
                    self._reader.close()
        finally:
            # It refers to the calls that it came through, and so to this operator.
            self._error = None
            self._output.queue.clear()

    # Messages of the enumerator.

    def add_splits(self, version: int, splits: Sequence[tuple[str, bytes]]) -> None:
        """Create the outputs of new splits, then add the splits to the reader.

        Args:
            version: the version of the split serializer that wrote the bytes.
            splits: ids and bytes.
        """
        with self._last():
            serializer = self._source.split_serializer
            added = []
            for split_id, data in splits:
                with self._guard("deserialize", [split_id]):
                    split = serializer.deserialize(version, data)
                if split.split_id != split_id:
                    raise SourceError(
                        f"{self._source.name} deserialized split {split_id} as {split.split_id}",
                        have="the split serializer has to keep a split's id",
                    )
                # The split has to hold the watermark back even before its first record.
                self._output.create_output_for_split(split_id)
                added.append(split)
            with self._guard("add_splits"):
                self.reader.add_splits(added)
            self._hold_unread()
            self._availability.reset()

    def no_more_splits(self) -> None:
        """Tell the reader that no split follows."""
        with self._last(), self._guard("notify_no_more_splits"):
            self.reader.notify_no_more_splits()
        self._availability.reset()

    def source_event(self, event: SourceEvent) -> None:
        """Pass an event to the reader."""
        with self._last(), self._guard("handle_source_event"):
            self.reader.handle_source_event(event)
        self._availability.reset()

    def align(self, max_allowed_ms: int) -> None:
        """Set a new limit for the watermark."""
        with self._last():
            self._alignment.max_allowed = max_allowed_ms
            self._align()

    # Called by the owner.

    def stop(self, *, drain: bool = False) -> None:
        """End early, after the records that the reader has emitted; a second stop has no effect.

        Args:
            drain: True if the source ends for good, so that the last watermark is emitted.
        """
        self.ends_open = self.ends_open and not drain
        self._stop(drain)

    def poll(self) -> T | None:
        """Return the next record, or None if there is none now; never block.

        After None check :attr:`is_finished`, and poll again after a wake-up or when :meth:`timeout` has passed.

        Raises:
            HeadgateError: the first error of this operator, now and in every later call.
        """
        self._check_open()
        self._check_sound()
        queue = self._output.queue
        try:
            for _ in range(_POLLS):
                while queue:
                    item = queue.popleft()
                    if type(item) is not WatermarkMark:
                        self._timers.record_handed_out()
                        return item  # type: ignore[no-any-return]
                    self._output.current = item.timestamp
                if not self._advance():
                    return None
        except Exception as error:
            self._error = error
            raise
        self._wake_up()
        return None

    def timeout(self) -> float | None:
        """Return the seconds until the next poll without a wake-up; None for never."""
        if self.is_finished or self._error is not None:
            return None
        due = self._timers.due
        retry_at = self._availability.retry_at
        if retry_at is not None and self.mode is OperatingMode.READING:
            due = retry_at if due is None else min(due, retry_at)
        return None if due is None else max(0.0, due - self._clock())

    def back_pressured_for(self, seconds: float) -> None:
        """Report time since the last poll in which the caller could not take records; it makes no split idle."""
        self._timers.back_pressured_for(seconds)

    def snapshot(self, checkpoint_id: int) -> list[tuple[str, bytes]]:
        """Return ids and bytes of the unfinished splits, at their positions after the last record.

        The bytes are of ``source.split_serializer.version``.

        Raises:
            NotBuiltError: one element of the reader became several records, and some were not
                handed out yet. There is no state between two records of an element.
        """
        if self.pending:
            raise NotBuiltError(
                "a checkpoint between the records of one element",
                have=f"{self.pending} records of it are still to be handed out",
                remedy="take them first, then the checkpoint · one record per element",
            )
        self._check_sound()
        serializer = self._source.split_serializer
        with self._guard("snapshot_state"):
            splits = self.reader.snapshot_state(checkpoint_id)
            return [(split.split_id, serializer.serialize(split)) for split in splits]

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Tell the reader that a checkpoint is complete."""
        with self._guard("notify_checkpoint_complete"):
            self.reader.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Tell the reader that a checkpoint was aborted."""
        with self._guard("notify_checkpoint_aborted"):
            self.reader.notify_checkpoint_aborted(checkpoint_id)

    @property
    def reader(self) -> SourceReader[T, Any]:
        """The reader.

        Raises:
            ClosedError: the operator was not started.
        """
        if self._reader is None:
            raise self._not_started()
        return self._reader

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError(
                f"the operator of {self._source.name} is closed", remedy="create a new one"
            )

    @contextmanager
    def _last(self) -> Iterator[None]:
        """Let nothing follow an error."""
        self._check_sound()
        try:
            yield
        except Exception as error:
            self._error = error
            raise

    def _check_sound(self) -> None:
        if self._error is not None:
            raise self._error
        if self._reader is None:
            raise self._not_started()

    def _not_started(self) -> ClosedError:
        text = f"the operator of {self._source.name} was not started"
        return ClosedError(text, remedy="call start() first")

    def _stop(self, drain: bool) -> None:
        if self.mode not in _ENDED:
            self.mode = OperatingMode.SOURCE_DRAINED if drain else OperatingMode.SOURCE_STOPPED

    def _advance(self) -> bool:
        """Poll the reader once if it is due; called when all emitted records were handed out.

        Returns:
            True if there may be a record; False if the caller has to wait, or the input has ended.
        """
        self._timers.record_requested()
        if self._output.released:
            self._report_released()
        if self.mode in _ENDED:
            return self._end()
        now = self._clock()
        if self._timers.due is not None and now >= self._timers.due:
            self._look_at_watermarks(now)
        if self.mode is OperatingMode.WAITING_FOR_ALIGNMENT:
            return False
        if not self._availability.should_poll(now):
            return False
        self._poll_reader(now)
        if self._output.changes != self._aligned_changes:
            self._align()
        return True

    @contextmanager
    def _guard(self, during: str, splits: Sequence[str] | None = None) -> Iterator[None]:
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
        at_work = tuple(self._output.splits) if splits is None else splits
        return source_failure(error, self._source.name, during, at_work)

    def _poll_reader(self, now: float) -> None:
        try:
            status = self.reader.poll_next(self._output)
        except HeadgateError:
            raise
        except Exception as error:
            raise self._named(error, "poll_next") from error
        if self._output.queue:
            self._timers.record_emitted()
        if status is InputStatus.MORE_AVAILABLE:
            self._availability.found_data()
        elif status is InputStatus.NOTHING_AVAILABLE:
            with self._guard("is_available"):
                self._availability.found_nothing(self.reader.is_available(), now)
        elif status is InputStatus.END_OF_INPUT:
            for split_id in list(self._output.splits):
                self._output.release_output_for_split(split_id)
            self._output.end()
            self._stop(drain=not self.ends_open)
        else:
            raise SourceError(
                f"poll_next() of {self._source.name} returned {status!r}",
                have="it returns an InputStatus",
            )

    def _report_released(self) -> None:
        finished, self._output.released = self._output.released, []
        self._hold_unread()
        if self._report_finished is not None:
            self._report_finished(finished)

    def _look_at_watermarks(self, now: float) -> None:
        if self._timers.must_emit(now):
            self._output.on_periodic_emit()
            self._align()
        if self._timers.must_report(now):
            self._report(self._output.watermark_to_align)

    def _report(self, watermark: int | None) -> None:
        if self._report_watermark is not None and watermark is not None:
            self._report_watermark(watermark)

    def _align(self) -> None:
        self._aligned_changes = self._output.changes
        must_wait = self._alignment.must_wait(self._output.latest)
        if must_wait and self.mode is OperatingMode.READING:
            self.mode = OperatingMode.WAITING_FOR_ALIGNMENT
            self._timers.activity.pause()
        elif not must_wait and self.mode is OperatingMode.WAITING_FOR_ALIGNMENT:
            self.mode = OperatingMode.READING
            self._timers.activity.resume()
        if self._pauses_splits and self.mode not in _ENDED:
            self._align_splits()

    def _align_splits(self) -> None:
        pause, resume = self._alignment.differences(self._output.split_watermarks)
        if not pause and not resume:
            return
        try:
            with self._guard("pause_or_resume_splits", [*pause, *resume]):
                self.reader.pause_or_resume_splits(pause, resume)
        except NotBuiltError:
            if not self._allow_unaligned_splits:
                raise
            self._pauses_splits = False
            return
        self._alignment.paused.update(pause)
        self._alignment.paused.difference_update(resume)
        for split_id in pause:
            self._output.pause_split(split_id)
        for split_id in resume:
            self._output.resume_split(split_id)
        self._hold_unread()

    def _hold_unread(self) -> None:
        """Pause the clocks of splits that wait until the reader has read another one: they are not idle."""
        if not self._timers.has_idleness or not self.reader.reads_in_order:
            return
        ready = [
            split_id for split_id in self._output.splits if split_id not in self._alignment.paused
        ]
        for split_id in ready[1:]:
            self._output.pause_split(split_id)
        for split_id in ready[:1]:
            self._output.resume_split(split_id)

    def _end(self) -> bool:
        if self.mode is OperatingMode.SOURCE_DRAINED:
            self._output.finish()
        if self._timers.has_alignment and self.mode is not OperatingMode.DATA_FINISHED:
            # Nobody need wait for this reader, also if it was stopped early.
            self._report(MAX_WATERMARK)
        self.mode = OperatingMode.DATA_FINISHED
        return False
