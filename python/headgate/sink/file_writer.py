"""The writer of a file sink: stages files in the folder of its attempt."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.errors import ClosedError, SchemaMismatchError
from headgate.schema_cast import cast, is_lossless
from headgate.sink.api import Committable, SinkWriter, StagedFile, WriterContext
from headgate.sink.failure import FAULTS, failing
from headgate.sink.layout import STAGING
from headgate.sink.nested import without_hidden_nulls
from headgate.sink.record_file import Checksummed, RecordFile

if TYPE_CHECKING:
    from headgate.sink.file_options import FileSinkOptions
    from headgate.sink.storage import Storage


class FileSinkWriter(SinkWriter):
    """Writes the files of one attempt.

    The writer with index 0 and a schema makes one empty file if it gets no rows, so that even an
    empty result has a schema. The committer drops that file if there are rows elsewhere.

    Args:
        sink: the options of the sink.
        storage: the sink's folder.
        context: the identity of the writer.
        schema: the schema of the batches; the first batch's if it is None.
        make_job: True to make the job's folder too: for streams, whose jobs are not started.
        has_checksums: True to put a checksum of each file into the committable.
    """

    def __init__(
        self,
        sink: FileSinkOptions,
        storage: Storage,
        context: WriterContext,
        schema: pa.Schema | None = None,
        *,
        make_job: bool = False,
        has_checksums: bool = False,
    ) -> None:
        self._sink = sink
        self._storage = storage
        self._context = context
        self._schema = schema
        self._make_job = make_job
        self._has_checksums = has_checksums
        self._folder = storage.at(STAGING, context.job, context.attempt)
        self._has_folder = False
        self._files: list[StagedFile] = []
        self._file: RecordFile | None = None
        self._state = "open"

    def write(self, batch: pa.RecordBatch) -> None:
        """Stage a batch; see :meth:`SinkWriter.write`."""
        self._check_open()
        if self._schema is None:
            self._schema = batch.schema
        batch = conform(batch, self._schema)
        limit = self._sink.max_rows_per_file
        while batch.num_rows:
            file = self._file or self._open(self._schema)
            room = batch.num_rows if limit is None else min(batch.num_rows, limit - file.rows)
            with failing("write", self._path):
                file.write(batch.slice(0, room))
                batch = batch.slice(room)
                full = file.rows == limit or self._is_large(file)
            if full:
                self._finish(file)

    def prepare_commit(self) -> Committable:
        """Finish the files; see :meth:`SinkWriter.prepare_commit`."""
        self._check_open()
        is_first = self._context.index == 0
        if self._file is None and not self._files and is_first and self._schema is not None:
            self._open(self._schema)
        if self._file is not None:
            self._finish(self._file)
        if self._has_folder:
            with failing("write", self._folder):
                self._storage.sync(self._folder)
        self._state = "prepared"
        context = self._context
        return Committable(context.job, context.index, context.attempt, tuple(self._files))

    def abort(self) -> None:
        """Remove this attempt's folder if possible; the committer removes the job's folder."""
        self._state = "closed"
        if self._file is not None:
            self._file.discard()
            self._file = None
        if self._has_folder:
            self._has_folder = False
            # An error here must not hide the one that led to the abort.
            with contextlib.suppress(*FAULTS):
                self._storage.delete_tree(self._folder)

    def close(self) -> None:
        """Close the writer; see :meth:`SinkWriter.close`."""
        if self._state == "open":
            self.abort()
        self._state = "closed"

    @property
    def _path(self) -> str:
        number = len(self._files)
        return f"{self._folder}/part-{number:05d}{self._sink.suffix}"

    def _check_open(self) -> None:
        if self._state != "open":
            raise ClosedError("the sink's writer is closed or has prepared its commit")

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
                # Without parents: an attempt that outlives its job must not restore its folder.
                self._storage.make_folder(self._folder, parents=self._make_job)
                self._has_folder = True
            stream = self._storage.open_output(self._path)
            if self._has_checksums:
                stream = Checksummed(stream)
            self._file = RecordFile(stream, schema, self._sink.encoding)
        return self._file

    def _finish(self, file: RecordFile) -> None:
        path = self._path
        with failing("write", path):
            size = file.finish()
            self._storage.sync(path)
        self._file = None
        name = path.rpartition("/")[2]
        self._files.append(StagedFile(name, file.rows, size, file.crc32))


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the columns, the order and the types of a schema.

    Raises:
        SchemaMismatchError: the batch has other columns, or a value that cannot be cast.
    """
    batch = _without_hidden_nulls(batch, schema)
    if batch.schema.equals(schema):
        return batch
    have, want = batch.schema.names, schema.names
    if sorted(have) != sorted(want):
        raise SchemaMismatchError(
            "a batch for the sink has other columns than the sink",
            asked=", ".join(want),
            have=", ".join(have) or "none",
        )
    columns = []
    for field in schema:
        column = batch.column(field.name)
        try:
            if column.null_count and not field.nullable:
                raise pa.ArrowInvalid("it has nulls, but is not null in the schema")
            columns.append(_exact(column, field.type))
        except pa.ArrowException as error:
            raise SchemaMismatchError(
                f"a batch for the sink does not fit its schema: column {field.name!r}: {error}",
                asked=f"{field.name}: {field.type}",
                have=f"{field.name}: {column.type}",
                remedy="cast the column before the sink",
                details={"column": field.name},
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _without_hidden_nulls(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    for at, name in enumerate(batch.schema.names):
        column = batch.column(at)
        known = schema.get_all_field_indices(name)
        if pa.types.is_nested(column.type) and len(known) == 1:
            found = without_hidden_nulls(column, schema.field(known[0]).type, name)
            if found is not column:
                batch = batch.set_column(at, name, found)
    return batch


def _exact(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast a column.

    Raises:
        ArrowInvalid: a value would change.
        ArrowNotImplementedError: pyarrow lacks the cast.
    """
    if column.type.equals(kind):
        return column
    if not is_lossless(column.type, kind):
        raise pa.ArrowInvalid(f"values of {column.type} may change as {kind}")
    return cast(column, kind)
