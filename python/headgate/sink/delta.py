"""A sink that appends rows to a Delta table, exactly once. Decision: ADR 0038."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate._error import masked
from headgate._locations import MaskedPath
from headgate.errors import NotBuiltError, PackageNotFound, SinkError
from headgate.sink.api import CommitterContext, Delivery, Sink, WriterContext
from headgate.sink.failure import failing
from headgate.sink.file_options import FileSinkOptions
from headgate.sink.file_writer import FileWriter
from headgate.sink.local_storage import storage_of
from headgate.sink.staging import Committable, StagedCommitter, StagedFile

if find_spec("deltalake") is None:
    raise PackageNotFound(
        "headgate.sink.delta needs deltalake, which is not installed",
        asked="import headgate.sink.delta",
        remedy='pip install "headgate[delta]" · pip install deltalake',
    )

if TYPE_CHECKING:
    from pyarrow import fs

    from headgate.sink.storage import Storage


@dataclass(frozen=True, slots=True)
class DeltaSink(Sink):
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

    def create_writer(self, context: WriterContext, schema: pa.Schema | None = None) -> DeltaWriter:
        """Return a writer, which casts rows to the schema of the table.

        Raises:
            SinkError: there is no table; the committer makes it when it starts.
        """
        del schema
        options = FileSinkOptions(self.path, filesystem=self.filesystem)
        return DeltaWriter(options, self._storage(), context, arrow_schema(self.table()))

    def create_committer(self, context: CommitterContext) -> DeltaCommitter:
        """Return the committer of a job."""
        return DeltaCommitter(self, self._storage(), context.job)

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


class DeltaWriter(FileWriter):
    """Writes Parquet files into the table's folder, where no reader sees those that its log does not list."""

    keeps_columns = False

    @property
    def _folder(self) -> str:
        return self._storage.root

    @property
    def _name(self) -> str:
        parts = f"{self._number}-{self._attempt}-{len(self._files)}"
        return f"{prefix(self._context.job)}{parts}.parquet"

    def _make_folder(self) -> None:
        """Do nothing: the committer made the table."""

    def _remove(self, names: list[str]) -> None:
        for name in names:
            self._storage.delete_file(self._storage.at(name))


class DeltaCommitter(StagedCommitter):
    """Lists the files of a checkpoint in the table's log, with the checkpoint's number.

    Args:
        sink: the sink.
        storage: the table's folder.
        job: the job's name, which is the application's id in the log, after ``headgate-``.
    """

    def __init__(self, sink: DeltaSink, storage: Storage, job: str) -> None:
        super().__init__(storage, job, sink.address)
        self._sink = sink
        self._app = f"headgate-{job}"

    def start(self, restored_checkpoint: int | None) -> None:
        """Make or check the table; see :meth:`SinkCommitter.start`.

        Raises:
            NotBuiltError: the table has partitions, constraints or computed columns.
        """
        self._sink.make()
        _check(self._sink.table())
        super().start(restored_checkpoint)

    def latest(self) -> int | None:
        """Return the number of the application's last transaction."""
        return _version(self._sink.table(), self._app)

    def commit_staged(self, checkpoint_id: int, staged: list[Committable]) -> None:
        """Append the files; see :meth:`SinkCommitter.commit`."""
        from deltalake import CommitProperties, Transaction  # noqa: PLC0415 - optional
        from deltalake.exceptions import DeltaError  # noqa: PLC0415
        from deltalake.transaction import AddAction  # noqa: PLC0415

        table = self._sink.table()
        committed = _version(table, self._app)
        # A task that has not heard of a commit yet passes its committable again with the next checkpoint.
        new = [entry for entry in staged if committed is None or entry.number > committed]
        if not new or (committed is not None and committed >= checkpoint_id):
            return
        now = time.time_ns() // 1_000_000
        actions = []
        for file in chain.from_iterable(entry.files for entry in new):
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

    def abort_unknown(self, committables: Collection[bytes], before: str | None = None) -> None:
        """Remove files of checkpoints after the last committed one; others are left to VACUUM.

        A file of an earlier checkpoint may belong to an old version of the table.
        """
        named = {file.name for data in committables for file in Committable.from_bytes(data).files}
        committed, start = self.latest(), prefix(self._job)
        with failing("clean up", self._storage.root):
            for info in self._storage.list(self._storage.root):
                name = info.path.rpartition("/")[2]
                if not name.startswith(start) or name in named:
                    continue
                number, _, attempt = name.removeprefix(start).partition("-")
                if before is not None and attempt >= before:
                    continue
                if number.isdecimal() and (committed is None or int(number) > committed):
                    self._storage.delete_file(info.path)

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


def _version(table: Any, app: str) -> int | None:
    version: int | None = table.transaction_version(app)
    return version


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
    for column in table.schema().fields:
        rules += [f"{column.name}: {rule}" for rule in column.metadata if rule.startswith("delta.")]
    if facts.partition_columns or rules:
        raise NotBuiltError(
            "the sink of Delta tables writes to tables without partitions, constraints and computed columns",
            have=", ".join([*facts.partition_columns, *rules]),
            remedy="FileSink(path) · a table without them",
        )
