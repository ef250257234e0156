"""Looks into the footers of Parquet files: does pyarrow read from them what Spark reads?"""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from headgate.spark.plan.read_auto.scan import Unsure

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs as pafs

    from headgate.source.files.footer import Footer

#: Most files whose footers are read while the plan is made.
_MOST: Final = 1_000
_THREADS: Final = 8
#: Before these, files that Spark has not written may count their days in the Julian calendar.
_FIRST_DAY: Final = dt.date(1582, 10, 15)
_FIRST_TIME: Final = dt.datetime(1900, 1, 1, tzinfo=dt.UTC)
_SPARK: Final = b"org.apache.spark.version"
_LEGACY: Final = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


def check(filesystem: pafs.FileSystem, paths: list[str], columns: pa.Schema) -> None:
    """Return if pyarrow reads from these columns of all files what Spark reads.

    Args:
        filesystem: has the files.
        paths: of the files.
        columns: columns that are read, with the types in which Spark gives them to Python.

    Raises:
        Unsure: It may not, a name has a pattern in it, or there are too many files.
    """
    if len(paths) > _MOST:
        raise Unsure(f"it has {len(paths)} files, and 1 to {_MOST} are looked at")
    for path in paths:
        if set(path) & set("*?[]{}"):
            raise Unsure(f"the name {path} looks like a pattern")
    for field in columns:
        _check_type(field)
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(lambda path: _check_file(filesystem, path, columns), paths):
            pass


def _check_type(field: pa.Field) -> None:
    import pyarrow.types as pt  # noqa: PLC0415 - slow to import

    if pt.is_nested(field.type):
        raise Unsure(f"column {field.name!r} has the nested type {field.type}")


def _check_file(filesystem: pafs.FileSystem, path: str, columns: pa.Schema) -> None:
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    from headgate.source.files.footer import Footer  # noqa: PLC0415 - imports pyarrow

    try:
        footer = Footer.at(filesystem, path)
        schema = footer.metadata.schema.to_arrow_schema()
    except (OSError, pa.ArrowException) as error:
        raise Unsure(f"{path} cannot be read: {error}") from error
    spellings: dict[str, list[str]] = {}
    for name in schema.names:
        spellings.setdefault(name.casefold(), []).append(name)
    leaves = footer.metadata.schema
    leaf_numbers = {leaves.column(number).path: number for number in range(len(leaves))}
    for field in columns:
        spelt = spellings.get(field.name.casefold())
        if spelt is None:
            continue  # null in both
        if spelt != [field.name]:
            raise Unsure(f"{path} has the columns {', '.join(spelt)} for {field.name!r}")
        if field.name not in leaf_numbers:
            raise Unsure(f"column {field.name!r} is nested in a file")
        kind, leaf = schema.field(field.name).type, leaf_numbers[field.name]
        if not _is_alike(kind, field.type) or leaves.column(leaf).physical_type == "INT96":
            raise Unsure(f"column {field.name!r} is {kind} in {path}, and {field.type} in Spark")
        if pa.types.is_temporal(kind):
            _check_calendar(path, footer, leaf, field.name)


def _is_alike(in_file: pa.DataType, in_spark: pa.DataType) -> bool:
    import pyarrow.types as pt  # noqa: PLC0415

    if pt.is_timestamp(in_file) and pt.is_timestamp(in_spark):
        return in_file.unit in {"ms", "us"} and (in_file.tz is None) == (in_spark.tz is None)
    if pt.is_large_string(in_file) or pt.is_large_binary(in_file):
        is_wanted = pt.is_string if pt.is_large_string(in_file) else pt.is_binary
        return bool(is_wanted(in_spark))
    return bool(in_file.equals(in_spark))


def _check_calendar(path: str, footer: Footer, leaf: int, name: str) -> None:
    """Raise Unsure unless all values count by today's calendar: Spark wrote them so, or none is old."""
    metadata = footer.metadata.metadata or {}
    is_legacy = any(key in metadata for key in _LEGACY)
    if not is_legacy and metadata.get(_SPARK, b"") >= b"3":
        return
    for number in range(footer.metadata.num_row_groups):
        try:
            group = footer.row_group(number)
        except ValueError as error:
            raise Unsure(f"{path} cannot be read: {error}") from error
        stats = group.column(leaf).statistics
        if group.num_rows == 0 or (stats is not None and stats.null_count == group.num_rows):
            continue
        if stats is None or not stats.has_min_max or _is_old(stats.min):
            raise Unsure(f"column {name!r} of {path} may have days before the Gregorian calendar")


def _is_old(value: Any) -> bool:
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=value.tzinfo or dt.UTC) < _FIRST_TIME
    return not isinstance(value, dt.date) or value < _FIRST_DAY
