"""Looks into the footers of Parquet files: does pyarrow read from them what Spark reads?

Files of one writer have the same columns and notes, so a table of many thousands has few layouts. Each is compared
with Spark's columns once. The footer of a local file is remembered for as long as its size and time are the same.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from headgate.spark.plan.read_auto.columns import Layout
from headgate.spark.plan.read_auto.scan import Unsure
from headgate.spark.plan.read_auto.skipping import check_writer

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    import pyarrow as pa
    import pyarrow.fs as pafs

    from headgate.source.files.footer import Footer
    from headgate.source.files.listing import KnownFiles
    from headgate.source.files.split import ListedFile
    from headgate.spark.plan.read_auto.columns import Leaf, Unmarked

#: Most files whose footers are read while the plan is made: about 50 microseconds each.
_MOST: Final = 100_000
#: Most files with days and times that have to be looked at: up to a millisecond each.
_MOST_OLD: Final = 2_000
_THREADS: Final = 8
#: Local files that a thread reads at once.
_AT_ONCE: Final = 64
#: Encodings that pyarrow reads whoever wrote them.
_PLAIN_ENCODINGS: Final = {"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
#: Writers of whose files pyarrow reads the other encodings too; of DuckDB's it fails for whole numbers.
_ENCODERS: Final = ("parquet-mr", "parquet-cpp-arrow", "parquet-rs")
#: Beginnings of footers with which a footer is compared.
_MOST_BEGINNINGS: Final = 16


@dataclass(frozen=True, slots=True)
class _Known:
    """A footer that was read.

    Attributes:
        layout: columns and notes, one object for all files that have the same.
        row_groups: number of row groups.
        recent: numbers of leaves that are known to have no old days.
    """

    layout: Layout
    row_groups: int
    recent: frozenset[int] = frozenset()


class _Footers:
    """Footers of files that do not change."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[ListedFile, _Known] = {}
        self._layouts: dict[Hashable, Layout] = {}
        self._beginnings: deque[bytes] = deque(maxlen=_MOST_BEGINNINGS)

    def get(self, file: ListedFile) -> _Known | None:
        return self._files.get(file)

    def add(self, file: ListedFile, footer: Footer) -> _Known:
        """Remember the footer of a file."""
        with self._lock:
            beginning = next(filter(footer.begins_with, self._beginnings), None)
            if beginning is None:
                beginning = footer.beginning
                self._beginnings.append(beginning)
        metadata = footer.metadata
        notes = frozenset((metadata.metadata or {}).items())
        encoding = _encoding(footer)
        key = (beginning, notes, metadata.created_by, encoding)
        with self._lock:
            if len(self._files) >= 2 * _MOST:
                self._files.clear()
                self._layouts.clear()
            if key not in self._layouts:
                self._layouts[key] = Layout.of(footer, encoding)
            entry = self._files[file] = _Known(self._layouts[key], metadata.num_row_groups)
        return entry

    def set_recent(self, file: ListedFile, entry: _Known, leaves: Iterable[int]) -> None:
        """Remember that some leaves of a file have no old days."""
        self._files[file] = replace(entry, recent=entry.recent.union(leaves))


_FOOTERS: Final = _Footers()


def checked(
    filesystem: pafs.FileSystem,
    paths: Sequence[str],
    columns: pa.Schema,
    unmarked: Unmarked,
    nan_column: str = "",
    *,
    widens: bool = False,
) -> KnownFiles:
    """Return the files, if pyarrow reads from these columns of all of them what Spark reads.

    Args:
        filesystem: has the files.
        paths: of the files.
        columns: columns that are read, with the types in which Spark gives them to Python.
        unmarked: files that do not say which version of Spark wrote them.
        nan_column: column that a filter keeps at NaN; empty if there is none.
        widens: True if the types of files may be narrower, since the table's were widened.

    Raises:
        Unsure: It may not, or there are too many files.
    """
    import pyarrow.fs as pafs  # noqa: PLC0415 - slow to import

    from headgate.source.files.listing import KnownFiles, listed  # noqa: PLC0415 - imports pyarrow

    if len(paths) > _MOST:
        raise Unsure(f"it has {len(paths)} files, and up to {_MOST} are looked at")
    if len(set(paths)) < len(paths):
        raise Unsure("it reads a file twice")
    # Buckets of several stores may have the same name.
    is_local = isinstance(filesystem, pafs.LocalFileSystem)
    footers = _FOOTERS if is_local else _Footers()
    files = listed(filesystem, paths)
    entries = _read_new(filesystem, files, footers, _AT_ONCE if is_local else 1)
    doubtful: dict[Layout, list[tuple[str, Leaf]]] = {}
    look: list[tuple[ListedFile, _Known, list[tuple[str, Leaf]]]] = []
    for file, footer in zip(files, entries, strict=True):
        leaves = doubtful.get(footer.layout)
        if leaves is None:
            try:
                if nan_column:
                    check_writer(footer.layout.created_by, nan_column)
                leaves = footer.layout.doubtful_leaves(columns, unmarked, widens=widens)
                doubtful[footer.layout] = leaves
            except Unsure as reason:
                raise Unsure(f"{reason} ({file.path})", reason.remedy) from reason
        leaves = [pair for pair in leaves if pair[1].number not in footer.recent]
        if leaves:
            look.append((file, footer, leaves))
    if len(look) > _MOST_OLD:
        raise Unsure(
            f"{len(look)} of its files may have days before the Gregorian calendar, and {_MOST_OLD} are looked at"
        )
    for file, footer, leaves in look:
        _check_days(file.path, _footer(filesystem, file), leaves)
        footers.set_recent(file, footer, (leaf.number for _, leaf in leaves))
    parts = [
        replace(file, parts=footer.row_groups) for file, footer in zip(files, entries, strict=True)
    ]
    return KnownFiles(filesystem, parts)


def _read_new(
    filesystem: pafs.FileSystem, files: Sequence[ListedFile], footers: _Footers, at_once: int
) -> list[_Known]:
    """Return what the footers of files say; reads those that are not remembered, some at once in each thread."""

    def read(chunk: Sequence[ListedFile]) -> None:
        for file in chunk:
            footers.add(file, _footer(filesystem, file))

    new = [file for file in files if footers.get(file) is None]
    chunks = [new[first : first + at_once] for first in range(0, len(new), at_once)]
    if len(chunks) > 1:
        with ThreadPoolExecutor(_THREADS) as pool:
            for _ in pool.map(read, chunks):
                pass
    elif chunks:
        read(chunks[0])
    return [footers.get(file) or footers.add(file, _footer(filesystem, file)) for file in files]


def _footer(filesystem: pafs.FileSystem, file: ListedFile) -> Footer:
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    from headgate.source.files.footer import Footer  # noqa: PLC0415 - imports pyarrow

    try:
        return Footer.read(filesystem, file.path, file.size)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise Unsure(f"{file.path} cannot be read: {error}") from error


def _encoding(footer: Footer) -> str:
    """Return an encoding in a file by which pyarrow may fail; empty if there is none."""
    metadata = footer.metadata
    if (metadata.created_by or "").startswith(_ENCODERS):
        return ""
    for number in range(metadata.num_row_groups):
        group = footer.row_group(number)
        for column in range(metadata.num_columns):
            others = sorted({*group.column(column).encodings} - _PLAIN_ENCODINGS)
            if others:
                return str(others[0])
    return ""


def _check_days(path: str, footer: Footer, leaves: Sequence[tuple[str, Leaf]]) -> None:
    """Raise Unsure unless no value is so old that calendars differ."""
    for number in range(footer.metadata.num_row_groups):
        try:
            group = footer.row_group(number)
        except ValueError as error:
            raise Unsure(f"{path} cannot be read: {error}") from error
        for name, leaf in leaves:
            chunk = group.column(leaf.number)
            stats = chunk.statistics
            if chunk.num_values == 0 or (stats and stats.null_count == chunk.num_values):
                continue
            if stats is None or not stats.has_min_max or _is_old(stats.min):
                raise Unsure(
                    f"column {name!r} of {path} may have days before the Gregorian calendar"
                )


def _is_old(value: Any) -> bool:
    from headgate.source.files.calendar import FIRST_DAY, FIRST_TIME  # noqa: PLC0415 - imports pyarrow

    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=value.tzinfo or dt.UTC) < FIRST_TIME
    return not isinstance(value, dt.date) or value < FIRST_DAY
