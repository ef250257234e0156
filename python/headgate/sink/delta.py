"""A sink that appends the rows of a streaming job to a Delta table, exactly once. Decision: ADR 0038."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headgate._error import masked
from headgate._locations import MaskedPath
from headgate.errors import (
    ClosedError,
    NotBuiltError,
    PackageNotFound,
    SchemaMismatchError,
    SinkError,
)
from headgate.sink.api import Committable, StagedFile
from headgate.sink.encoding import Encoding
from headgate.sink.failure import FAULTS, failing
from headgate.sink.file_writer import conform
from headgate.sink.layout import batch_job
from headgate.sink.local_storage import storage_of
from headgate.sink.record_file import RecordFile
from headgate.sink.staging import committables_of, number_of
from headgate.sink.stream_api import (
    Delivery,
    StreamSink,
    StreamSinkCommitter,
    StreamSinkWriter,
    StreamWriterContext,
    first_checkpoint,
    refuse_older,
)

if find_spec("deltalake") is None:
    raise PackageNotFound(
        "headgate.sink.delta needs deltalake, which is not installed",
        asked="import headgate.sink.delta",
        remedy='pip install "headgate[delta]" · pip install deltalake',
    )

if TYPE_CHECKING:
    from pyarrow import fs

    from headgate.sink.storage import Storage

#: Bytes after which a new file is started.
_TARGET: Final = 512 << 20


@dataclass(frozen=True, slots=True)
class DeltaSink(StreamSink):
    """Appends to a Delta table: one version of the table per checkpoint, with all of its rows.

    Tasks write Parquet files into the table's folder. No reader sees them before the committer has
    listed them in the table's log, together with the number of the checkpoint as the version of an
    application's transaction. So a commit that is repeated finds itself done.

    Args:
        path: the table's folder: a local path, a URI, or a path of ``filesystem``.
        schema: the schema of a table that does not exist yet; an existing table keeps its own.
        filesystem: the file system of pyarrow that the tasks write with; None for the path's own.
        uri: the table's address for deltalake, if it is not the path.
        storage_options: options of deltalake for object stores.

    Raises:
        OptionError: the path is no path.
    """

    path: str
    schema: pa.Schema | None = field(default=None, kw_only=True)
    filesystem: fs.FileSystem | None = field(default=None, kw_only=True)
    uri: str | None = field(default=None, kw_only=True)
    storage_options: Mapping[str, str] | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        """Check the path."""
        object.__setattr__(self, "path", MaskedPath.of(self.path, self.filesystem))
        if self.uri is not None:
            object.__setattr__(self, "uri", MaskedPath(self.uri))

    @property
    def name(self) -> str:
        """The table's address."""
        return f"DeltaSink({masked(self.address)})"

    @property
    def delivery(self) -> Delivery:
        """``"exactly_once"``."""
        return "exactly_once"

    def create_stream_writer(
        self, context: StreamWriterContext, schema: pa.Schema | None = None
    ) -> StreamSinkWriter:
        """Return a writer, which casts rows to the schema of the table.

        Raises:
            SinkError: there is no table; the committer makes it when it starts.
        """
        del schema
        return DeltaWriter(context, self._storage(), arrow_schema(self.table()))

    def create_stream_committer(self, job: str) -> StreamSinkCommitter:
        """Return the committer of a job."""
        return DeltaCommitter(self, self._storage(), job)

    def table(self) -> Any:
        """Return the table as it is now.

        Raises:
            SinkError: there is none, or it cannot be read.
        """
        from deltalake import DeltaTable  # noqa: PLC0415 - optional
        from deltalake.exceptions import DeltaError  # noqa: PLC0415

        try:
            return DeltaTable(self.address, storage_options=self._options)
        except (DeltaError, OSError) as error:
            raise SinkError(
                f"{self.address} cannot be read as a Delta table: {error}",
                remedy="DeltaSink(path, schema=...) makes it when the job starts",
                details={"path": self.address},
            ) from error

    def make(self) -> None:
        """Make the table if it does not exist and there is a schema.

        Raises:
            SinkError: it cannot be made.
        """
        from deltalake import DeltaTable  # noqa: PLC0415 - optional
        from deltalake.exceptions import DeltaError  # noqa: PLC0415

        if self.schema is None:
            return
        try:
            DeltaTable.create(
                self.address, self.schema, mode="ignore", storage_options=self._options
            )
        except (DeltaError, OSError) as error:
            raise SinkError(f"no Delta table can be made at {self.address}: {error}") from error

    @property
    def address(self) -> str:
        """The table's address for deltalake."""
        return self.uri or self.path

    @property
    def _options(self) -> dict[str, str] | None:
        return None if self.storage_options is None else dict(self.storage_options)

    def _storage(self) -> Storage:
        return storage_of(self.path, self.filesystem)


class DeltaWriter(StreamSinkWriter):
    """Writes Parquet files into the table's folder.

    Args:
        context: the identity of the writer.
        storage: the table's folder.
        schema: of the table.
    """

    def __init__(self, context: StreamWriterContext, storage: Storage, schema: pa.Schema) -> None:
        self._context = context
        self._storage = storage
        self._schema = schema
        self._next = first_checkpoint(context.restored_checkpoint)
        self._files: list[StagedFile] = []
        self._file: RecordFile | None = None
        self._name = ""
        self._is_closed = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch.

        Raises:
            SchemaMismatchError: it has other columns than the table, or a null where none may be.
            SinkError: it could not be written.
        """
        if self._is_closed:
            raise ClosedError("the writer of the table is closed")
        rows = conform(batch, self._schema)
        for column, known in zip(rows.columns, self._schema, strict=True):
            if column.null_count and not known.nullable:
                raise SchemaMismatchError(
                    f"column {known.name!r} has a null, and the table takes none there"
                )
        if rows.num_rows == 0:
            return
        file = self._file or self._open()
        with failing("write", self._name):
            file.write(rows)
            if file.bytes >= _TARGET:
                file.flush()
        if file.bytes >= _TARGET:
            self._finish(file)

    def prepare_commit(self, checkpoint_id: int) -> bytes | None:
        """Finish the files; see :meth:`StreamSinkWriter.prepare_commit`."""
        if self._file is not None:
            self._finish(self._file)
        files, self._files = tuple(self._files), []
        if files:
            with failing("write", self._storage.root):
                self._storage.sync(self._storage.root)
        mine, number = self._context, self._next
        self._next = checkpoint_id + 1
        if not files:
            return None
        found = Committable(batch_job(mine.job, number), mine.index, mine.attempt, files)
        return found.to_json().encode()

    def abort(self) -> None:
        """Remove the files that are not prepared, if that is possible."""
        names = [file.name for file in self._files]
        if self._file is not None:
            self._file.discard()
            names.append(self._name)
        self._file, self._files = None, []
        for name in names:
            # An error here must not hide the one that led to the abort; abort_unknown() tries again.
            with suppress(*FAULTS):
                self._storage.delete_file(self._storage.at(name))

    def close(self) -> None:
        """Remove the files that are not prepared."""
        self.abort()
        self._is_closed = True

    def _open(self) -> RecordFile:
        mine = self._context
        parts = f"{self._next}-{mine.attempt}-{mine.index}-{len(self._files)}"
        self._name = f"{prefix(mine.job)}{parts}.parquet"
        with failing("write", self._name):
            stream = self._storage.open_output(self._storage.at(self._name))
            self._file = RecordFile(stream, self._schema, Encoding())
        return self._file

    def _finish(self, file: RecordFile) -> None:
        with failing("write", self._name):
            size = file.finish()
            self._storage.sync(self._storage.at(self._name))
        self._file = None
        self._files.append(StagedFile(self._name, file.rows, size))


class DeltaCommitter(StreamSinkCommitter):
    """Lists the files of a checkpoint in the table's log, with the checkpoint's number.

    Args:
        sink: the sink.
        storage: the table's folder.
        job: the job's name, which is the application's id in the log, after ``headgate-``.
    """

    def __init__(self, sink: DeltaSink, storage: Storage, job: str) -> None:
        self._sink = sink
        self._storage = storage
        self._job = job
        self._app = f"headgate-{job}"

    def start(self, restored_checkpoint: int | None) -> None:
        """Make or check the table; see :meth:`StreamSinkCommitter.start`.

        Raises:
            NotBuiltError: the table has partitions, constraints or computed columns.
        """
        self._sink.make()
        table = self._sink.table()
        _check(table)
        committed = table.transaction_version(self._app)
        refuse_older(restored_checkpoint, committed, self._job, self._sink.address)

    def commit(self, checkpoint_id: int, committables: Iterable[bytes]) -> None:
        """Append the files; see :meth:`StreamSinkCommitter.commit`."""
        from deltalake import CommitProperties, Transaction  # noqa: PLC0415 - optional
        from deltalake.exceptions import DeltaError  # noqa: PLC0415
        from deltalake.transaction import AddAction  # noqa: PLC0415

        found = committables_of(list(committables))
        last = max((number_of(one, self._job) for one in found), default=-1)
        if last > checkpoint_id:
            raise SinkError(
                "a committable of a later checkpoint",
                asked=f"checkpoint {checkpoint_id}",
                have=f"job {batch_job(self._job, last)}",
            )
        table = self._sink.table()
        committed = table.transaction_version(self._app)
        # A task that has not heard of a commit yet passes its committable again with the next checkpoint.
        found = [one for one in found if committed is None or number_of(one, self._job) > committed]
        if not found or (committed is not None and committed >= checkpoint_id):
            return
        now = time.time_ns() // 1_000_000
        actions = []
        for file in (file for one in found for file in one.files):
            self._check_file(file)
            stats = json.dumps({"numRecords": file.rows})
            actions.append(AddAction(file.name, file.bytes, {}, now, True, stats))
        mark = CommitProperties(app_transactions=[Transaction(self._app, checkpoint_id)])
        try:
            table.create_write_transaction(
                actions, "append", table.schema(), [], commit_properties=mark
            )
        except (DeltaError, OSError) as error:
            raise SinkError(
                f"the commit to {self._sink.address} failed: {error}",
                asked=f"checkpoint {checkpoint_id} of job {self._job}",
                remedy="commit it again: its rows come once",
            ) from error

    def abort_unknown(self, known: Collection[bytes], before: str | None = None) -> None:
        """Remove files of checkpoints after the last committed one; others are left to VACUUM.

        A file of an earlier checkpoint may belong to an old version of the table.
        """
        kept = {file.name for one in committables_of(known) for file in one.files}
        committed = self._sink.table().transaction_version(self._app)
        own = prefix(self._job)
        with failing("clean up", self._storage.root):
            for info in self._storage.list(self._storage.root):
                name = info.path.rpartition("/")[2]
                if not name.startswith(own) or name in kept:
                    continue
                number, _, attempt = name.removeprefix(own).partition("-")
                if before is not None and attempt >= before:
                    continue
                if number.isdecimal() and (committed is None or int(number) > committed):
                    self._storage.delete_file(info.path)

    def close(self) -> None:
        """Do nothing."""

    def _check_file(self, file: StagedFile) -> None:
        path = self._storage.at(file.name)
        with failing("look at", path):
            info = self._storage.info(path)
        if not file.name.startswith(prefix(self._job)) or info.size != file.bytes:
            raise SinkError(
                f"a file of a checkpoint is missing or has changed: {path}",
                asked=f"{file.bytes} bytes",
                have=f"{info.size} bytes" if info.is_file else "no file",
                details={"path": path},
            )


def prefix(job: str) -> str:
    """Return how the names of a job's files begin; no other job's names begin so."""
    return f"part-{hashlib.sha256(job.encode()).hexdigest()[:16]}-"


def arrow_schema(table: Any) -> pa.Schema:
    """Return the schema of a table as pyarrow's."""
    return pa.schema(table.schema().to_arrow())


def _check(table: Any) -> None:
    """Refuse tables whose rules a list of files would break.

    Raises:
        NotBuiltError: the table has partitions, constraints or computed columns.
    """
    facts = table.metadata()
    rules = [name for name in facts.configuration if name.startswith("delta.constraints.")]
    for one in table.schema().fields:
        rules += [f"{one.name}: {rule}" for rule in one.metadata if rule.startswith("delta.")]
    if facts.partition_columns or rules:
        raise NotBuiltError(
            "the sink of Delta tables writes to tables without partitions, constraints and computed columns",
            have=", ".join([*facts.partition_columns, *rules]),
            remedy="FileSink(path) · a table without them",
        )
