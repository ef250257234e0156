"""The input of a task: the reader of a source, or a gate with a channel from each task before it."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from headgate.checkpoints import (
    CheckpointAborted,
    CheckpointBarrier,
    CheckpointComplete,
)
from headgate.data_types import EndOfDataStatus
from headgate.errors import HeadgateError, SourceError
from headgate.reader import Event, RecordReader
from headgate.schema_cast import ExactCast
from headgate.source.watermark.generator import MAX_WATERMARK, MIN_WATERMARK
from headgate.stream.runtime.outputs import IDLE, WATERMARK, watermark_of
from headgate.stream.runtime.watermark_valve import StatusWatermarkValve

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.gate import InputGate
    from headgate.source.runtime import SourceOperator
    from headgate.source.runtime.mailbox import Mailbox
    from headgate.writer import RecordWriter

_LOG: Final = logging.getLogger("headgate.stream")
#: Seconds of work for which small batches of a source are joined, and most rows of them.
_AT_ONCE: Final = 0.005
_MOST_ROWS: Final = 4096


class InputHandler(Protocol):
    """The task, as its input calls it."""

    def handle_batch(self, batch: pa.RecordBatch) -> None:
        """Handle rows."""

    def handle_watermark(self, watermark: int) -> None:
        """Handle that no row up to a time in ms follows."""

    def handle_idle(self) -> None:
        """Handle that nobody should wait for this task's watermark."""

    def handle_barrier(self, barrier: CheckpointBarrier) -> None:
        """Take the snapshot of a checkpoint."""

    def handle_aligned(self, complete: CheckpointComplete) -> None:
        """Handle that all barriers of a checkpoint have arrived."""

    def handle_aborted(self, aborted: CheckpointAborted) -> None:
        """Handle that a checkpoint was given up before all barriers arrived."""


class TaskInput(ABC):
    """The input of one task, used by the task's thread."""

    def start(self) -> None:  # noqa: B027 - a gate's channels are open
        """Begin to read."""

    @abstractmethod
    def advance(self) -> bool:
        """Handle one batch if there is one; return False if there was nothing."""

    def advance_events(self) -> bool:
        """Handle what may not wait until the outputs have room; return False if there was nothing."""
        return False  # a source's barriers are mail

    def wake_up(self, writer: RecordWriter) -> None:  # noqa: B027 - a source's barriers are mail
        """Let what may not wait until the outputs have room end a writer's wait for it."""

    def until_timer(self) -> float | None:
        """Return the seconds after which :meth:`advance_events` is due although nothing arrives."""
        return None

    @property
    @abstractmethod
    def end(self) -> EndOfDataStatus:
        """If and how all rows have ended."""

    @abstractmethod
    def wait(self, timeout: float | None) -> None:
        """Wait until :meth:`advance` may find something, there is mail, or the time in seconds has passed."""

    @abstractmethod
    def close(self) -> None:
        """Stop reading."""


class SourceInput(TaskInput):
    """The reader of a source.

    Args:
        operator: drives the reader; messages in the mailbox are for it.
        schema: of the batches.
        handler: the task.
        mailbox: of the task.
        restored: version of the serializer, and ids and bytes of the splits to continue with.
        back_pressured_ns: returns for how long the task has waited for its outputs so far.
        batch_bytes: bytes up to which small batches are joined.
    """

    def __init__(
        self,
        operator: SourceOperator[Any],
        schema: pa.Schema,
        handler: InputHandler,
        mailbox: Mailbox,
        restored: tuple[int, Sequence[tuple[str, bytes]]] = (0, ()),
        back_pressured_ns: Callable[[], int] = lambda: 0,
        batch_bytes: int = 0,
    ) -> None:
        self.operator = operator
        self._cast = ExactCast(schema, "the source")
        self._handler = handler
        self._mailbox = mailbox
        self._restored = restored
        self._back_pressured_ns = back_pressured_ns
        self._waited_ns = 0
        self._batch_bytes = batch_bytes
        self._watermark = MIN_WATERMARK
        self._is_idle = False
        #: Rows that are handled in about :data:`_AT_ONCE` seconds, and that are no larger than a batch may be, by the last one.
        self._rows_at_once = 0
        #: True once a savepoint was taken behind which no row must be read.
        self.is_stopped = False

    def start(self) -> None:
        """Start the reader."""
        self.operator.start()
        version, splits = self._restored
        if splits:
            self.operator.add_splits(version, splits)

    def advance(self) -> bool:
        """Handle the reader's next batch."""
        if self.is_stopped:
            return False
        waited = self._back_pressured_ns()
        if waited > self._waited_ns:
            self.operator.back_pressured_for((waited - self._waited_ns) / 1e9)
            self._waited_ns = waited
        record = self.operator.poll()
        if record is not None:
            batch = self._joined(record) if self._rows_at_once else self._checked(record)
            started = time.perf_counter()
            self._handler.handle_batch(batch)
            took = max(time.perf_counter() - started, 1e-9)
            by_time, by_size = _AT_ONCE / took, self._batch_bytes / max(1, batch.nbytes)
            self._rows_at_once = min(_MOST_ROWS, int(min(by_time, by_size) * batch.num_rows))
        self._pass_on_watermark()
        return record is not None

    def _joined(self, record: Any) -> pa.RecordBatch:
        """Return a small batch with those that the reader has behind it, as long as a checkpoint need not wait for them.

        What an operator costs for each batch it then costs once. The batches of a slow function stay as small as they are,
        and a watermark between batches stays between them.
        """
        import pyarrow as pa  # noqa: PLC0415 - by other modules before

        records, rows = [record], getattr(record, "num_rows", self._rows_at_once)
        while rows < self._rows_at_once and self.operator.current_watermark <= self._watermark:
            try:
                record = self.operator.poll()
            except HeadgateError:
                break  # which the next poll raises again, behind these rows
            if record is None:
                break
            records.append(record)
            rows += getattr(record, "num_rows", self._rows_at_once)
        if len(records) == 1:
            return self._checked(records[0])
        try:
            return self._checked(pa.concat_batches(records))
        except (TypeError, pa.ArrowException):  # of several schemas, or no batches
            return pa.concat_batches([self._checked(record) for record in records])

    def drain_element(self) -> None:
        """Handle the rest of an element of which some records were handled; checkpoints are taken between elements."""
        while self.operator.pending:
            record = self.operator.poll()
            if record is not None:
                self._handler.handle_batch(self._checked(record))
        self._pass_on_watermark()

    def _pass_on_watermark(self) -> None:
        watermark = self.operator.current_watermark
        if watermark > self._watermark:
            self._watermark = watermark
            self._is_idle = False
            if watermark < MAX_WATERMARK:
                self._handler.handle_watermark(watermark)
        if self.operator.is_idle != self._is_idle:
            self._is_idle = not self._is_idle
            if self._is_idle:
                self._handler.handle_idle()
            else:
                # Also before the first watermark: it says that this task is to be waited for again.
                self._handler.handle_watermark(self._watermark)

    def _checked(self, record: Any) -> pa.RecordBatch:
        try:
            return self._cast(record)
        except AttributeError as error:
            raise SourceError(
                f"the source emitted a {type(record).__name__} instead of a RecordBatch",
                remedy="emit record batches",
            ) from error

    @property
    def end(self) -> EndOfDataStatus:
        """Drained once the reader has ended, or stopped if a later run continues."""
        if self.operator.is_finished and not self.operator.pending and not self.is_stopped:
            return EndOfDataStatus.STOPPED if self.operator.ends_open else EndOfDataStatus.DRAINED
        return EndOfDataStatus.NOT_END_OF_DATA

    def wait(self, timeout: float | None) -> None:
        """Wait for the reader, a watermark that is due, or mail."""
        due = None if self.is_stopped or self.operator.is_finished else self.operator.timeout()
        limits = [seconds for seconds in (timeout, due) if seconds is not None]
        self._mailbox.wait(min(limits, default=None))

    def close(self) -> None:
        """Close the reader."""
        self.operator.close()


class GateInput(TaskInput):
    """A gate.

    Args:
        gate: sealed, with all channels.
        schema: of the batches.
        handler: the task.
        mailbox: of the task.
        batch_bytes: bytes up to which small pages are joined.
    """

    def __init__(
        self,
        gate: InputGate,
        schema: pa.Schema,
        handler: InputHandler,
        mailbox: Mailbox,
        batch_bytes: int,
    ) -> None:
        self._gate = gate
        self._handler = handler
        self._valve = StatusWatermarkValve(gate.num_channels)
        gate.enable_checkpointing()
        self._reader = RecordReader(
            gate, schema=schema, on_event=self._on_event, batch_bytes=batch_bytes
        )
        mailbox.attach(self._reader.wake_up)

    def advance(self) -> bool:
        """Handle the next batch; barriers and watermarks before it are handled in their place."""
        batch = self._reader.poll_next()
        if batch is None:
            return False
        self._handler.handle_batch(batch)
        return True

    def advance_events(self) -> bool:
        """Handle unaligned barriers, and no rows but those that were taken from the gate before."""
        batch = self._reader.poll_priority_event()
        if batch is None:
            return False
        self._handler.handle_batch(batch)
        return True

    def wake_up(self, writer: RecordWriter) -> None:
        """Let unaligned barriers end a writer's wait for room."""
        native = writer._native  # noqa: SLF001 - one package
        native.wake_up_on_priority_events(self._gate._native)  # noqa: SLF001 - one package

    def until_timer(self) -> float | None:
        """Return the seconds until the timeout of a barrier."""
        due = self._reader.next_timer_ms()
        return None if due is None else max(0.0, due / 1000 - time.time())

    def _on_event(self, event: Any) -> None:
        if isinstance(event, Event):
            self._on_user_event(event)
        elif isinstance(event, CheckpointBarrier):
            self._handler.handle_barrier(event)
        elif isinstance(event, CheckpointComplete):
            self._handler.handle_aligned(event)
        elif isinstance(event, CheckpointAborted):
            self._handler.handle_aborted(event)

    def _on_user_event(self, event: Event) -> None:
        valve, was_idle = self._valve, self._valve.is_idle
        if event.name == WATERMARK:
            has_grown = valve.advance(event.channel, watermark_of(event.body))
        elif event.name == IDLE:
            has_grown = valve.set_idle(event.channel)
        else:
            return
        if has_grown or (was_idle and not valve.is_idle):
            self._handler.handle_watermark(valve.watermark)
        # A watermark makes the task active for those behind it.
        if valve.is_idle and (has_grown or not was_idle):
            self._handler.handle_idle()

    @property
    def end(self) -> EndOfDataStatus:
        """If and how all channels have ended."""
        return self._gate.end_of_data_status

    def take_channel_state(self, checkpoint: int) -> list[tuple[int, bytes]]:
        """Return the rows in flight of a complete checkpoint, by channel."""
        return self._reader.take_channel_state(checkpoint)

    def abort_checkpoint(self, checkpoint: int, reason: str) -> None:
        """Give up a checkpoint whose barriers have not all arrived."""
        self._gate.abort_checkpoint(checkpoint, reason)

    def wait(self, timeout: float | None) -> None:
        """Wait for a batch or an event, the end of an alignment, or mail."""
        self._reader.wait_available(timeout)

    def close(self) -> None:
        """Close the gate."""
        try:
            self._reader.close()
        except HeadgateError:
            _LOG.debug("a gate could not be closed", exc_info=True)
        # It refers to this object, which hears of its events.
        del self._reader
