"""A batch: a stream whose only checkpoint is at its end."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from headgate.sink.api import CommitterContext, Sink, WriterContext, WriteResult
from headgate.sink.failure import aborting

if TYPE_CHECKING:
    import pyarrow as pa


class Staged(NamedTuple):
    """The output of a task, which the commit makes visible.

    Attributes:
        committable: of its rows; None if there is nothing to commit.
        rows: number of its rows.
    """

    committable: bytes | None
    rows: int


class Batch:
    """The commit of a batch.

    Args:
        sink: the sink.
        job: the job's name; a new one if it is None.
    """

    def __init__(self, sink: Sink, job: str | None = None) -> None:
        self.job = job or secrets.token_hex(8)
        self._sink = sink
        self._committer = sink.create_committer(CommitterContext(self.job, is_batch=True))

    @contextmanager
    def running(self, schema: pa.Schema | None) -> Iterator[None]:
        """Start the batch; abort it because of an error.

        Args:
            schema: of the rows, if it is known.

        Raises:
            SinkError: the job must not or cannot write to the sink.
            HeadgateError: the sink cannot take the columns.
        """
        if schema is not None:
            self._sink.check_schema(schema)
        with closing(self._committer):
            self._committer.start(None)
            with aborting(self.abort):
                yield

    def commit(self, tasks: Iterable[Staged], schema: pa.Schema | None = None) -> WriteResult:
        """Make the rows of one attempt of each task visible.

        Args:
            tasks: what the attempts have staged.
            schema: the columns that a result without rows has, if it can have columns.

        Raises:
            SinkError: the commit failed. No file is visible, unless the error says that the commit is
                decided.
        """
        tasks = list(tasks)
        rows = sum(task.rows for task in tasks)
        if schema is not None and not any(task.rows or task.committable for task in tasks):
            tasks.append(stage(self._sink, writer_context(self.job), (), schema))
        committables = [task.committable for task in tasks if task.committable is not None]
        result = self._committer.commit(writer_context(self.job).first_checkpoint, committables)
        return result or WriteResult(rows, 0, ())

    def abort(self) -> None:
        """Remove what is staged, unless the commit is decided."""
        self._committer.abort_unknown([])


def writer_context(job: str, index: int = 0) -> WriterContext:
    """Return the identity of an attempt of a task: Spark may run one twice, even at the same time."""
    return WriterContext(job, index, is_batch=True)


def stage(
    sink: Sink,
    context: WriterContext,
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema | None = None,
) -> Staged:
    """Write the batches of a task up to its first checkpoint."""
    rows = 0
    with sink.create_writer(context, schema) as writer:
        for batch in batches:
            writer.write(batch)
            rows += batch.num_rows
        writer.flush(end_of_input=True)
        return Staged(writer.prepare_commit(context.first_checkpoint), rows)
