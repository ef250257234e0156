"""The source of Delta tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, Self

from headgate._arguments import flag, path, whole_number
from headgate._locations import MaskedPath
from headgate.source.arguments import Texts, refuse
from headgate.source.delta.table import DeltaTable
from headgate.source.tables import TableSource
from headgate.source.tables.choice import after_of, need, time_of

if TYPE_CHECKING:
    import pyarrow.compute as pc
    import pyarrow.fs as pafs

_OPTIONS: Final = (
    *("path", "version", "timestamp", "after", "changes", "skipChangeCommits", "columns"),
    *("uri", "splitSize", "batchRows", "discoveryInterval"),
)
_STORAGE: Final = "storage."


class DeltaSource(TableSource):
    """The rows of a version of a Delta table, or also those that later versions add.

    Without ``discovery_interval`` the source ends with the version that it looked up when its schema was asked for
    first, so all tasks and all actions read the same version. With it the source has no end: it reads the version,
    then the files that each later version adds. A version that only rewrites files, such as ``OPTIMIZE``, adds none. One
    that deletes or changes rows is an error, unless ``changes`` or ``skip_change_commits`` says otherwise.

    Rows under deletion vectors are left out, columns are found by column mapping, and widened types are cast. A feature
    of Delta's protocol that is not known is refused by its name. Executors need no deltalake.

    Args:
        path: the table's folder: a local path, a URI, or a path of ``filesystem``.
        version: the version to read; by default the newest.
        timestamp: reads the newest version at that time instead: a ``datetime`` with a zone, or such a text.
        after: reads no version, but what the versions after this one have added; -1 for all versions, ``"latest"`` for
            those to come.
        changes: True to read the change data feed: each row with ``_change_type`` (``insert``, ``delete``,
            ``update_preimage``, ``update_postimage``), ``_commit_version`` and ``_commit_timestamp``.
        skip_change_commits: True to leave out each later version that deletes or changes rows, with the rows that it
            adds.
        columns: names of the columns to read, in order; by default all. Or a mapping of names to expressions over
            all columns, such as ``{"id": pc.field("number")}``.
        filter: every row for which it is not true is dropped. Files are left out whose partition or statistics say
            that no row passes.
        filesystem: the file system of pyarrow that the tasks read with; None for the path's own.
        uri: the table's address for deltalake, if it is not the path.
        storage_options: options of deltalake for object stores.
        split_size: largest size of a split (``"64m"``), unless a file cannot be cut so small.
        batch_rows: rows in a batch, at most; by default about 4 MiB.
        discovery_interval: seconds (or ``"5s"``) between two looks for new versions; None to end.

    Raises:
        OptionError: an argument is outside its limits, or contradicts another one.
        PackageNotFound: deltalake is not installed.
    """

    def __init__(
        self,
        path: str,
        *,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        after: int | str | None = None,
        changes: bool = False,
        skip_change_commits: bool = False,
        columns: Sequence[str] | Mapping[str, pc.Expression] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - as pyarrow calls it
        filesystem: pafs.FileSystem | None = None,
        uri: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        split_size: str | int = "64m",
        batch_rows: int | None = None,
        discovery_interval: str | float | None = None,
    ) -> None:
        need("deltalake", "delta", self)
        if version is not None:
            whole_number("version", version, 0)
            if timestamp is not None:
                raise refuse("timestamp", timestamp, "contradicts version=", "None with version=")
        if flag("skip_change_commits", skip_change_commits) and flag("changes", changes):
            raise refuse("skip_change_commits", True, "contradicts changes=True", "one of the two")
        table = DeltaTable(
            MaskedPath.of(path, filesystem),
            filesystem,
            None if uri is None else MaskedPath(uri),
            storage_options,
            version if timestamp is None else time_of(timestamp),
            discovery_interval is not None or after is not None,
            changes,
            skip_change_commits,
        )
        super().__init__(
            table,
            columns=columns,
            filter=filter,
            split_size=split_size,
            batch_rows=batch_rows,
            discovery_interval=discovery_interval,
            after=after,
        )

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Return the source that string options describe; ``path`` is required.

        The names are those of the arguments in lower camel case: ``version``, ``timestamp``, ``after``, ``changes``,
        ``skipChangeCommits``, ``columns``, ``uri``, ``splitSize``, ``batchRows``, ``discoveryInterval``; and
        ``storage_options`` after ``storage.``, such as ``storage.AWS_REGION``.

        Raises:
            OptionError: an option is unknown or malformed, or there is no path.
        """
        storage = {
            name[len(_STORAGE) :]: text
            for name, text in options.items()
            if name.casefold().startswith(_STORAGE)
        }
        plain = {
            name: text for name, text in options.items() if not name.casefold().startswith(_STORAGE)
        }
        texts = Texts(cls.__name__, plain, _OPTIONS)
        return cls(
            path("path", texts.text("path")),
            version=texts.integer("version"),
            timestamp=texts.text("timestamp"),
            after=texts.get("after", after_of, None, 'a version or "latest"'),
            changes=texts.boolean("changes", False),
            skip_change_commits=texts.boolean("skipChangeCommits", False),
            columns=texts.texts("columns"),
            uri=texts.text("uri"),
            storage_options=storage or None,
            split_size=texts.text("splitSize", "64m"),
            batch_rows=texts.integer("batchRows"),
            discovery_interval=texts.text("discoveryInterval"),
        )
