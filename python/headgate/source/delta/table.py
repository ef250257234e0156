"""A Delta table: the files of a version, by deltalake, and those that later versions have added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headgate._error import masked
from headgate._locations import from_uri, is_uri
from headgate.errors import NotBuiltError, SourceError
from headgate.source.delta.log import Commit, commits, first_commit, has_commit, read_commit
from headgate.source.delta.protocol import (
    check_mapping,
    check_protocol,
    table_schema,
    unread_columns,
)
from headgate.source.files.listing import Files
from headgate.source.tables.pruning import has_bounds
from headgate.source.tables.rows import encoded
from headgate.source.tables.table import ColumnBounds, Pinned, Table, TableFile

if TYPE_CHECKING:
    import pyarrow.fs as pafs

#: Columns of a change, after those of the table.
CHANGE: Final = pa.schema(
    [
        ("_change_type", pa.string()),
        ("_commit_version", pa.int64()),
        ("_commit_timestamp", pa.timestamp("us", "UTC")),
    ]
)
_FEED: Final = "delta.enableChangeDataFeed"
_CHANGES: Final = "changes=True, if the table has delta.enableChangeDataFeed"
_ANEW: Final = "a new folder for the checkpoints, to read the table from its beginning"


@dataclass(frozen=True, slots=True)
class DeltaTable(Table):
    """A table, and the choices of what to read of it.

    Attributes:
        path: the table's folder.
        filesystem: has the path; None for the path's own.
        uri: the table's address for deltalake; None if it is the path.
        storage_options: of deltalake.
        version: the version to read, or a time; None for the newest one.
        follows: True if later versions are read too.
        reads_changes: True to read the change data feed.
        skips: True to leave out versions that change or delete rows.
    """

    path: str
    filesystem: pafs.FileSystem | None = field(repr=False)
    uri: str | None
    storage_options: Mapping[str, str] | None = field(repr=False)
    version: int | datetime | None
    follows: bool
    reads_changes: bool
    skips: bool

    @property
    def name(self) -> str:
        """The path, without secrets."""
        return masked(self.path)

    @property
    def is_fixed(self) -> bool:
        """True if there is a version."""
        return self.version is not None

    def pin(self) -> Pinned:
        """Look at the table; see :meth:`Table.pin`.

        Raises:
            SourceError: there is no such table or version.
            NotBuiltError: the table has features that are not read.
        """
        files = Files(self.path, self.filesystem)
        only = self.version if isinstance(self.version, int) and not self.follows else None
        table = self._open(only)
        chosen = latest = int(table.version())
        if self.version is not None and only is None:
            chosen = self._chosen(files)
        if not self.follows and chosen != latest:
            table = self._open(chosen)
        metadata = table.metadata()
        properties, text = metadata.configuration, table.schema().to_json()
        schema = table_schema(text, properties)
        unread = unread_columns(text, metadata.partition_columns, schema)
        if self.reads_changes:
            if properties.get(_FEED, "false").lower() != "true":
                raise self._without_feed(int(table.version()))
            schema = pa.schema([*schema, *CHANGE])
        partitions = tuple(metadata.partition_columns)
        return Pinned(
            str(metadata.id), chosen, latest, schema, files, partitions=partitions, unread=unread
        )

    def first(self, after: int | str, pinned: Pinned) -> int:
        """Return the version after which changes are read; see :meth:`Table.first`."""
        if isinstance(after, str):
            return pinned.latest
        if not -1 <= after <= pinned.latest:
            raise SourceError(
                f"{self.name} has no version {after}",
                asked=f"after={after}",
                have=f"version {pinned.latest} is the newest",
                remedy="after=-1 for all versions · after='latest'",
            )
        if self.reads_changes and after >= 0:
            metadata = self._open(after).metadata()
            if metadata.configuration.get(_FEED, "false").lower() != "true":
                raise self._without_feed(after)
        return after

    def snapshot(self, pinned: Pinned, columns: Sequence[str]) -> list[TableFile]:
        """Return the files of the pinned version; see :meth:`Table.snapshot`."""
        table = self._open(pinned.version)
        masks = self._masks(table)
        extra = self._of_change(pinned, "insert", pinned.version, None)
        actions = pa.table(table.get_add_actions())
        partitions = _texts(actions, "partition")
        bounds = _bounds(actions, pinned.schema, columns)
        files = []
        for row, raw in enumerate(actions["path"].to_pylist()):
            self._check_partition(raw, partitions[row], pinned)
            files.append(
                TableFile(
                    self._path(raw, pinned),
                    actions["size_bytes"][row].as_py(),
                    pinned.version,
                    {**partitions[row], **extra},
                    masks.pop(unquote(raw), ""),
                    bounds[row],
                )
            )
        if masks:
            raise SourceError(
                f"{self.name} has deletion vectors of files that are not in it",
                have=", ".join(sorted(masks)[:3]),
                remedy="mend the table",
            )
        return files

    def changes(self, pinned: Pinned, after: int, until: int | None) -> tuple[int, list[TableFile]]:
        """Return the files that versions have added; see :meth:`Table.changes`."""
        files: list[TableFile] = []
        version = after
        for commit in commits(pinned.files, self._root(pinned), after, until):
            self._check(commit, pinned)
            files += self._of_commit(commit, pinned)
            version = commit.version
        if version == after != until:
            self._check_log(pinned, after)
        return version, files

    def _check_log(self, pinned: Pinned, after: int) -> None:
        """Check that a version is the newest, if no commit follows it.

        Raises:
            SourceError: the next one was removed from the log, or the table has fewer versions than it had.
        """
        root = self._root(pinned)
        if after >= 0 and has_commit(pinned.files, root, after):
            return
        first = first_commit(pinned.files, root)
        if first == after + 1:
            return  # It came after the look for it.
        if first is not None and first <= after:
            raise SourceError(
                f"{self.name} does not have version {after} any more, which was read already",
                have=f"version {first} is the first one",
                remedy=f"the table as it was · {_ANEW}",
            )
        if pinned.latest > after or first is not None:
            raise SourceError(
                f"the log of {self.name} does not have version {after + 1} any more",
                asked=f"the versions after {after}",
                have=f"version {first} is the first one" if first is not None else "no commits",
                remedy=f"{_ANEW} · a longer delta.logRetentionDuration",
            )

    def _check(self, commit: Commit, pinned: Pinned) -> None:
        """Refuse a version that this source, as it is, cannot read.

        Raises:
            NotBuiltError: it needs a feature that is not read.
            SourceError: it has other columns, or no change data feed any more.
        """
        if commit.protocol is not None:
            protocol = commit.protocol
            check_protocol(self.name, protocol["minReaderVersion"], protocol.get("readerFeatures"))
        if commit.metadata is None:
            return
        if commit.metadata["id"] != pinned.table:
            raise SourceError(
                f"{self.name} was made anew by version {commit.version}", remedy=_ANEW
            )
        properties = commit.metadata.get("configuration") or {}
        has_feed = properties.get(_FEED, "false").lower() == "true"
        if self.reads_changes and not has_feed:
            raise self._without_feed(commit.version)
        schema = table_schema(commit.metadata["schemaString"], properties)
        columns = pa.schema([each for each in pinned.schema if each.name not in CHANGE.names])
        if commit.version > pinned.latest and not schema.equals(columns, check_metadata=True):
            raise SourceError(
                f"version {commit.version} of {self.name} has other columns",
                asked=", ".join(f"{each.name} {each.type}" for each in columns),
                have=", ".join(f"{each.name} {each.type}" for each in schema),
                remedy="start the job again with the same checkpoints: it goes on with the new columns",
            )

    def _of_commit(self, commit: Commit, pinned: Pinned) -> list[TableFile]:
        adds = [each for each in commit.adds if each.get("dataChange", True)]
        removes = [each for each in commit.removes if each.get("dataChange", True)]
        if self.reads_changes:
            return self._feed(commit, adds, removes, pinned)
        if removes:
            if self.skips:
                return []
            raise SourceError(
                f"version {commit.version} of {self.name} deletes or changes rows that may have been read",
                asked=f"the rows that versions after {commit.version - 1} have added",
                have=f"{len(removes)} files are removed",
                remedy=f"{_CHANGES} · skip_change_commits=True, which leaves out this version · {_ANEW}",
                details={"version": commit.version},
            )
        return [self._file(each, commit, pinned) for each in adds]

    def _feed(
        self,
        commit: Commit,
        adds: Sequence[Mapping[str, Any]],
        removes: Sequence[Mapping[str, Any]],
        pinned: Pinned,
    ) -> list[TableFile]:
        """Return the files of the changes of a version, or else those that it has added and removed."""
        if commit.changes:  # They have their kind in each row.
            return [self._file(each, commit, pinned, None) for each in commit.changes]
        return [
            *(self._file(each, commit, pinned, "delete") for each in removes),
            *(self._file(each, commit, pinned, "insert") for each in adds),
        ]

    def _file(
        self,
        action: Mapping[str, Any],
        commit: Commit,
        pinned: Pinned,
        kind: str | None = "insert",
    ) -> TableFile:
        if action.get("deletionVector"):
            raise NotBuiltError(
                f"version {commit.version} of {self.name} has rows under a deletion vector",
                asked="the changes of that version",
                have=f"file {action['path']}",
                remedy='spark.readStream.format("delta") · skip_change_commits=True without changes=True',
            )
        path, size = self._path(action["path"], pinned), action.get("size")
        values = action.get("partitionValues")
        if size is None:
            size = pinned.files.filesystem.get_file_info(path).size
        if values is None or size is None:
            raise SourceError(
                f"version {commit.version} of {self.name} removes {action['path']} without its partition or size",
                remedy='spark.readStream.format("delta")',
            )
        names = _logical(pinned.schema)
        partition = {names.get(name, name): text or None for name, text in values.items()}
        self._check_partition(action["path"], partition, pinned)
        extra = self._of_change(pinned, kind, commit.version, commit)
        return TableFile(path, size, commit.version, {**partition, **extra})

    def _check_partition(
        self, file: str, partition: Mapping[str, str | None], pinned: Pinned
    ) -> None:
        """Check that a file has a value for each column of its partition: a column without one would be null.

        Raises:
            SourceError: a value is missing.
        """
        missing = [name for name in pinned.partitions if name not in partition]
        if missing:
            raise SourceError(
                f"the log of {self.name} has no value of {', '.join(missing)} for {file}",
                asked=f"the partition by {', '.join(pinned.partitions)}",
                have=", ".join(partition),
                remedy="mend the table",
            )

    def _of_change(
        self, pinned: Pinned, kind: str | None, version: int, commit: Commit | None
    ) -> dict[str, str | None]:
        """Return the columns of a change that are the same in all rows of a file."""
        if not self.reads_changes:
            return {}
        commit = commit or read_commit(pinned.files, self._root(pinned), version)
        time = None
        if commit is not None:
            time = datetime.fromtimestamp(commit.time / 1000, UTC)
        values = {
            "_commit_version": str(version),
            "_commit_timestamp": None if time is None else time.strftime("%Y-%m-%d %H:%M:%S.%fZ"),
        }
        return values if kind is None else {"_change_type": kind, **values}

    def _open(self, version: int | None = None) -> Any:
        """Return deltalake's table."""
        from deltalake import DeltaTable as Opened  # noqa: PLC0415 - optional
        from deltalake.exceptions import DeltaError  # noqa: PLC0415

        options = None if self.storage_options is None else dict(self.storage_options)
        address = self.uri or self.path
        try:
            table = Opened(address, version=version, storage_options=options)
        except (DeltaError, OSError, ValueError) as error:
            which = "" if version is None else f"version {version} of "
            raise SourceError(
                f"{which}{self.name} cannot be read as a Delta table: {error}",
                remedy="check the path · another version: DeltaTable(path).history() lists them",
                details={"path": self.path},
            ) from error
        protocol = table.protocol()
        reader, features = protocol.min_reader_version, protocol.reader_features
        check_protocol(self.name, reader, features)
        check_mapping(self.name, reader, features, table.metadata().configuration)
        return table

    def _chosen(self, files: Files) -> int:
        """Return the version that was chosen by number or time."""
        if isinstance(self.version, int):
            return int(self._open(self.version).version())
        table = self._open()
        from deltalake.exceptions import DeltaError  # noqa: PLC0415 - optional

        assert self.version is not None  # noqa: S101 - callers have checked
        try:
            table.load_as_version(self.version)
            version = int(table.version())
        except (DeltaError, OSError, ValueError) as error:
            raise SourceError(f"{self.name} at {self.version} cannot be read: {error}") from error
        root = files.paths[0]
        commit = read_commit(files, root, version)
        first = first_commit(files, root)
        time = None if commit is None else datetime.fromtimestamp(commit.time / 1000, UTC)
        if time is not None and version == first and time > self.version:
            raise SourceError(
                f"{self.name} has no version of {self.version}",
                have=f"the first one, {version}, is of {time}",
                remedy=f"version={version} · a later timestamp",
            )
        return version

    def _masks(self, table: Any) -> dict[str, str]:
        """Return the rows that are kept, by the paths in the log of files with deletion vectors."""
        if "deletionVectors" not in (table.protocol().reader_features or ()):
            return {}
        from deltalake.exceptions import DeltaError  # noqa: PLC0415 - optional

        masks, folder = {}, f"{table.table_uri.rstrip('/')}/"
        try:
            batches = [*table.deletion_vectors()]
        except DeltaError as error:
            raise NotBuiltError(
                f"deltalake does not read the deletion vectors of {self.name}: {error}",
                asked=f"readerFeatures {', '.join(sorted(table.protocol().reader_features))}",
                remedy='spark.read.format("delta")',
            ) from error
        for batch in batches:
            rows = pa.record_batch(batch)
            for path, selection in zip(rows["filepath"], rows["selection_vector"], strict=True):
                mask = selection.values.cast(pa.bool_()).fill_null(True)
                masks[unquote(path.as_py().removeprefix(folder))] = encoded(mask)
        return masks

    def _path(self, raw: str, pinned: Pinned) -> str:
        """Return the path of a file of the log, in the table's file system."""
        if is_uri(raw):
            filesystem, path = from_uri(raw)
            if filesystem == pinned.files.filesystem:
                return path
            raise NotBuiltError(
                f"{self.name} has files in another file system",
                have=raw,
                remedy='spark.read.format("delta")',
            )
        path = unquote(raw)
        return path if path.startswith("/") else f"{self._root(pinned)}/{path}"

    def _root(self, pinned: Pinned) -> str:
        return pinned.files.paths[0].rstrip("/")

    def _without_feed(self, version: int) -> SourceError:
        return SourceError(
            f"{self.name} has no change data feed in version {version}",
            asked="changes=True",
            have=f"{_FEED} is not true",
            remedy="alter table ... set tblproperties (delta.enableChangeDataFeed = true), "
            "and after= a version that has it · changes=False",
        )


def _logical(schema: pa.Schema) -> dict[str, str]:
    """Return the name of each column by its physical name."""
    return {
        (each.metadata or {}).get(b"headgate.key", each.name.encode()).decode(): each.name
        for each in schema
    }


def _texts(actions: pa.Table, name: str) -> list[dict[str, str | None]]:
    """Return the values of a struct's fields as texts, a dict for each row."""
    if name not in actions.column_names:
        return [{} for _ in range(actions.num_rows)]
    values = actions[name].combine_chunks()
    columns = {each.name: pc.struct_field(values, each.name) for each in values.type}
    texts = {each: column.cast(pa.string()).to_pylist() for each, column in columns.items()}
    return [
        {each: column[row] for each, column in texts.items()} for row in range(actions.num_rows)
    ]


def _bounds(
    actions: pa.Table, schema: pa.Schema, columns: Sequence[str]
) -> list[dict[str, ColumnBounds]]:
    """Return the limits of columns in each file, as far as the log has them."""
    bounds: list[dict[str, ColumnBounds]] = [{} for _ in range(actions.num_rows)]
    for name in columns:
        kind = schema.field(name).type
        # Decimals are numbers of JSON, and writers have times in zones of their own.
        if pt.is_decimal(kind) or (pt.is_timestamp(kind) and kind.tz is not None):
            continue
        parts = [_stored(actions, part, name) for part in ("min", "max", "null_count")]
        if not has_bounds(kind) or None in parts:
            continue
        lows, highs, nulls = (part.to_pylist() for part in parts if part is not None)
        for row, (low, high, count) in enumerate(zip(lows, highs, nulls, strict=True)):
            bounds[row][name] = ColumnBounds(_below(low, kind), _above(high, kind), count)
    return bounds


def _stored(actions: pa.Table, part: str, name: str) -> pa.Array | None:
    if part not in actions.column_names:
        return None
    values = actions[part].combine_chunks()
    if name not in [each.name for each in values.type]:
        return None
    return pc.struct_field(values, name)


def _below(low: Any, kind: Any) -> Any:
    """Return a value that no value of the file is below, for the smallest one as the log has it."""
    if pt.is_timestamp(kind) and low is not None:
        return pa.scalar(pa.scalar(low, kind).value - 1000, kind)  # cut to milliseconds
    return low


def _above(high: Any, kind: Any) -> Any:
    """Return a value that no value of the file exceeds, for the largest one as the log has it."""
    if pt.is_string(kind):
        # Long texts are cut, and what marks the cut is above all others in ASCII only.
        return high if isinstance(high, str) and high.isascii() and len(high) < 32 else None
    if pt.is_timestamp(kind) and high is not None:
        return pa.scalar(pa.scalar(high, kind).value + 1000, kind)  # cut to milliseconds
    return high
