"""A sink that appends rows to a Delta table, or merges changes into it, exactly once. Decision: ADR 0038."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headgate._arguments import names, refuse
from headgate._changes import (
    CHANGE_TYPE,
    INSERT,
    change_field,
    is_changing,
    last_changes,
    shared_keys,
    upsert_keys,
)
from headgate._error import masked
from headgate._locations import MaskedPath
from headgate.errors import NotBuiltError, PackageNotFound, SinkError, UnknownColumnError
from headgate.sink.api import CommitterContext, Delivery, Sink, WriterContext
from headgate.sink.failure import failing
from headgate.sink.file_options import FileSinkOptions
from headgate.sink.file_writer import FileWriter
from headgate.sink.layout import STAGING, folder_name
from headgate.sink.local_storage import storage_of
from headgate.sink.staged_rows import staged_rows
from headgate.sink.staging import Committable, StagedCommitter, StagedFile, clean_until

if find_spec("deltalake") is None:
    raise PackageNotFound(
        "headgate.sink.delta needs deltalake, which is not installed",
        asked="import headgate.sink.delta",
        remedy='pip install "headgate[delta]" · pip install deltalake',
    )

if TYPE_CHECKING:
    from pyarrow import fs

    from headgate.sink.storage import Storage

#: Largest size of a staged file of changes, which the committer reads into memory.
_STAGED: Final = "64m"
#: Column of a merge: 1 for rows that are gone.
_GONE: Final = "__headgate_gone"


@dataclass(frozen=True, slots=True)
class DeltaSink(Sink):
    """Appends to a Delta table, or changes it by key: one version of the table per checkpoint, with all of its rows.

    Tasks write Parquet files into the table's folder. No reader sees them before the committer has
    listed them in the table's log, together with the number of the checkpoint as the version of an
    application's transaction. So a commit that is repeated finds itself done.

    With ``keys=``, a row replaces the row of the table with the same keys, and those that a column ``_change_type`` calls
    ``"delete"`` or ``"update_before"`` remove it. Tasks stage the rows below the table's folder, and the committer merges the last
    one of each key of a checkpoint, in memory. Rows of a key must come from one task, as after ``key_by()`` of these keys.

    Args:
        path: the table's folder: a local path, a URI, or a path of ``filesystem``.
        schema: the schema of a table that does not exist yet; an existing table keeps its own.
        keys: columns that tell rows of the table apart, to replace and remove them; null is a value. None to append.
        filesystem: the file system of pyarrow that the tasks write with; None for the path's own.
        uri: the table's address for deltalake, if it is not the path.
        storage_options: options of deltalake for object stores.

    Raises:
        OptionError: the path is no path, or the keys are no names.
    """

    path: str
    schema: pa.Schema | None = field(default=None, kw_only=True)
    keys: Sequence[str] | str | None = field(default=None, kw_only=True)
    filesystem: fs.FileSystem | None = field(default=None, kw_only=True)
    uri: str | None = field(default=None, kw_only=True)
    storage_options: Mapping[str, str] | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        """Check the path and the keys."""
        object.__setattr__(self, "path", MaskedPath.of(self.path, self.filesystem))
        if self.uri is not None:
            object.__setattr__(self, "uri", MaskedPath(self.uri))
        if self.keys is not None:
            object.__setattr__(self, "keys", names("keys", self.keys))
            if not self.keys:
                raise refuse("keys", self.keys, "is empty", "names of columns", 'keys=["user"]')

    @property
    def name(self) -> str:
        """The table's address, and the keys."""
        keys = "" if self.keys is None else f", keys={list(self.keys)}"
        return f"DeltaSink({masked(self.address)}{keys})"

    def check_schema(self, schema: pa.Schema) -> None:
        """Refuse changes that are to be appended, and changes of rows with other keys.

        Raises:
            SinkError: the rows are changes, and there are no keys, or other ones, or keys that several rows share.
            UnknownColumnError: the rows have no column of a key.
        """
        if self.keys is None:
            if is_changing(schema) and not (self.schema and is_changing(self.schema)):
                raise SinkError(
                    f"rows with a column {CHANGE_TYPE} are changes, and {self.name} appends",
                    remedy='DeltaSink(path, keys=["user"]) applies them · map() that renames the column appends them',
                )
            return
        for key in self.keys:
            if key not in schema.names:
                raise UnknownColumnError(
                    f"there is no column {key!r}",
                    asked=f"keys={list(self.keys)}",
                    have=", ".join(schema.names),
                )
        upserts = upsert_keys(schema)
        if upserts is not None and set(upserts) != set(self.keys):
            raise SinkError(
                "updates without the rows before them are of rows with other keys",
                asked=f"keys={list(self.keys)}",
                have=f"updates by {list(upserts)}",
                remedy=f"keys={list(upserts)} · update_before=True of the operator before",
            )
        shared = shared_keys(schema)
        if shared is not None and set(self.keys) <= set(shared):
            raise SinkError(
                "several rows have the same keys, of which the table would keep one",
                asked=f"keys={list(self.keys)}",
                have=f"the first rows of each {', '.join(shared)}",
                remedy=f'top(..., rank="place") and keys={[*shared, "place"]}',
            )

    @property
    def delivery(self) -> Delivery:
        """``"exactly_once"``."""
        return "exactly_once"

    def create_writer(self, context: WriterContext, schema: pa.Schema | None = None) -> FileWriter:
        """Return a writer, which casts rows to the schema of the table.

        Raises:
            SinkError: there is no table; the committer makes it when it starts.
        """
        del schema
        of_table = arrow_schema(self.table())
        if self.keys is not None:
            files: dict[str, Any] = {"format": "arrow", "target_file_size": _STAGED}
            options = FileSinkOptions(self.path, filesystem=self.filesystem, **files)
            return ChangesWriter(options, self._storage(), context, of_table.append(change_field()))
        options = FileSinkOptions(self.path, filesystem=self.filesystem)
        return DeltaWriter(options, self._storage(), context, of_table)

    def create_committer(self, context: CommitterContext) -> StagedCommitter:
        """Return the committer of a job."""
        if self.keys is not None:
            return MergeCommitter(self, self._storage(), context, self.keys)
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
        new = _new(staged, checkpoint_id, _version(table, self._app))
        if not new:
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


class ChangesWriter(FileWriter):
    """Stages changes, with checksums of the files. Rows without a change column are inserts."""

    has_checksums = True
    keeps_columns = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Stage a batch; see :meth:`SinkWriter.write`."""
        if not is_changing(batch.schema):
            inserts = pa.repeat(pa.scalar(INSERT), batch.num_rows)
            batch = batch.append_column(CHANGE_TYPE, inserts)
        super().write(batch)


class MergeCommitter(StagedCommitter):
    """Merges the changes of a checkpoint into the table, with the checkpoint's number.

    Args:
        sink: the sink.
        storage: the table's folder, in which rows are staged.
        context: with the job's name, which is the application's id in the log, after ``headgate-``.
        keys: columns that tell rows apart.
    """

    def __init__(
        self, sink: DeltaSink, storage: Storage, context: CommitterContext, keys: Sequence[str]
    ) -> None:
        super().__init__(storage, context.job, sink.address)
        self._sink = sink
        self._app = f"headgate-{context.job}"
        self._keys = keys
        self._is_batch = context.is_batch

    def start(self, restored_checkpoint: int | None) -> None:
        """Make or check the table; see :meth:`SinkCommitter.start`.

        Raises:
            NotBuiltError: the table has computed columns.
            UnknownColumnError: it has no column of a key.
        """
        self._sink.make()
        _check(self._sink.table(), self._keys)
        if self._is_batch:
            # Writers of a batch make no folder above their own, since they may outlive it.
            path = self._storage.at(STAGING, folder_name(self._job, 0))
            with failing("make", path):
                self._storage.make_folder(path, parents=True)
        super().start(restored_checkpoint)

    def latest(self) -> int | None:
        """Return the number of the application's last transaction."""
        return _version(self._sink.table(), self._app)

    def commit_staged(self, checkpoint_id: int, staged: list[Committable]) -> None:
        """Merge the rows; see :meth:`SinkCommitter.commit`."""
        table = self._sink.table()
        committed = _version(table, self._app)
        new = _new(staged, checkpoint_id, committed)
        if new:
            batches = [batch for entry in new for batch in staged_rows(self._storage, entry)]
            self._merge(table, pa.Table.from_batches(batches), checkpoint_id)
            # If no row has changed there is no new version, and the rows may be needed again.
            committed = self.latest()
        if committed is not None:
            clean_until(self._storage, self._job, committed)

    def _merge(self, table: Any, changes: pa.Table, checkpoint_id: int) -> None:
        from deltalake import CommitProperties, Transaction  # noqa: PLC0415 - optional
        from deltalake.exceptions import DeltaError  # noqa: PLC0415

        parts = [
            part.append_column(_GONE, pa.repeat(pa.scalar(is_gone), part.num_rows))
            for is_gone, part in enumerate(last_changes(changes, self._keys))
        ]
        same = " AND ".join(
            f"(target.`{key}` IS NOT DISTINCT FROM source.`{key}`)" for key in self._keys
        )
        mark = CommitProperties(app_transactions=[Transaction(self._app, checkpoint_id)])
        try:
            merger = table.merge(
                pa.concat_tables(parts),
                same,
                source_alias="source",
                target_alias="target",
                # The statistics of the rows leave out files of the table.
                streamed_exec=False,
                commit_properties=mark,
            )
            is_there, is_gone = f"source.`{_GONE}` = 0", f"source.`{_GONE}` = 1"
            merger.when_matched_delete(is_gone)
            merger.when_matched_update_all(is_there, except_cols=[_GONE])
            merger.when_not_matched_insert_all(is_there, except_cols=[_GONE])
            merger.execute()
        except (DeltaError, OSError) as error:
            raise SinkError(
                f"the merge into {self._sink.address} failed: {error}",
                asked=f"checkpoint {checkpoint_id} of job {self._job}",
                remedy="commit it again: its changes are applied once",
            ) from error


def _new(staged: list[Committable], checkpoint_id: int, committed: int | None) -> list[Committable]:
    """Return what the application has not committed yet; nothing if its last transaction has this checkpoint or a later one.

    A task that has not heard of a commit yet passes its committable again with the next checkpoint.
    """
    if committed is None:
        return staged
    if committed >= checkpoint_id:
        return []
    return [entry for entry in staged if entry.number > committed]


def _version(table: Any, app: str) -> int | None:
    version: int | None = table.transaction_version(app)
    return version


def prefix(job: str) -> str:
    """Return how the names of a job's files begin; no other job's names begin so."""
    return f"part-{hashlib.sha256(job.encode()).hexdigest()[:16]}-"


def arrow_schema(table: Any) -> pa.Schema:
    """Return the schema of a table as pyarrow's."""
    return pa.schema(table.schema().to_arrow())


def _check(table: Any, keys: Sequence[str] | None = None) -> None:
    """Refuse tables whose rules a list of files would break, or a merge.

    Args:
        table: the table.
        keys: of a merge, which keeps partitions and constraints.

    Raises:
        NotBuiltError: the table has partitions, constraints or computed columns.
        UnknownColumnError: it has no column of a key.
    """
    facts, rules = table.metadata(), []
    if keys is None:
        rules += facts.partition_columns
        rules += [name for name in facts.configuration if name.startswith("delta.constraints.")]
    for column in table.schema().fields:
        rules += [f"{column.name}: {rule}" for rule in column.metadata if rule.startswith("delta.")]
    if rules:
        allowed = "without" if keys else "without partitions, constraints and"
        raise NotBuiltError(
            f"the sink of Delta tables writes to tables {allowed} computed columns",
            have=", ".join(rules),
            remedy="FileSink(path) · a table without them",
        )
    columns = [column.name for column in table.schema().fields]
    for key in keys or ():
        if key not in columns:
            raise UnknownColumnError(
                f"the table has no column {key!r}",
                asked=f"keys={list(keys or ())}",
                have=", ".join(columns),
            )
