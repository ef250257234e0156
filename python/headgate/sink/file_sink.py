"""The file sink: a folder of Parquet, Arrow IPC, CSV or JSON files, which become visible when the job ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate._arguments import arrow_schema, instance, takes
from headgate._error import masked
from headgate._partition_names import partition_name
from headgate.sink.api import CommitterContext, Delivery, Sink, WriterContext
from headgate.sink.arrangement import file_schema
from headgate.sink.file_committer import FileCommitter
from headgate.sink.file_options import FileSinkOptions
from headgate.sink.file_writer import FileWriter
from headgate.sink.local_storage import storage_of
from headgate.sink.owner import Owner
from headgate.sink.record_file import RecordFile
from headgate.sink.recovery import Recovered, recover

if TYPE_CHECKING:
    from pyarrow import fs

    from headgate.sink.storage import Storage


@dataclass(frozen=True, slots=True)
class FileSink(FileSinkOptions, Sink):
    """A folder of files, written in two phases.

    Tasks stage their files in ``<path>/_staging``. When all tasks are done, or a checkpoint of a streaming
    job is complete, the driver renames the files into ``path``; no file is visible before. A failed job removes its staged files. Those of
    a killed job are invisible, because readers ignore names that start with "_"; the next job with
    this path, or :meth:`recover`, completes or removes them. The steps are described at
    :class:`~headgate.sink.file_committer.FileCommitter`.

    On local file systems files are synced to the disk before they are renamed, and a rename is
    atomic. On file systems without a rename (object stores), pyarrow copies each file and deletes
    the original, so a commit costs a copy on the server. Driver and executors must see the same
    files under ``path``.

    On local file systems a sink obeys, replaces and removes only files of its own user in its
    hidden folders, and follows no links below ``path``. So driver and executors must run as the
    same user.

    Args:
        path: a folder: a local path, a URI, or a path of ``filesystem``.
        format: ``"parquet"``, ``"arrow"`` (the IPC file format), ``"csv"`` or ``"json"`` (lines).
        filesystem: any file system of pyarrow; None for the path's own.
        mode: treatment of existing data: ``"error"``, ``"append"`` or ``"overwrite"``.
        max_rows_per_file: rows after which a new file is started; None for no limit.
        target_file_size: bytes, such as ``"512m"``, after which a new file is started. Rows are
            written in groups of up to 32 MiB of memory, so files may be larger by one group.
        compression: ``"snappy"`` (the default for Parquet), ``"zstd"``, ``"gzip"``, ``"brotli"``,
            ``"lz4"`` or ``"none"`` (the default for Arrow, which has ``"lz4"`` and ``"zstd"``, and for
            CSV and JSON, which have ``"gzip"``).
        stale_after: time without a change in a job's staged files, such as ``"1d"``, after which
            the job counts as dead. Used for jobs whose process cannot be checked from here.
        header: True if the first line of a CSV file has the names of the columns.
        delimiter: the character between the values of a CSV file.
        partition_by: columns whose values are in the names of folders, as Spark's ``partitionBy`` writes them, such as
            ``day=2026-01-31/part-0.parquet``; they are not in the files. Null and an empty text have the same folder.
        sort_within: columns by which the rows of each file are sorted: ascending, nulls first, NaN last.
        time_zone: the time zone of timestamps in the names of folders; ``headgate.spark.write`` takes the session's.
        compact_below: size below which the files of a folder are joined in each commit, up to ``target_file_size``,
            before readers see one of them; None to join none. For Parquet and Arrow.

    With ``partition_by`` or ``sort_within`` a task sorts the rows of each checkpoint, and writes one file after the
    other at its end. Rows beyond 64 MiB wait in temporary files: in Spark's local directories in its tasks.

    Text keeps each value: CSV has text in quotes, null as nothing, ``"NaN"``, ``"Infinity"`` and
    ``"-Infinity"`` for such floats; JSON has decimals and times as strings. Both have timestamps
    with a zone in UTC, ending in Z. A type or a value without such a notation is an error: nested
    columns in CSV, maps, binary and durations in both, NaN in JSON.

    Raises:
        OptionError: an option has an invalid value.
    """

    @takes(schema=arrow_schema)
    def check_schema(self, schema: pa.Schema) -> None:
        """Check that files of the format can hold the columns.

        Raises:
            UnsupportedTypeError: they cannot, or rows cannot be partitioned or sorted by a column.
            UnknownColumnError: there is no column to partition or sort by.
            SchemaMismatchError: all columns are partition columns.
        """
        RecordFile(pa.BufferOutputStream(), file_schema(self, schema), self.encoding).discard()

    @property
    def name(self) -> str:
        """The folder."""
        return f"FileSink({masked(self.path)})"

    @property
    def new_file(self) -> tuple[fs.FileSystem, str]:
        """File system and path of a file as a job makes them."""
        storage = self.storage()
        folders = [partition_name(column, None) for column in self.partition_by]
        return storage.filesystem, storage.at(*folders, f"part-0{self.suffix}")

    @property
    def delivery(self) -> Delivery:
        """``"exactly_once"``."""
        return "exactly_once"

    @takes(context=instance("a WriterContext", WriterContext), schema=arrow_schema)
    def create_writer(self, context: WriterContext, schema: pa.Schema | None = None) -> FileWriter:
        """Return the writer of a task.

        Args:
            context: the identity of the writer.
            schema: the schema that batches are cast to; the first batch's if it is None.
        """
        return FileWriter(self, self.storage(), context, schema)

    @takes(
        context=instance("a CommitterContext", CommitterContext), owner=instance("an Owner", Owner)
    )
    def create_committer(
        self, context: CommitterContext, *, owner: Owner | None = None
    ) -> FileCommitter:
        """Return the committer of a job.

        Args:
            context: the identity of the committer.
            owner: the process whose end is the end of a batch; this process if it is None.
        """
        return FileCommitter(self, self.storage(), context, owner)

    def recover(self) -> Recovered:
        """Complete decided commits at the path, and remove the staged files of dead jobs.

        Every job does this before it starts.

        Raises:
            SinkError: a decided commit could not be completed, or ``_staging`` holds a link or a
                file of another user.
        """
        return recover(self.storage(), self.stale_seconds)

    def storage(self) -> Storage:
        """Return the folder of the sink.

        Raises:
            OptionError: the path is a URI of a file system that pyarrow does not have.
        """
        return storage_of(self.path, self.filesystem)
