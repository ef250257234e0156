"""Drives one reader in one thread: splits and orders come in by a mailbox, records go out."""

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

#: Polls without a record, one after another, before the caller gets the thread back.
_POLLS: Final = 64


class SourceOperator(Generic[T]):
    """Drives the reader of a source. One thread owns it; others reach it through its mailbox.

    From any thread: :meth:`add_splits`, :meth:`no_more_splits`, :meth:`source_event`,
    :meth:`align`, :meth:`stop`, :meth:`fail`. Everything else belongs to the owner: :meth:`start`,
    then :meth:`records`, or :meth:`poll` where one thread drives several operators, then
    :meth:`close`.

    Args:
        source: whose reader it is.
        context: given to the reader.
        watermarks: how watermarks are made; None for those that the source emits itself.
        report_watermark: told the watermark in ms, each update interval of an alignment group.
        report_finished: told the ids of splits after their last record was handed out.
        allow_unaligned_splits: whether a reader that cannot pause single splits may go on without.
        clock: seconds that never go back.
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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
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
            clock=clock,
        )
        self._output = self._driver.output
        self._timers = self._driver.timers
        self._error: BaseException | None = None
        self._is_closed = False

    # From any thread.

    def add_splits(self, version: int, splits: Sequence[tuple[str, bytes]]) -> None:
        """Give splits to the reader.

        Args:
            version: of the split serializer that wrote the bytes.
            splits: ids and bytes.
        """
        self._mailbox.post(partial(self._driver.add_splits, version, tuple(splits)))

    def no_more_splits(self) -> None:
        """Tell the reader that it gets no further split."""
        self._mailbox.post(self._driver.no_more_splits)

    def source_event(self, event: SourceEvent) -> None:
        """Give an event of the enumerator to the reader."""
        self._mailbox.post(partial(self._driver.source_event, event))

    def align(self, max_allowed_ms: int) -> None:
        """Let the watermark run up to a limit, and wait beyond it."""
        self._mailbox.post(partial(self._driver.align, max_allowed_ms))

    def stop(self, *, drain: bool = False) -> None:
        """End early: what the reader has emitted is handed out, then the records end.

        Args:
            drain: whether it is for good, so that the last watermark is emitted.
        """
        self._mailbox.post(partial(self._driver.stop, drain))

    def fail(self, error: BaseException) -> None:
        """Let the owner raise an error in place of its next record."""
        self._mailbox.post(partial(self._fail, error))

    @property
    def split_ids(self) -> tuple[str, ...]:
        """The splits that the reader has and that are not finished."""
        return tuple(self._driver.splits)

    @property
    def finished_splits(self) -> int:
        """How many splits are finished."""
        return self._driver.finished_splits

    @property
    def current_watermark(self) -> int:
        """No record at or before it, in ms, follows the last one that was handed out."""
        return self._output.current

    @property
    def mode(self) -> OperatingMode:
        """What it is at."""
        return self._driver.mode

    @property
    def is_finished(self) -> bool:
        """Whether all records were handed out."""
        return self._driver.mode is OperatingMode.DATA_FINISHED and not self._output.queue

    # The owner's thread.

    def start(self) -> None:
        """Create and start the reader.

        Raises:
            SourceError: it could not; so for all methods below that reach into the reader.
        """
        self._check_open()
        self._driver.start()

    def records(self) -> Iterator[T]:
        """Yield records until the end of input or :meth:`stop`; block while there is none."""
        while True:
            record = self.poll()
            if record is not None:
                yield record
            elif self.is_finished:
                return
            else:
                self._mailbox.wait(self.timeout())

    def poll(self) -> T | None:
        """Return the next record, or None when there is none now; never block.

        After None look at :attr:`is_finished`, and poll again after a wake-up
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
        """Have ``wake_up`` called, on any thread, whenever polling is worth while again."""
        self._mailbox.attach(wake_up)

    def timeout(self) -> float | None:
        """Return the seconds after which to poll again although nothing woke it; None for ever."""
        if self.is_finished or self._error is not None:
            return None
        due = self._timers.due
        retry_at = self._driver.availability.retry_at
        if retry_at is not None and self._driver.mode is OperatingMode.READING:
            due = retry_at if due is None else min(due, retry_at)
        return None if due is None else max(0.0, due - self._clock())

    def set_back_pressured(self, is_back_pressured: bool) -> None:
        """Say whether records cannot be taken now: that time makes no split idle."""
        self._timers.set_back_pressured(is_back_pressured)

    @property
    def pending(self) -> int:
        """How many records the reader has emitted that were not handed out."""
        return sum(type(item) is not WatermarkMark for item in self._output.queue)

    def snapshot(self, checkpoint_id: int) -> list[tuple[str, bytes]]:
        """Return the unfinished splits, ids and bytes, as they are after the records handed out.

        The bytes are of ``source.split_serializer.version``.

        Raises:
            NotBuiltError: one element of the reader became several records, of which some are not
                handed out yet: there is no state in between.
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
        """Tell the reader that a checkpoint is stored for good."""
        with self._driver.guard("notify_checkpoint_complete"):
            self._driver.reader.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Tell the reader that a checkpoint came to nothing."""
        with self._driver.guard("notify_checkpoint_aborted"):
            self._driver.reader.notify_checkpoint_aborted(checkpoint_id)

    def close(self) -> None:
        """Close the reader; a second time does nothing. Later orders are dropped."""
        if self._is_closed:
            return
        self._is_closed = True
        self._mailbox.attach(None)
        self._driver.close()

    def _take_mail(self) -> None:
        """Do what others asked for; raise what went wrong, now and ever after."""
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
