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

from headgate._matches import close_matches
from headgate._values import parse_bool
from headgate.errors import OptionError, SinkError
from headgate.sink import Committable, FileSink, WriterContext
from headgate.sink.layout import batch_job
from headgate.sink.local_storage import storage_of
from headgate.sink.owner import Owner
from headgate.spark.write import empty, file_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

#: Options of the sink by their names, of which ``sep`` is Spark's.
_TEXTS: Final = {
    name: name for name in ("format", "compression", "target_file_size", "stale_after", "delimiter")
} | {"sep": "delimiter"}
_NUMBERS: Final = {"max_rows_per_file": "max_rows_per_file"}
_FLAGS: Final = {"header": "header"}
#: Options that Spark passes to every sink.
_SPARKS: Final = frozenset({"path", "checkpointlocation"})

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
    """The committable of one task, as JSON."""

    committable: str


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
    known = {name.lower(): value for name, value in options.items()}
    return FileStreamWriter(_sink(options, overwrite), schema, known.get("checkpointlocation"))


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
        self._job = sink.create_committer().job

    def start(self) -> None:
        """Prepare the sink for the job."""
        self._sink.check_schema(file_schema(self._schema))
        self._sink.create_committer(self._job, owner=self._owner).start()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FileCommitMessage:
        """Stage a task's rows."""
        context = WriterContext(self._job, _task().partitionId())
        return _stage(self._sink, context, iterator, make_job=False)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the job, which makes its files visible."""
        found = _committables(messages)
        if not any(committable.files for committable in found):
            found.append(empty(self._sink, self._job, file_schema(self._schema)))
        self._sink.create_committer(self._job).commit(found)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """Remove the staged files of the job, unless its commit is already decided."""
        self._sink.create_committer(self._job).abort()


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
        task = _task()
        query, batch = task.getLocalProperty(_QUERY), task.getLocalProperty(_BATCH)
        if query is None or batch is None:
            raise SinkError(
                "this task does not know its streaming query and batch",
                have=f"{_QUERY}={query!r}, {_BATCH}={batch!r}",
                remedy="a classic micro-batch query · df.write in foreachBatch",
            )
        context = WriterContext(batch_job(query, int(batch)), task.partitionId())
        batches = iterator if _HAS_ARROW else _batches(iterator, self._schema)
        return _stage(self._sink, context, batches, make_job=True)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit the batch. Do nothing if it is committed already."""
        committables = _committables(messages)
        queries = {found.job.rpartition("-")[0] for found in committables}
        if len(queries) > 1:
            raise SinkError("a batch has rows of several queries", have=", ".join(sorted(queries)))
        for query in queries:
            self._sink.create_query_committer(query).commit(batchId, committables)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove the staged files of the batch, or leave them to the next batch of the query.

        It leaves them if neither a task nor the checkpoint has the query's id.
        """
        queries = {found.job.rpartition("-")[0] for found in _committables(messages)}
        for query in queries or _query_of(self._checkpoint):
            self._sink.create_query_committer(query).abort(batchId)


def _sink(options: Mapping[str, str], overwrite: bool) -> FileSink:
    given = {name.lower(): value for name, value in options.items()}
    known = {**_TEXTS, **_NUMBERS, **_FLAGS}
    chosen: dict[str, Any] = {}
    for name, value in given.items():
        plain = name.replace("_", "")
        option = next((o for o in known if o.replace("_", "") == plain), None)
        if option is None and name not in _SPARKS:
            near = close_matches(name, known) or sorted(known)
            raise OptionError(
                f"{name!r} is no option of the sink",
                asked=f'.option("{name}", "{value}")',
                remedy=" · ".join(f'.option("{n}", ...)' for n in near),
            )
        if option in _NUMBERS:
            if not value.isdecimal():
                raise OptionError(
                    f"{option}={value!r} is not a whole number",
                    asked=f'.option("{name}", "{value}")',
                    remedy=f'.option("{option}", "1000000")',
                )
            chosen[option] = int(value)
        elif option in _FLAGS:
            chosen[option] = _flag(option, value)
        elif option is not None:
            chosen[_TEXTS[option]] = value
    if not given.get("path"):
        raise OptionError("the sink needs a path", remedy=".save(path) · .start(path)")
    return FileSink(given["path"], mode="overwrite" if overwrite else "append", **chosen)


def _flag(option: str, value: str) -> bool:
    try:
        return parse_bool(value)
    except ValueError as error:
        raise OptionError(
            f"{option}={value!r} is {error}",
            asked=f'.option("{option}", "{value}")',
            remedy=f'.option("{option}", "true")',
        ) from None


def _stage(
    sink: FileSink,
    context: WriterContext,
    batches: Iterator[pa.RecordBatch],
    *,
    make_job: bool,
) -> FileCommitMessage:
    with sink.create_writer(context, make_job=make_job) as writer:
        for batch in batches:
            writer.write(batch)
        return FileCommitMessage(writer.prepare_commit().to_json())


def _committables(messages: Iterable[WriterCommitMessage | None]) -> list[Committable]:
    # None stands for a task that failed.
    ours = (message for message in messages if isinstance(message, FileCommitMessage))
    return [Committable.from_json(message.committable) for message in ours]


def _batches(rows: Iterator[Any], schema: StructType) -> Iterator[pa.RecordBatch]:
    from itertools import islice  # noqa: PLC0415 - only before Spark 4.1

    from pyspark.sql.conversion import LocalDataToArrowConversion  # noqa: PLC0415

    while some := list(islice(rows, _ROWS)):
        table = LocalDataToArrowConversion.convert(some, schema, False)
        yield from table.to_batches()


def _task() -> Any:
    from pyspark import TaskContext  # noqa: PLC0415 - in the worker

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("not in a Spark task")
    return context


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
