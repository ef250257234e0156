"""An Iceberg table: the files of a snapshot, and those that later snapshots have appended, by PyIceberg."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow.fs as pafs

from headgate._error import masked
from headgate.errors import NotBuiltError, SourceError
from headgate.source.files.listing import Files
from headgate.source.iceberg.columns import (
    bounds_of,
    default_values,
    partition_values,
    table_schema,
    unread_partitions,
)
from headgate.source.iceberg.deletes import PositionDeletes
from headgate.source.tables.table import Pinned, Table, TableFile

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The version of a table without a snapshot.
EMPTY: Final = -1
_NEWEST: Final = 3
_NAMES: Final = "schema.name-mapping.default"
_SPARK: Final = 'spark.read.format("iceberg")'
_ANEW: Final = "a new folder for the checkpoints, to read the table from its beginning"


@dataclass(frozen=True, slots=True)
class IcebergTable(Table):
    """A table, and the choices of what to read of it.

    Attributes:
        identifier: the table's name in the catalog, or the location of a file of its metadata.
        catalog: name or properties of the catalog; None for the default one.
        filesystem: has the files; None for that of their locations.
        snapshot_id: the snapshot to read, or a time; None for the newest one.
        ref: the branch or tag; None for the main branch.
        follows: True if later snapshots are read too.
        skips: True to leave out snapshots that change or delete rows.
    """

    identifier: str
    catalog: str | Mapping[str, str] | None = field(repr=False)
    filesystem: pafs.FileSystem | None = field(repr=False)
    snapshot_id: int | datetime | None
    ref: str | None
    follows: bool
    skips: bool

    @property
    def name(self) -> str:
        """The identifier, without secrets."""
        return masked(self.identifier)

    @property
    def is_static(self) -> bool:
        """True if the table is a file of metadata, in which nothing new appears."""
        return self.identifier.endswith(".metadata.json")

    @property
    def is_fixed(self) -> bool:
        """True if there is a snapshot, or nothing new can come."""
        return self.snapshot_id is not None or self.is_static

    def pin(self) -> Pinned:
        """Look at the table; see :meth:`Table.pin`.

        Raises:
            SourceError: there is no such table or snapshot.
            NotBuiltError: the table has features that are not read.
        """
        table = self._load()
        if table.metadata.format_version > _NEWEST:
            raise NotBuiltError(
                f"{self.name} is of version {table.metadata.format_version} of Iceberg's format",
                have=f"up to version {_NEWEST}",
                remedy=_SPARK,
            )
        newest = self._newest(table)
        chosen = newest if self.snapshot_id is None else self._chosen(table)
        schema = table.schema()
        is_tag = self.ref is not None and table.metadata.refs[self.ref].snapshot_ref_type == "tag"
        if chosen is not None and not self.follows and (is_tag or self.snapshot_id is not None):
            schema = table.schemas().get(chosen.schema_id, schema)
        arrow, unread = table_schema(schema)
        unread = {**unread_partitions(schema, table.specs().values(), arrow), **unread}
        filesystem = self.filesystem or self._filesystem(table, table.location())
        names = table.name_mapping()
        mapping = None
        if names is not None:
            mapping = tuple(each.model_dump(by_alias=True) for each in names.root)
        return Pinned(
            str(table.metadata.table_uuid),
            _id(chosen),
            _id(newest),
            arrow,
            Files(self._path(table.location()), filesystem),
            names=mapping,
            unread=unread,
            replaces=False,
        )

    def first(self, after: int | str, pinned: Pinned) -> int:
        """Return the snapshot after which changes are read; see :meth:`Table.first`."""
        if isinstance(after, str):
            return pinned.latest
        return after

    def snapshot(self, pinned: Pinned, columns: Sequence[str]) -> list[TableFile]:
        """Return the files of the pinned snapshot; see :meth:`Table.snapshot`."""
        if pinned.version == EMPTY:
            return []
        table = self._load()
        if table.snapshot_by_id(pinned.version) is None:
            raise self._gone(pinned.version)
        tasks = self._planned(table.scan(snapshot_id=pinned.version))
        return self._files(table, tasks, pinned.version, pinned, columns)

    def changes(self, pinned: Pinned, after: int, until: int | None) -> tuple[int, list[TableFile]]:
        """Return the files that snapshots have appended; see :meth:`Table.changes`."""
        table = self._load()
        if str(table.metadata.table_uuid) != pinned.table:
            raise SourceError(f"{self.name} was made anew", remedy=_ANEW)
        newest = self._newest(table) if until is None else table.snapshot_by_id(until)
        snapshots = self._between(table, after, newest)
        if not snapshots:
            return after, []
        if until is None and not table_schema(table.schema())[0].equals(
            pinned.schema, check_metadata=True
        ):
            raise SourceError(
                f"{self.name} has other columns since snapshot {after}",
                asked=", ".join(pinned.schema.names),
                have=", ".join(each.name for each in table.schema().fields),
                remedy="start the job again with the same checkpoints: it goes on with the new columns",
            )
        files: list[TableFile] = []
        for each in snapshots:
            files += self._appended(table, each, pinned)
        return _id(newest), files

    def _between(self, table: Any, after: int, newest: Any) -> list[Any]:
        """Return the snapshots after one, in their order.

        Raises:
            SourceError: the one is not an ancestor of the newest one, or not any more.
        """
        from pyiceberg.table.snapshots import ancestors_of  # noqa: PLC0415 - optional

        snapshots: list[Any] = []
        for each in ancestors_of(newest, table.metadata):
            if each.snapshot_id == after:
                return snapshots[::-1]
            snapshots.append(each)
        if after == EMPTY and (not snapshots or snapshots[-1].parent_snapshot_id is None):
            return snapshots[::-1]
        raise self._gone(after)

    def _appended(self, table: Any, snapshot: Any, pinned: Pinned) -> list[TableFile]:
        """Return the files that one snapshot has appended.

        Raises:
            SourceError: the snapshot changes or deletes rows.
        """
        operation = "overwrite" if snapshot.summary is None else snapshot.summary.operation.value
        if operation == "replace":
            return []  # the same rows in other files
        if operation != "append":
            if self.skips:
                return []
            raise SourceError(
                f"snapshot {snapshot.snapshot_id} of {self.name} deletes or changes rows that may have been read",
                asked=f"the rows that snapshots after {snapshot.parent_snapshot_id} have added",
                have=f"operation {operation}",
                remedy=f"skip_change_commits=True, which leaves out this snapshot · {_ANEW}",
                details={"version": snapshot.snapshot_id},
            )
        scan = table.incremental_append_scan(
            from_snapshot_id_exclusive=snapshot.parent_snapshot_id,
            to_snapshot_id_inclusive=snapshot.snapshot_id,
        )
        return self._files(table, self._planned(scan), snapshot.snapshot_id, pinned, ())

    def _files(
        self,
        table: Any,
        tasks: Iterable[Any],
        version: int,
        pinned: Pinned,
        columns: Sequence[str],
    ) -> list[TableFile]:
        schema, specs = self._schema_of(table, pinned), table.specs()
        filesystem = pinned.files.filesystem
        defaults = default_values(schema, pinned.schema)
        deletes = PositionDeletes(filesystem, self._path)
        files = []
        for task in tasks:
            file = task.file
            if file.file_format.name != "PARQUET" or file.key_metadata is not None:
                what = "encrypted" if file.key_metadata is not None else file.file_format.name
                raise NotBuiltError(
                    f"{self.name} has a data file that is {what}",
                    asked=file.file_path,
                    have="Parquet is read, without encryption",
                    remedy=_SPARK,
                )
            if self.filesystem is None:
                self._check_place(table, file.file_path, filesystem)
            spec = specs[file.spec_id]
            values = {**defaults, **partition_values(schema, spec, file, pinned.schema)}
            files.append(
                TableFile(
                    self._path(file.file_path),
                    file.file_size_in_bytes,
                    version,
                    values,
                    deletes.left_out(file.file_path, file.record_count, task.delete_files),
                    bounds_of(schema, file, pinned.schema, columns),
                )
            )
        return files

    def _schema_of(self, table: Any, pinned: Pinned) -> Any:
        """Return PyIceberg's schema with the pinned columns."""
        for schema in (table.schema(), *table.schemas().values()):
            if table_schema(schema)[0].equals(pinned.schema, check_metadata=True):
                return schema
        raise SourceError(
            f"{self.name} does not have the columns any more that it had", remedy=_ANEW
        )

    def _planned(self, scan: Any) -> list[Any]:
        try:
            return list(scan.plan_files())
        except (ValueError, NotImplementedError) as error:
            if "equality delete" not in str(error):
                raise
            raise NotBuiltError(
                f"{self.name} has equality deletes, which PyIceberg does not read",
                remedy=f"{_SPARK} · rewrite_data_files with delete-file-threshold=1",
            ) from error

    def _load(self) -> Any:
        """Return PyIceberg's table as it is now."""
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - optional
        from pyiceberg.table import StaticTable  # noqa: PLC0415

        try:
            if self.is_static:
                properties = self.catalog if isinstance(self.catalog, Mapping) else {}
                return StaticTable.from_metadata(self.identifier, dict(properties))
            if isinstance(self.catalog, Mapping):
                properties = dict(self.catalog)
                catalog = load_catalog(properties.pop("name", None), **properties)
            else:
                catalog = load_catalog(self.catalog)
            with catalog:
                return catalog.load_table(self.identifier)
        except Exception as error:  # of any catalog
            text = str(error).strip().partition("\n")[0]
            raise SourceError(
                f"{self.name} cannot be loaded as an Iceberg table: {type(error).__name__}: {text}",
                asked=f"table {self.name!r}",
                remedy='catalog="name of one in .pyiceberg.yaml" · catalog={"name": "lake", "type": "sql", "uri": ...}',
            ) from error

    def _newest(self, table: Any) -> Any:
        if self.ref is None:
            return table.current_snapshot()
        if self.ref not in table.metadata.refs:
            raise SourceError(
                f"{self.name} has no branch or tag {self.ref!r}",
                asked=f"ref={self.ref!r}",
                have=", ".join(sorted(table.metadata.refs)),
            )
        return table.snapshot_by_name(self.ref)

    def _chosen(self, table: Any) -> Any:
        chosen = self.snapshot_id
        if isinstance(chosen, datetime):
            snapshot = table.snapshot_as_of_timestamp(int(chosen.timestamp() * 1000))
        else:
            snapshot = table.snapshot_by_id(chosen)
        if snapshot is None:
            raise SourceError(
                f"{self.name} has no snapshot {chosen}",
                asked=f"{chosen}",
                have=", ".join(str(each.snapshot_id) for each in table.snapshots()[-5:]),
                remedy="a snapshot of table.snapshots()",
            )
        return snapshot

    def _filesystem(self, table: Any, location: str) -> pafs.FileSystem:
        """Return pyarrow's file system of a location, with the properties of the catalog."""
        from pyiceberg.io.pyarrow import PyArrowFileIO  # noqa: PLC0415 - optional

        io = table.io if isinstance(table.io, PyArrowFileIO) else PyArrowFileIO(table.io.properties)
        scheme, place, _ = io.parse_location(location, io.properties)
        return pafs.LocalFileSystem() if scheme == "file" else io.fs_by_scheme(scheme, place)

    def _check_place(self, table: Any, location: str, filesystem: pafs.FileSystem) -> None:
        """Refuse a file elsewhere than the table's folder.

        Raises:
            NotBuiltError: it is in another file system.
        """
        if _scheme(location) == _scheme(table.location()):
            return
        if self._filesystem(table, location) != filesystem:
            raise NotBuiltError(
                f"{self.name} has files in another file system", have=location, remedy=_SPARK
            )

    @staticmethod
    def _path(location: str) -> str:
        """Return the path of a location in its file system."""
        from pyiceberg.io.pyarrow import PyArrowFileIO  # noqa: PLC0415 - optional

        return str(PyArrowFileIO.parse_location(location)[2])

    def _gone(self, snapshot: int) -> SourceError:
        return SourceError(
            f"{self.name} does not have snapshot {snapshot} any more",
            asked=f"the snapshots after {snapshot}",
            have="it was expired, or the table was rolled back",
            remedy=f"{_ANEW} · keep snapshots longer: history.expire.max-snapshot-age-ms",
        )


def _id(snapshot: Any) -> int:
    return EMPTY if snapshot is None else int(snapshot.snapshot_id)


def _scheme(location: str) -> str:
    return location.partition("://")[0] if "://" in location else ""
