"""The operator drives a reader: takes splits and messages from a mailbox, and returns records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from headgate.errors import ClosedError, NotBuiltError
from headgate.source.runtime.driver import ReaderDriver
from headgate.source.runtime.mailbox import Mailbox
from headgate.source.runtime.mode import OperatingMode
from headgate.source.watermark.output import WatermarkMark
from headgate.source.watermark.strategy import WatermarkStrategy

if TYPE_CHECKING:
    from headgate.source.api.event import SourceEvent
    from headgate.source.api.reader import SourceReaderContext
    from headgate.source.api.source import Source

T = TypeVar("T")

#: Polls in a row without a record before :meth:`SourceOperator.poll` returns.
_POLLS: Final = 64


class SourceOperator(Generic[T]):
    """Drives the reader of a source. One thread owns it; others use its mailbox.

    Any thread may call :meth:`add_splits`, :meth:`no_more_splits`, :meth:`source_event`,
    :meth:`align`, :meth:`stop` and :meth:`fail`. Only the owner calls the others: :meth:`start`,
    then :meth:`records`, or :meth:`poll` if one thread drives several operators, then
    :meth:`close`.

    Args:
        source: creates the reader.
        context: the reader's context.
        watermarks: the strategy for watermarks; None for those that the source emits itself.
        report_watermark: called with the watermark in ms, each update interval of an alignment
            group.
        report_finished: called with the ids of splits after their last record was handed out.
        allow_unaligned_splits: True to continue unaligned if the reader cannot pause splits.
        ends_open: True if a later job continues after the end of input: the last watermark is that of the records.
        clock: a monotonic clock in seconds.
    """

    def __init__(
        self,
        source: Source[T, Any, Any],
        context: SourceReaderContext,
        *,
        watermarks: WatermarkStrategy | None = None,
        report_watermark: Callable[[int], None] | None = None,
        report_finished: Callable[[Sequence[str]], None] | None = None,
        allow_unaligned_splits: bool = False,
        ends_open: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ends_open = ends_open
        self._source = source
        self._clock = clock
        self._mailbox = Mailbox()
        self._driver: ReaderDriver[T] = ReaderDriver(
            source,
            context,
            watermarks or WatermarkStrategy.no_watermarks(),
            self._mailbox.signal,
            report_watermark=report_watermark,
            report_finished=report_finished,
            allow_unaligned_splits=allow_unaligned_splits,
            ends_open=ends_open,
            clock=clock,
        )
        self._output = self._driver.output
        self._timers = self._driver.timers
        self._error: BaseException | None = None
        self._is_closed = False

    # From any thread.

    def add_splits(self, version: int, splits: Sequence[tuple[str, bytes]]) -> None:
        """Add splits to the reader.

        Args:
            version: the version of the split serializer that wrote the bytes.
            splits: ids and bytes.
        """
        self._mailbox.post(partial(self._driver.add_splits, version, tuple(splits)))

    def no_more_splits(self) -> None:
        """Tell the reader that no split follows."""
        self._mailbox.post(self._driver.no_more_splits)

    def source_event(self, event: SourceEvent) -> None:
        """Pass an event of the enumerator to the reader."""
        self._mailbox.post(partial(self._driver.source_event, event))

    def align(self, max_allowed_ms: int) -> None:
        """Set the limit beyond which the reader waits, as a watermark."""
        self._mailbox.post(partial(self._driver.align, max_allowed_ms))

    def stop(self, *, drain: bool = False) -> None:
        """End early, after the records that the reader has emitted.

        Args:
            drain: True if the source ends for good, so that the last watermark is emitted.
        """
        self._mailbox.post(partial(self._driver.stop, drain))

    def fail(self, error: BaseException) -> None:
        """Make the owner raise an error instead of its next record."""
        self._mailbox.post(partial(self._fail, error))

    @property
    def split_ids(self) -> tuple[str, ...]:
        """The reader's unfinished splits."""
        return tuple(self._driver.splits)

    @property
    def finished_splits(self) -> int:
        """The number of finished splits."""
        return self._driver.finished_splits

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
    def mode(self) -> OperatingMode:
        """The current operating mode."""
        return self._driver.mode

    @property
    def is_finished(self) -> bool:
        """True once all records were handed out."""
        return self._driver.mode is OperatingMode.DATA_FINISHED and not self._output.queue

    # The owner's thread.

    def start(self) -> None:
        """Create and start the reader.

        Raises:
            SourceError: the reader failed. All methods below that call the reader raise it too.
        """
        self._check_open()
        self._driver.start()

    def records(self) -> Iterator[T]:
        """Yield records until the end of input or :meth:`stop`; wait while there is none."""
        while True:
            record = self.poll()
            if record is not None:
                yield record
            elif self.is_finished:
                return
            else:
                self._mailbox.wait(self.timeout())

    def poll(self) -> T | None:
        """Return the next record, or None if there is none now; never block.

        After None check :attr:`is_finished`, and poll again after a wake-up
        (:meth:`attach_wake_up`) or when :meth:`timeout` has passed.
        """
        output, queue = self._output, self._output.queue
        self._take_mail()
        try:
            for _ in range(_POLLS):
                while queue:
                    item = queue.popleft()
                    if type(item) is not WatermarkMark:
                        self._timers.record_handed_out()
                        return item  # type: ignore[no-any-return]
                    output.current = item.timestamp
                if not self._driver.advance():
                    return None
        except Exception as error:
            self._error = error
            raise
        self._mailbox.signal()
        return None

    def attach_wake_up(self, wake_up: Callable[[], None] | None) -> None:
        """Call ``wake_up``, on any thread, whenever the operator should be polled again."""
        self._mailbox.attach(wake_up)

    def timeout(self) -> float | None:
        """Return the seconds until the next poll without a wake-up; None for never."""
        if self.is_finished or self._error is not None:
            return None
        due = self._timers.due
        retry_at = self._driver.availability.retry_at
        if retry_at is not None and self._driver.mode is OperatingMode.READING:
            due = retry_at if due is None else min(due, retry_at)
        return None if due is None else max(0.0, due - self._clock())

    def back_pressured_for(self, seconds: float) -> None:
        """Report time since the last poll in which the caller could not take records; it makes no split idle."""
        self._timers.back_pressured_for(seconds)

    @property
    def pending(self) -> int:
        """The number of emitted records that were not handed out yet."""
        return sum(type(item) is not WatermarkMark for item in self._output.queue)

    def snapshot(self, checkpoint_id: int) -> list[tuple[str, bytes]]:
        """Return ids and bytes of the unfinished splits, at their positions after the last record.

        The bytes are of ``source.split_serializer.version``.

        Raises:
            NotBuiltError: one element of the reader became several records, and some were not
                handed out yet. There is no state between two records of an element.
        """
        self._take_mail()
        if self.pending:
            raise NotBuiltError(
                "a checkpoint between the records of one element",
                have=f"{self.pending} records of it are still to be handed out",
                remedy="take them first, then the checkpoint · one record per element",
            )
        return self._driver.snapshot(checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Tell the reader that a checkpoint is complete."""
        with self._driver.guard("notify_checkpoint_complete"):
            self._driver.reader.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Tell the reader that a checkpoint was aborted."""
        with self._driver.guard("notify_checkpoint_aborted"):
            self._driver.reader.notify_checkpoint_aborted(checkpoint_id)

    def close(self) -> None:
        """Close the reader, once. Later messages are dropped."""
        if self._is_closed:
            return
        self._is_closed = True
        self._mailbox.close()
        # It refers to the calls that it came through, and so to this operator.
        self._error = None
        try:
            self._driver.close()
        finally:
            self._output.queue.clear()

    def _take_mail(self) -> None:
        """Run the actions of the mailbox; raise the first error, now and in every later call."""
        self._check_open()
        if self._driver.mode is OperatingMode.OUTPUTS_UNINITIALISED:
            raise ClosedError(
                f"the operator of {self._source.name} is not started", remedy="call start() first"
            )
        mailbox = self._mailbox
        mailbox.clear()
        try:
            while mailbox.has_mail:
                action = mailbox.take()
                if action is not None:
                    action()
        except Exception as error:
            self._error = self._error or error
            raise
        if self._error is not None:
            raise self._error

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError(
                f"the operator of {self._source.name} is closed", remedy="create a new one"
            )
