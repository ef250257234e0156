"""The writer of a file sink: stages the files of a task, new ones for each checkpoint."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, ClassVar

from headgate.errors import ClosedError, SchemaMismatchError
from headgate.schema_cast import ExactCast
from headgate.sink.api import SinkWriter, WriterContext
from headgate.sink.arrangement import Arrangement
from headgate.sink.failure import FAULTS, failing
from headgate.sink.layout import STAGING, folder_name
from headgate.sink.nested import without_hidden_nulls
from headgate.sink.record_file import Checksummed, RecordFile
from headgate.sink.staging import Committable, StagedFile, check_order

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.sink.file_options import FileSinkOptions
    from headgate.sink.storage import Storage


class FileWriter(SinkWriter):
    """Stages the rows of one task.

    Rows are staged before the number of their checkpoint is known, so they have the number
    of the first one that they can belong to. The commit of a later checkpoint commits them under it.

    If the sink partitions or sorts, the rows wait for the end of their checkpoint, which writes one file after
    another, so only one is open.

    Args:
        sink: the options of the sink.
        storage: the sink's folder.
        context: the identity of the writer.
        schema: the schema of the batches; the first batch's if it is None.
    """

    #: True to put a checksum of each file into the committable, for sinks that read the files again.
    has_checksums: ClassVar[bool] = False
    #: True if the first task of a batch without rows makes a file, so that the result has its columns.
    #: The committer drops that file if there are rows elsewhere.
    keeps_columns: ClassVar[bool] = True

    def __init__(
        self,
        sink: FileSinkOptions,
        storage: Storage,
        context: WriterContext,
        schema: pa.Schema | None = None,
    ) -> None:
        self._sink = sink
        #: The folders of the next rows below the sink's path.
        self._partition = ""
        self._storage = storage
        self._context = context
        self._schema = schema
        self._cast: SinkCast | None = None
        self._arrangement: Arrangement | None = None
        self._attempt = f"{context.attempt}-{context.index}"
        self._number = context.first_checkpoint
        self._has_folder = self._is_closed = False
        self._files: list[StagedFile] = []
        self._file: RecordFile | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Stage a batch; see :meth:`SinkWriter.write`."""
        self._check_open()
        if self._schema is None:
            self._schema = batch.schema
        if self._cast is None:
            self._cast = SinkCast(self._schema)
        batch = self._cast(batch)
        if not self._sink.is_arranged:
            self._append(batch, self._schema)
            return
        if self._arrangement is None:
            self._arrangement = Arrangement(self._sink, self._schema)
        with failing("sort rows for", self._folder):
            self._arrangement.add(batch)

    def begin(self, partition: str) -> None:
        """Put the next rows into the files of other folders below the sink's path."""
        self._append_arranged()
        if self._file is not None:
            self._finish(self._file)
        self._partition = partition

    def _append_arranged(self) -> None:
        """Write the rows that wait for their order."""
        if self._arrangement is None:
            return
        above = self._partition
        with failing("sort rows for", self._folder):
            for partition, batch in self._arrangement.in_order():
                if partition and partition != self._partition:
                    if self._file is not None:
                        self._finish(self._file)
                    self._partition = partition
                self._append(batch, self._arrangement.schema)
        if above != self._partition and self._file is not None:
            self._finish(self._file)
        self._partition = above

    def _append(self, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        """Write rows to the open file, or to a new one with this schema."""
        limit = self._sink.max_rows_per_file
        while batch.num_rows:
            file = self._file or self._open(schema)
            room = batch.num_rows if limit is None else min(batch.num_rows, limit - file.rows)
            with failing("write", self._path):
                file.write(batch.slice(0, room))
                batch = batch.slice(room)
                full = file.rows == limit or self._is_large(file)
            if full:
                self._finish(file)

    def prepare_commit(self, checkpoint_id: int) -> bytes | None:
        """Finish the files; see :meth:`SinkWriter.prepare_commit`."""
        self._check_open()
        check_order(checkpoint_id, self._number)
        mine, schema = self._context, self._schema
        self._append_arranged()
        keeps_columns = self.keeps_columns and not self._sink.partition_by
        is_first = keeps_columns and mine.is_batch and mine.index == 0
        if self._file is None and not self._files and is_first and schema is not None:
            self._open(schema)
        if self._file is not None:
            self._finish(self._file)
        committable = None
        if self._files:
            with failing("write", self._folder):
                self._storage.sync(self._folder)
            files = tuple(self._files)
            committable = Committable(mine.job, self._number, mine.index, self._attempt, files)
        self._has_folder, self._files = False, []
        self._number = checkpoint_id + 1
        return None if committable is None else committable.to_bytes()

    def abort(self) -> None:
        """Remove the files that are not prepared, if that is possible."""
        names = [file.name for file in self._files]
        if self._file is not None:
            names.append(self._name)
            self._file.discard()
        self._file, self._files = None, []
        if self._arrangement is not None:
            self._arrangement.close()
            self._arrangement = None
        # An error here must not hide the one that led to the abort; the committer tries again.
        with contextlib.suppress(*FAULTS):
            self._remove(names)

    def close(self) -> None:
        """Remove the files that are not prepared."""
        self.abort()
        self._is_closed = True

    @property
    def _folder(self) -> str:
        """The folder of the files for the next checkpoint."""
        staged = folder_name(self._context.job, self._number)
        return self._storage.at(STAGING, staged, self._attempt)

    @property
    def _name(self) -> str:
        """The name of the file that is open, or that will be the next one."""
        return f"part-{len(self._files):05d}{self._sink.suffix}"

    @property
    def _path(self) -> str:
        return f"{self._folder}/{self._name}"

    def _make_folder(self) -> None:
        # Without parents in a batch: an attempt that outlives its job must not restore its folder.
        self._storage.make_folder(self._folder, parents=not self._context.is_batch)

    def _remove(self, names: list[str]) -> None:  # noqa: ARG002 - overridden
        """Remove files of these names, and the folder that was made for them."""
        if self._has_folder:
            self._has_folder = False
            self._storage.delete_tree(self._folder)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the sink's writer is closed")

    def _is_large(self, file: RecordFile) -> bool:
        # Pending rows count with their bytes in memory; encode them if the limit seems near.
        if file.bytes < self._sink.target_bytes:
            return False
        file.flush()
        return file.bytes >= self._sink.target_bytes

    def _open(self, schema: pa.Schema) -> RecordFile:
        if not schema.names:
            raise SchemaMismatchError(
                "a file needs at least one column", remedy="give the rows a column"
            )
        with failing("write", self._path):
            if not self._has_folder:
                self._make_folder()
                self._has_folder = True
            stream = self._storage.open_output(self._path)
            if self.has_checksums:
                stream = Checksummed(stream)
            self._file = RecordFile(stream, schema, self._sink.encoding)
        return self._file

    def _finish(self, file: RecordFile) -> None:
        with failing("write", self._path):
            size = file.finish()
            self._storage.sync(self._path)
        self._file, name = None, self._name
        self._files.append(StagedFile(name, file.rows, size, file.crc32, self._partition))


class SinkCast(ExactCast):
    """Casts batches to the schema of a sink.

    Args:
        schema: of the sink.
    """

    verb = "has"

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(schema, "a batch for the sink")

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with the schema; see :class:`SchemaCast`."""
        return super().__call__(without_hidden_nulls(batch, self._schema))
