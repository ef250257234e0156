"""A producer that reads a source: its reader, and its messages from and to the enumerator."""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headgate._kinds import kind_of
from headgate.errors import HeadgateError, SourceError
from headgate.source.runtime.bell import Bell
from headgate.source.runtime.context import PlacedReaderContext
from headgate.source.runtime.operator import SourceOperator
from headgate.spark.wire.source_messages import assigned, event_fields, event_of, finished

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headgate.source.api import SourceEvent
    from headgate.spark.tasks.control import Control
    from headgate.spark.tasks.task import ProducerTask, SourcePlan
    from headgate.spark.wire.messages import Message

_LOG: Final = logging.getLogger("headgate.spark")


class _Context(PlacedReaderContext):
    def __init__(
        self, task: ProducerTask, plan: SourcePlan, control: Control, subtask: int
    ) -> None:
        configuration = {
            "num_partitions": str(task.num_partitions),
            "memory": str(task.options["memory"]),
            "segment_size": str(task.options["segment_size"]),
            "max_record_size": str(task.options["max_record_size"]),
        }
        super().__init__(subtask, plan.parallelism, configuration)
        self._plan = plan
        self._control = control

    def send_split_request(self) -> None:
        self._control.send("SPLIT_REQUEST", {"host": self._host})

    def send_source_event_to_coordinator(self, event: SourceEvent) -> None:
        self._control.send("SOURCE_EVENT", event_fields(self._plan.name, event))


class Reading:
    """One reader of a source, in the thread of its task; splits come over the control connection.

    Args:
        task: of the producer.
        plan: the source.
        control: the connection; its thread hands messages to :meth:`handle`.
        subtask: the reader's number.
    """

    def __init__(
        self, task: ProducerTask, plan: SourcePlan, control: Control, subtask: int
    ) -> None:
        self._name = plan.name
        self._control = control
        self._context = _Context(task, plan, control, subtask)
        self._operator: SourceOperator[Any] = SourceOperator(
            plan.source,
            self._context,
            watermarks=plan.watermarks,
            report_watermark=lambda ms: control.send("WATERMARK", {"ms": ms}),
            report_finished=self._finished,
        )

    def records(self) -> Iterator[pa.RecordBatch]:
        """Yield the source's batches; end when there are no more splits, or after :meth:`stop`.

        Raises:
            SourceError: the source failed, or emitted a record that is not a batch.
        """
        try:
            self._control.send("READER", {"host": self._context.local_host_name})
            self._operator.start()
            for record in self._polled():
                if not isinstance(record, pa.RecordBatch):
                    raise SourceError(
                        f"source {self._name!r} emitted {kind_of(record)}, not an Arrow batch",
                        asked="pyarrow.RecordBatch",
                        have=type(record).__name__,
                    )
                yield record
            self._operator.close()
        except HeadgateError as error:
            if error.__cause__ is not None and not error.cause_text:
                text = "".join(traceback.format_exception(error.__cause__))
                error.caused_by(text.rstrip("\n"))
            raise

    def _polled(self) -> Iterator[Any]:
        operator, bell = self._operator, Bell()
        operator.attach_wake_up(bell.ring)
        while True:
            bell.clear()
            record = operator.poll()
            if record is not None:
                yield record
            elif operator.is_finished:
                return
            else:
                bell.wait(operator.timeout())

    def handle(self, message: Message) -> None:
        """Take a message of the enumerator; called in the control thread."""
        match message.kind:
            case "ASSIGN":
                self._operator.add_splits(message["version"], assigned(message["splits"]))
            case "NO_MORE_SPLITS":
                self._operator.no_more_splits()
            case "SOURCE_EVENT":
                self._operator.source_event(event_of(message.fields))
            case "ALIGN":
                self._operator.align(message["ms"])

    def stop(self) -> None:
        """End early, also while the reader waits; from any thread."""
        self._operator.stop()

    def fail(self, error: HeadgateError) -> None:
        """Let :meth:`records` raise, also while the reader waits; from any thread."""
        self._operator.fail(error)

    def close(self) -> None:
        """Close the reader. An error is only logged: it must not hide why the task ends."""
        try:
            self._operator.close()
        except Exception:  # noqa: BLE001 - see above
            _LOG.warning("the reader of source %r did not close", self._name, exc_info=True)

    def _finished(self, ids: Sequence[str]) -> None:
        for fields in finished(ids):
            self._control.send("SPLITS_FINISHED", fields)
