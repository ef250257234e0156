"""The file sink of a streaming job: the files of a checkpoint become visible when it is complete. Decision: ADR 0035."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar

from headgate.errors import OptionError, SinkError
from headgate.sink.api import Committable, WriterContext
from headgate.sink.commit import refuse_existing, refuse_file
from headgate.sink.file_writer import FileSinkWriter
from headgate.sink.layout import batch_job
from headgate.sink.query_committer import QueryCommitter
from headgate.sink.staging import clean_unknown, committables_of, number_of
from headgate.sink.stream_api import (
    StreamSinkCommitter,
    StreamSinkWriter,
    StreamWriterContext,
    first_checkpoint,
    refuse_older,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.sink.file_options import FileSinkOptions
    from headgate.sink.storage import Storage


class FileStreamWriter(StreamSinkWriter):
    """Stages the rows of one task, with new files for each checkpoint.

    Rows are staged before the number of their checkpoint is known, so their folder has the number
    of the first one that they can belong to. The commit of a later checkpoint commits them under it.

    Args:
        sink: the options of the sink.
        storage: the sink's folder.
        context: the identity of the writer.
        schema: the schema of the batches; the first batch's if it is None.
    """

    def __init__(
        self,
        sink: FileSinkOptions,
        storage: Storage,
        context: StreamWriterContext,
        schema: pa.Schema | None = None,
    ) -> None:
        self._sink = sink
        self._storage = storage
        self._context = context
        self._schema = schema
        self._next = first_checkpoint(context.restored_checkpoint)
        self._writer: FileSinkWriter | None = None

    #: True to put a checksum of each file into the committable, for sinks that read the files again.
    has_checksums: ClassVar[bool] = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Stage a batch; see :meth:`StreamSinkWriter.write`."""
        if batch.num_rows == 0:
            return
        if self._schema is None:
            self._schema = batch.schema
        if self._writer is None:
            mine = self._context
            attempt = f"{mine.attempt}-{mine.index}"
            context = WriterContext(batch_job(mine.job, self._next), mine.index, attempt)
            self._writer = FileSinkWriter(
                self._sink,
                self._storage,
                context,
                self._schema,
                make_job=True,
                has_checksums=self.has_checksums,
            )
        self._writer.write(batch)

    def prepare_commit(self, checkpoint_id: int) -> bytes | None:
        """Finish the files; see :meth:`StreamSinkWriter.prepare_commit`."""
        if checkpoint_id < self._next:
            raise SinkError(
                "the checkpoints of a writer come in the order of their numbers",
                asked=f"checkpoint {checkpoint_id}",
                have=f"at least {self._next}",
            )
        found = None
        if self._writer is not None:
            found = self._writer.prepare_commit().to_json().encode()
            self._writer = None
        self._next = checkpoint_id + 1
        return found

    def abort(self) -> None:
        """Remove the files that are not prepared."""
        if self._writer is not None:
            self._writer.abort()
            self._writer = None

    def close(self) -> None:
        """Remove the files that are not prepared."""
        self.abort()


class FileStreamCommitter(StreamSinkCommitter):
    """Commits the checkpoints of one job, each exactly once; see :class:`QueryCommitter`.

    Args:
        sink: the options of the sink.
        storage: the sink's folder.
        job: the job's name.
    """

    def __init__(self, sink: FileSinkOptions, storage: Storage, job: str) -> None:
        self._sink = sink
        self._storage = storage
        self._job = job
        self._batches = QueryCommitter(sink, storage, job)

    def start(self, restored_checkpoint: int | None) -> None:
        """Check the path; see :meth:`StreamSinkCommitter.start`.

        Raises:
            OptionError: the mode is ``"overwrite"``, with which each checkpoint would remove the last.
        """
        if self._sink.mode == "overwrite":
            raise OptionError(
                'mode="overwrite" is not for streams: each checkpoint would replace the one before',
                remedy='mode="append" · mode="error"',
            )
        refuse_file(self._storage)
        committed = self._batches.latest()
        refuse_older(restored_checkpoint, committed, self._job, self._storage.root)
        if restored_checkpoint is None and self._sink.mode == "error":
            refuse_existing(self._storage, "append")

    def commit(self, checkpoint_id: int, committables: Iterable[bytes]) -> None:
        """Make the files visible; see :meth:`StreamSinkCommitter.commit`."""

        def number_in_job(committable: Committable) -> int:
            return number_of(committable, self._job)

        found = sorted(committables_of(list(committables)), key=number_in_job)
        for number, batch in groupby(found, key=number_in_job):
            if number > checkpoint_id:
                raise SinkError(
                    "a committable of a later checkpoint",
                    asked=f"checkpoint {checkpoint_id}",
                    have=f"job {batch_job(self._job, number)}",
                )
            self._batches.commit(number, batch)

    def abort_unknown(self, known: Collection[bytes], before: str | None = None) -> None:
        """Remove staged files; see :meth:`StreamSinkCommitter.abort_unknown`."""
        clean_unknown(self._storage, self._job, known, before)

    def close(self) -> None:
        """Do nothing."""
