"""Writes to a sink without Spark, in one process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate._arguments import arrow_schema, instance, refuse, takes
from headgate._kinds import kind_of
from headgate.errors import ClosedError
from headgate.sink.api import Sink, SinkWriter, WriteResult
from headgate.sink.batch import Batch, Staged, writer_context

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


class LocalWrite:
    """A job of one writer, as a context manager: it commits at the end, or aborts on an exception.

    ::

        with LocalWrite(FileSink("out")) as job:
            for batch in batches:
                job.write(batch)
        print(job.result.rows)

    Args:
        sink: the sink to write to.
        schema: the schema of the batches; the first batch's if it is None.
    """

    @takes(sink=instance("a Sink", Sink, remedy='FileSink("out")'), schema=arrow_schema)
    def __init__(self, sink: Sink, schema: pa.Schema | None = None) -> None:
        self._sink = sink
        self._schema = schema
        self._batch = Batch(sink)
        self._open = ExitStack()
        self._rows = 0
        self._writer: SinkWriter | None = None
        self._result: WriteResult | None = None

    @property
    def result(self) -> WriteResult:
        """The result of the commit.

        Raises:
            ClosedError: the job is not committed.
        """
        if self._result is None:
            raise ClosedError("the write is not committed yet", remedy="leave its with block")
        return self._result

    def write(self, batch: pa.RecordBatch) -> None:
        """Stage a batch.

        Raises:
            ClosedError: the call is outside of the ``with`` block.
            SchemaMismatchError: the batch has other columns than the sink.
            SinkError: the batch could not be written.
        """
        if self._writer is None:
            raise ClosedError("a LocalWrite writes inside its with block")
        self._writer.write(batch)
        self._rows += batch.num_rows

    def __enter__(self) -> Self:
        """Start the job.

        Raises:
            SinkError: the job must not or cannot write to the sink.
            UnsupportedTypeError: the sink cannot take a column of the schema.
        """
        with ExitStack() as opened:
            opened.enter_context(self._batch.running(self._schema))
            context = writer_context(self._batch.job)
            self._writer = opened.enter_context(self._sink.create_writer(context, self._schema))
            self._open = opened.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit, or abort if there was an error."""
        writer, self._writer = self._writer, None
        if writer is None or error is not None:
            self._open.__exit__(kind, error, trace)
            return
        with self._open:
            writer.flush(end_of_input=True)
            staged = Staged(writer.prepare_commit(0), self._rows)
            writer.close()
            self._result = self._batch.commit([staged])


@takes(sink=instance("a Sink", Sink, remedy='FileSink("out")'), schema=arrow_schema)
def write(data: Any, sink: Sink, *, schema: pa.Schema | None = None) -> WriteResult:
    """Write batches in this process and commit them.

    Args:
        data: an iterable of record batches, a Table, a reader, or any Arrow stream.
        sink: the sink to write to.
        schema: the schema of the rows; by default the data's, or the first batch's.

    Raises:
        SinkError: the write failed. No file is visible, unless the error says that the commit is
            decided.
        SchemaMismatchError: a batch has other columns than the sink.
    """
    batches, data_schema = _batches(data)
    with LocalWrite(sink, data_schema if schema is None else schema) as job:
        for batch in batches:
            if not isinstance(batch, pa.RecordBatch):
                raise refuse("data", data, f"has {kind_of(batch)}", "record batches")
            job.write(batch)
    return job.result


def _batches(data: Any) -> tuple[Iterator[pa.RecordBatch], pa.Schema | None]:
    if isinstance(data, pa.RecordBatch):
        return iter([data]), data.schema
    if isinstance(data, pa.Table):
        return iter(data.to_batches()), data.schema
    if hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
        return iter(reader), reader.schema
    if not isinstance(data, Iterable):
        raise refuse("data", data, f"is {kind_of(data)}", "a table or record batches")
    return iter(data), None
