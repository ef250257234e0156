"""The operator of a sink in a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.errors import HeadgateError, SinkError
from headgate.sink.api import WriterContext
from headgate.stream.graph.operator import Operator, OperatorContext, OperatorSnapshot
from headgate.stream.operators.results import calling

if TYPE_CHECKING:
    import pyarrow as pa


class SinkOperator(Operator):
    """Writes rows with a sink's writer.

    Args:
        sink: makes the writer.
        schema: the one that the writer casts batches to; None for that of the first batch.
    """

    def __init__(self, sink: Any, schema: pa.Schema | None = None) -> None:
        self.sink = sink
        #: The arguments of ``create_writer`` behind the context. A sink of a user may take none.
        self._schema = () if schema is None else (schema,)
        self._writer: Any = None
        #: Made for checkpoints of which the task has not heard that they are complete. They belong to each later one,
        #: so those of an aborted checkpoint are committed with the next.
        self._committables: list[tuple[int, bytes]] = []

    def open(self, context: OperatorContext) -> None:
        """Make the writer."""
        self._uid = context.uid
        writer_context = WriterContext(
            job=f"{context.job}.{context.uid}",
            index=context.index,
            parallelism=context.parallelism,
            attempt=context.attempt,
            restored_checkpoint=context.restored_checkpoint,
        )
        with self._calling("create_writer"):
            self._writer = self.sink.create_writer(writer_context, *self._schema)

    def process(self, batch: pa.RecordBatch) -> None:
        """Write a batch."""
        with self._calling("write"):
            self._writer.write(batch)

    def end_input(self) -> None:
        """Flush what the writer has."""
        with self._calling("flush"):
            self._writer.flush(end_of_input=True)

    def snapshot(self, checkpoint: int, *, savepoint: bool) -> OperatorSnapshot:  # noqa: ARG002 - as others
        """Make all rows before the checkpoint durable."""
        with self._calling("prepare_commit"):
            self._writer.flush(end_of_input=False)
            committable = self._writer.prepare_commit(checkpoint)
        if committable is not None:
            self._committables.append((checkpoint, committable))
        return OperatorSnapshot(committables=tuple(self._committables))

    def complete(self, checkpoint: int) -> None:
        """Forget what is committed."""
        self._committables = [item for item in self._committables if item[0] > checkpoint]

    def close(self) -> None:
        """Close the writer, which drops what no checkpoint has."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with self._calling("close"):
                writer.close()

    def _calling(self, what: str) -> calling:
        """Name the sink in errors that are not Headgate's own: those of a sink of a user."""
        return calling(self._uid, what, SinkError, HeadgateError)
