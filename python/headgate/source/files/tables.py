"""Folders of tables, whose files are not all of the table: those of deleted rows are there too."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow.fs as pafs

from headgate.errors import SourceError


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of table.

    Attributes:
        name: such as "a Delta table".
        mark: matches the path of a file or folder in the table's folder.
        place: the folder with that path, to look for in a folder above.
        remedy: a way to read the table.
    """

    name: str
    mark: re.Pattern[str]
    place: str
    remedy: str


_KINDS: Final = (
    _Kind(
        "a Delta table",
        re.compile(r"(?:^|(.*)/)_delta_log(?:/.*)?"),
        "_delta_log",
        'headgate.source.delta.DeltaSource(path) · option("source", "delta") · spark.read.format("delta")',
    ),
    _Kind(
        "an Iceberg table",
        re.compile(r"(?:^|(.*)/)metadata/[^/]*\.metadata\.json"),
        "metadata",
        'headgate.source.iceberg.IcebergSource(table, catalog=...) · spark.read.format("iceberg")',
    ),
    _Kind(
        "a Hudi table",
        re.compile(r"(?:^|(.*)/)\.hoodie(?:/.*)?"),
        ".hoodie",
        'spark.read.format("hudi")',
    ),
    _Kind(
        "the output of a streaming query of Spark",
        re.compile(r"(?:^|(.*)/)_spark_metadata(?:/.*)?"),
        "_spark_metadata",
        "FileSource(spark.read.parquet(path).inputFiles())",
    ),
)
#: A name of a folder in a table, above which the table may be.
_INSIDE: Final = re.compile(r"data|.*=.*")


def refuse_tables(folder: str, paths: Iterable[str]) -> None:
    """Refuse a folder with tables.

    Args:
        folder: the folder, for the error.
        paths: all files and folders below it.

    Raises:
        SourceError: there is a table.
    """
    for path in paths:
        for kind in _KINDS:
            match = kind.mark.fullmatch(path)
            if match:
                raise _error(kind, f"{folder.rstrip('/')}/{match[1]}" if match[1] else folder)


def refuse_inside_table(filesystem: Any, folder: str) -> None:
    """Refuse a folder of a table, such as that of a partition. May take long.

    Raises:
        SourceError: the folder belongs to a table.
    """
    above, _, name = folder.rstrip("/").rpartition("/")
    while above and _INSIDE.fullmatch(name):
        for kind in _KINDS:
            selector = pafs.FileSelector(f"{above}/{kind.place}", allow_not_found=True)
            below = (info.path[len(above) + 1 :] for info in filesystem.get_file_info(selector))
            if any(map(kind.mark.fullmatch, below)):
                raise _error(kind, above)
        above, _, name = above.rpartition("/")


def _error(kind: _Kind, folder: str) -> SourceError:
    return SourceError(
        f"{folder} is {kind.name}: its folder also has files with rows that are not in it",
        asked=folder,
        have="a folder as paths, which reads all files below it",
        remedy=kind.remedy,
        details={"path": folder},
    )
