"""The file sink behind Spark's Python Data Source API: ``df.write`` and ``df.writeStream``.

Tasks send committables to the driver as JSON. Spark gives the tasks of a streaming query the id in
the query's checkpoint, so a batch that runs again is written once.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import datasource as api
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from headgate.errors import OptionError, SinkError
from headgate.sink import CommitterContext, FileSink, WriterContext
from headgate.sink.batch import Batch, Staged, stage, writer_context
from headgate.sink.local_storage import storage_of
from headgate.sink.owner import Owner
from headgate.source.arguments import Texts
from headgate.spark.tasks.identity import task_context
from headgate.spark.write import file_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

#: Options of a sink; ``sep`` is Spark's name of the delimiter, and Spark passes the checkpoint's location.
_OPTIONS: Final = (
    *("path", "format", "compression", "targetFileSize", "staleAfter", "maxRowsPerFile"),
    *("header", "delimiter", "sep", "checkpointLocation"),
)

#: Local properties that Spark sets in the tasks of a streaming query.
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"

# Before Spark 4.1 a streaming sink gets rows, not batches.
_HAS_ARROW: Final = hasattr(api, "DataSourceStreamArrowWriter")
if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as _StreamBase
else:
    _StreamBase = api.DataSourceStreamArrowWriter if _HAS_ARROW else api.DataSourceStreamWriter
#: Number of such rows per batch.
_ROWS: Final = 10_000


@dataclass
class FileCommitMessage(WriterCommitMessage):
    """What one task has staged, and the streaming query that it belongs to."""

    staged: Staged
    query: str = ""


def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> FileBatchWriter:
    """Return the writer of ``df.write``. Spark calls it on the driver when the job starts.

    Raises:
        OptionError: an unknown option, or an invalid value.
        SinkError: the path cannot be written.
    """
    writer = FileBatchWriter(_sink(options, overwrite), schema)
    writer.start()
    return writer


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> FileStreamWriter:
    """Return the writer of ``df.writeStream``. Spark calls it several times per batch.

    Raises:
        OptionError: an unknown option, or an invalid value.
    """
    checkpoint = _texts(options).text("checkpointLocation")
    return FileStreamWriter(_sink(options, overwrite), schema, checkpoint)


class FileBatchWriter(DataSourceArrowWriter):
    """Writes the files of one job.

    Args:
        sink: the sink.
        schema: Spark's schema of the rows.
    """

    def __init__(self, sink: FileSink, schema: StructType) -> None:
        self._sink = sink
        self._schema = schema
        # This process ends after planning. The driver's JVM, its ancestor, lasts for the whole job.
        self._owner = Owner.of_ancestor("java")
        self._job = Batch(sink).job

    def start(self) -> None:
        """Prepare the sink for the job."""
        self._sink.check_schema(file_schema(self._schema))
        context = CommitterContext(self._job, is_batch=True)
        self._sink.create_committer(context, owner=self._owner).start(None)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FileCommitMessage:
        """Stage a task's rows."""
        context = writer_context(self._job, task_context().partitionId())
        return FileCommitMessage(stage(self._sink, context, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the job, which makes its files visible."""
        tasks = [message.staged for message in _of_tasks(messages)]
        Batch(self._sink, self._job).commit(tasks, file_schema(self._schema))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """Remove the staged files of the job, unless its commit is already decided."""
        Batch(self._sink, self._job).abort()


class FileStreamWriter(_StreamBase):
    """Writes each batch of a streaming query once.

    Args:
        sink: the sink.
        schema: Spark's schema of the rows.
        checkpoint: the query's checkpoint. It has the query's id if no task has reported it.
    """

    def __init__(self, sink: FileSink, schema: StructType, checkpoint: str | None) -> None:
        self._sink = sink
        self._schema = schema
        self._checkpoint = checkpoint

    def write(self, iterator: Iterator[Any]) -> FileCommitMessage:
        """Stage a task's rows of a batch."""
        task = task_context()
        query, batch = task.getLocalProperty(_QUERY), task.getLocalProperty(_BATCH)
        if query is None or batch is None:
            raise SinkError(
                "this task does not know its streaming query and batch",
                have=f"{_QUERY}={query!r}, {_BATCH}={batch!r}",
                remedy="a classic micro-batch query · df.write in foreachBatch",
            )
        last = int(batch) - 1 if int(batch) else None
        context = WriterContext(query, task.partitionId(), restored_checkpoint=last)
        batches = iterator if _HAS_ARROW else _batches(iterator, self._schema)
        return FileCommitMessage(stage(self._sink, context, batches), query)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit the batch. Do nothing if it is committed already."""
        tasks = _of_tasks(messages)
        queries = {message.query for message in tasks}
        if len(queries) > 1:
            raise SinkError("a batch has rows of several queries", have=", ".join(sorted(queries)))
        for query in queries:
            staged = [message.staged.committable for message in tasks]
            committables = [committable for committable in staged if committable is not None]
            self._sink.create_committer(CommitterContext(query)).commit(batchId, committables)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Remove the query's staged files, or leave them to its next batch.

        It leaves them if neither a task nor the checkpoint has the query's id.
        """
        queries = {message.query for message in _of_tasks(messages)}
        for query in queries or _query_of(self._checkpoint):
            self._sink.create_committer(CommitterContext(query)).abort_unknown([])


def _sink(options: Mapping[str, str], overwrite: bool) -> FileSink:
    texts = _texts(options)
    path = texts.text("path")
    if not path:
        raise OptionError("the sink needs a path", remedy=".save(path) · .start(path)")
    arguments = {
        "format": texts.text("format"),
        "compression": texts.text("compression"),
        "target_file_size": texts.text("targetFileSize"),
        "stale_after": texts.text("staleAfter"),
        "max_rows_per_file": texts.integer("maxRowsPerFile"),
        "header": texts.boolean("header", default=True),
        "delimiter": texts.text("sep", texts.text("delimiter")),
    }
    chosen = {name: value for name, value in arguments.items() if value is not None}
    return FileSink(path, mode="overwrite" if overwrite else "append", **chosen)


def _texts(options: Mapping[str, str]) -> Texts:
    return Texts("the sink", {n.replace("_", ""): text for n, text in options.items()}, _OPTIONS)


def _of_tasks(messages: Iterable[WriterCommitMessage | None]) -> list[FileCommitMessage]:
    # None stands for a task that failed.
    return [message for message in messages if isinstance(message, FileCommitMessage)]


def _batches(rows: Iterator[Any], schema: StructType) -> Iterator[pa.RecordBatch]:
    from itertools import islice  # noqa: PLC0415 - only before Spark 4.1

    from pyspark.sql.conversion import LocalDataToArrowConversion  # noqa: PLC0415

    while chunk := list(islice(rows, _ROWS)):
        table = LocalDataToArrowConversion.convert(chunk, schema, False)
        yield from table.to_batches()


def _query_of(checkpoint: str | None) -> list[str]:
    """Return the query's id in a checkpoint, or nothing if this process cannot read it."""
    import json  # noqa: PLC0415

    if checkpoint is None:
        return []
    try:
        storage = storage_of(checkpoint, None)
        text = storage.read(posixpath.join(storage.root, "metadata"))
        return [str(json.loads(text)["id"])] if text else []
    except (OSError, ValueError, KeyError, TypeError):
        # The aborted batch's staged files are invisible, and the query's next commit removes them.
        return []
