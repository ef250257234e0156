"""Files as a sink: Parquet or Arrow IPC in a folder, visible when the job ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.errors import OptionError
from headgate.sink.api import Sink, WriterContext
from headgate.sink.file_committer import FileCommitter
from headgate.sink.file_options import FileSinkOptions
from headgate.sink.file_writer import FileSinkWriter
from headgate.sink.recovery import Recovered, recover
from headgate.sink.storage import Storage
from headgate.sink.stream_committer import StreamCommitter

if TYPE_CHECKING:
    from headgate.sink.owner import Owner


@dataclass(frozen=True, slots=True)
class FileSink(FileSinkOptions, Sink):
    """A folder of Parquet or Arrow files, written in two phases.

    Tasks stage their files in ``<path>/_staging``; when all of them are done, the driver renames
    the files into ``path``. Until then nothing is visible, and after a failure nothing is left:
    what a killed job leaves is invisible (readers leave out names that start with "_"), and the
    next job with this path, or :meth:`recover`, completes or removes it. See
    :class:`~headgate.sink.file_committer.FileCommitter` for every step.

    On local file systems files are synced to the disk before they are renamed, and a rename is
    atomic. Where the file system has no rename (object stores), pyarrow copies each file and
    deletes the original: a commit then costs a copy on the server. Driver and executors must see
    the same files under ``path``.

    Args:
        path: a folder; a path of this machine, a URI, or a path of ``filesystem``.
        format: ``"parquet"`` or ``"arrow"`` (the IPC file format).
        filesystem: any file system of pyarrow; from the path when it is None.
        mode: what to do with data that is there: ``"error"``, ``"append"`` or ``"overwrite"``.
        max_rows_per_file: rows after which a new file is begun; None for no limit.
        target_file_size: bytes, as ``"512m"``, after which a new file is begun. Rows are written
            in groups of up to 32 MiB, so files may be larger by that.
        compression: ``"snappy"`` (the default for Parquet), ``"zstd"``, ``"gzip"``, ``"brotli"``,
            ``"lz4"`` or ``"none"`` (the default for Arrow, which has ``"lz4"`` and ``"zstd"``).
        stale_after: how long nothing must have changed in the staged files of a job before it
            counts as dead, as ``"1d"``; for jobs whose process cannot be seen from here.

    Raises:
        OptionError: an option has a value that it does not take.
    """

    def create_committer(
        self, job: str | None = None, *, owner: Owner | None = None
    ) -> FileCommitter:
        """Return the committer of a job.

        Args:
            job: the job's name; a new one when it is None.
            owner: the process whose end is the job's end; this one when it is None.
        """
        return FileCommitter(self, self.storage(), job, owner)

    def create_stream_committer(self, query: str) -> StreamCommitter:
        """Return the committer of a streaming query.

        Args:
            query: its id, the same after a restart.
        """
        return StreamCommitter(self, self.storage(), query)

    def create_writer(
        self, context: WriterContext, schema: pa.Schema | None = None, *, make_job: bool = False
    ) -> FileSinkWriter:
        """Return a writer of a job.

        Args:
            context: who writes.
            schema: of the batches, which are cast to it; the first batch's when it is None.
            make_job: make the job's folder too: for streaming, where no committer has started it.
        """
        return FileSinkWriter(self, self.storage(), context, schema, make_job=make_job)

    def recover(self) -> Recovered:
        """Complete decided commits at the path, and remove what dead jobs staged there.

        Every job does this before it starts; call it to have it done without one.

        Raises:
            SinkError: a decided commit could not be completed.
        """
        return recover(self.storage(), self.stale_seconds)

    def storage(self) -> Storage:
        """Return the folder that it writes to.

        Raises:
            OptionError: the path is a URI of a file system that pyarrow does not have.
        """
        try:
            return Storage.of(self.path, self.filesystem)
        except (OSError, pa.ArrowException, ValueError) as error:
            raise OptionError(
                f"path={self.path!r} is on no file system that pyarrow knows: {error}",
                remedy="give filesystem= · a path of this machine",
            ) from error
