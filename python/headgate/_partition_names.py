"""Names of folders with the value of a column, such as ``day=2026-01-31``: made as Spark makes them, and parsed. ADR 0053."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

#: The value of a null in the name of a folder.
NULL: Final = "__HIVE_DEFAULT_PARTITION__"
#: Readers ignore files and folders whose names start so.
HIDDEN: Final = ("_", ".")
#: Most bytes of a name in the file systems of Linux.
LONGEST: Final = 255
#: The characters that Spark's ``ExternalCatalogUtils.escapePathName`` escapes.
_ESCAPES: Final = {
    number: f"%{number:02X}" for number in (*range(1, 32), *map(ord, "\"#%'*/:=?\\{[]^\x7f"))
}


def partition_name(column: str, value: str | None) -> str:
    """Return the name of the folder for a value of a column; an empty text counts as a null."""
    return f"{column.translate(_ESCAPES)}={value.translate(_ESCAPES) if value else NULL}"


def parsed(name: str) -> tuple[str, str | None] | None:
    """Return column and value of a folder's name, with None for a null; None if it has no value of a column."""
    column, equals, value = name.partition("=")
    if not column or not equals:
        return None
    return unquote(column), None if value == NULL else unquote(value)


def is_partition(path: str) -> bool:
    """Return True if each part of a relative path is a visible folder with the value of a column."""
    return all(
        parsed(name) is not None and not name.startswith(HIDDEN) and "\0" not in name
        for name in path.split("/")
    )
