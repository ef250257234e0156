"""The source of Iceberg tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, Self

from headgate._arguments import flag, whole_number
from headgate._arguments import text as checked_text
from headgate._kinds import kind_of
from headgate.source.arguments import Texts, refuse
from headgate.source.iceberg.table import IcebergTable
from headgate.source.tables import TableSource
from headgate.source.tables.choice import after_of, need, time_of

if TYPE_CHECKING:
    import pyarrow.compute as pc
    import pyarrow.fs as pafs

_OPTIONS: Final = (
    *("table", "catalog", "snapshotId", "timestamp", "ref", "after", "skipChangeCommits"),
    *("columns", "splitSize", "batchRows", "discoveryInterval"),
)
_CATALOG: Final = "catalog."


class IcebergSource(TableSource):
    """The rows of a snapshot of an Iceberg table, or also those that later snapshots append.

    Without ``discovery_interval`` the source ends with the snapshot that it looked up when its schema was asked for
    first, so all tasks and all actions read the same one. With it the source has no end: it reads the snapshot, then the
    files that each later one appends. A snapshot that only rewrites files adds none. One that deletes or changes rows is an
    error, unless ``skip_change_commits`` says otherwise.

    Columns are found by their ids, rows under positional deletes and deletion vectors are left out. Equality deletes,
    data files other than Parquet, and types that are not known are refused. Executors need no PyIceberg.

    Args:
        table: the table's name in the catalog, such as ``"sales.orders"``, or the location of a file of its metadata.
        catalog: the name of a catalog in PyIceberg's configuration, or its properties, with its ``name`` if that is not
            ``"default"``; by default PyIceberg's.
        snapshot_id: the snapshot to read; by default the newest.
        timestamp: reads the snapshot of that time instead: a ``datetime`` with a zone, or such a text.
        ref: the branch or tag to read; by default the main branch.
        after: reads no snapshot, but what the snapshots after this one have appended; -1 for all, ``"latest"`` for those
            to come.
        skip_change_commits: True to leave out each later snapshot that deletes or changes rows, with the rows that it adds.
        columns: names of the columns to read, in order; by default all. Or a mapping of names to expressions over
            all columns, such as ``{"id": pc.field("number")}``.
        filter: every row for which it is not true is dropped. Files are left out whose partition or limits say
            that no row passes.
        filesystem: the file system of pyarrow that the tasks read with; None for that of the catalog's properties.
        split_size: largest size of a split (``"64m"``), unless a file cannot be cut so small.
        batch_rows: rows in a batch, at most; by default about 4 MiB.
        discovery_interval: seconds (or ``"5s"``) between two looks for new snapshots; None to end.

    Raises:
        OptionError: an argument is outside its limits, or contradicts another one.
        PackageNotFound: pyiceberg is not installed.
    """

    def __init__(
        self,
        table: str,
        *,
        catalog: str | Mapping[str, str] | None = None,
        snapshot_id: int | None = None,
        timestamp: datetime | str | None = None,
        ref: str | None = None,
        after: int | str | None = None,
        skip_change_commits: bool = False,
        columns: Sequence[str] | Mapping[str, pc.Expression] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - as pyarrow calls it
        filesystem: pafs.FileSystem | None = None,
        split_size: str | int = "64m",
        batch_rows: int | None = None,
        discovery_interval: str | float | None = None,
    ) -> None:
        need("pyiceberg", "iceberg", self)
        if not isinstance(catalog, str | Mapping | None):
            takes = 'the name of a catalog, or {"type": "sql", "uri": ...}'
            raise refuse("catalog", catalog, f"is {kind_of(catalog)}", takes)
        if snapshot_id is not None:
            whole_number("snapshot_id", snapshot_id, 0)
        chosen = [name for name in (snapshot_id, timestamp, ref) if name is not None]
        if len(chosen) > 1:
            raise refuse(
                "snapshot_id", snapshot_id, "is not alone", "one of snapshot_id, timestamp and ref"
            )
        of_table = IcebergTable(
            checked_text("table", table, '"sales.orders"'),
            dict(catalog) if isinstance(catalog, Mapping) else catalog,
            filesystem,
            snapshot_id if timestamp is None else time_of(timestamp),
            ref,
            discovery_interval is not None or after is not None,
            flag("skip_change_commits", skip_change_commits),
        )
        if of_table.is_static and discovery_interval is not None:
            wrong = "contradicts a file of metadata, in which nothing new appears"
            raise refuse("discovery_interval", discovery_interval, wrong, "None")
        super().__init__(
            of_table,
            columns=columns,
            filter=filter,
            split_size=split_size,
            batch_rows=batch_rows,
            discovery_interval=discovery_interval,
            after=after,
        )

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Return the source that string options describe; ``table`` is required.

        The names are those of the arguments in lower camel case: ``catalog`` (a name), ``snapshotId``, ``timestamp``,
        ``ref``, ``after``, ``skipChangeCommits``, ``columns``, ``splitSize``, ``batchRows``, ``discoveryInterval``; and
        properties of a catalog after ``catalog.``, such as ``catalog.uri``.

        Raises:
            OptionError: an option is unknown or malformed, or there is no table.
        """
        catalog = {
            name[len(_CATALOG) :]: text
            for name, text in options.items()
            if name.casefold().startswith(_CATALOG)
        }
        plain = {
            name: text for name, text in options.items() if not name.casefold().startswith(_CATALOG)
        }
        texts = Texts(cls.__name__, plain, _OPTIONS)
        name = texts.text("catalog")
        properties = {"name": name, **catalog} if name else catalog
        return cls(
            texts.text("table"),
            catalog=properties if catalog else name,
            snapshot_id=texts.integer("snapshotId"),
            timestamp=texts.text("timestamp"),
            ref=texts.text("ref"),
            after=texts.get("after", after_of, None, 'a snapshot or "latest"'),
            skip_change_commits=texts.boolean("skipChangeCommits", False),
            columns=texts.texts("columns"),
            split_size=texts.text("splitSize", "64m"),
            batch_rows=texts.integer("batchRows"),
            discovery_interval=texts.text("discoveryInterval"),
        )
