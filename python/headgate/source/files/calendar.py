"""Days and times that Spark wrote by the calendar before 1582, which Arrow reads as other ones."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headgate.errors import SchemaMismatchError

_VERSION: Final = b"org.apache.spark.version"
_LEGACY: Final = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
#: First version of Spark that writes all times by today's calendar, unless it says otherwise.
_TODAY: Final = (3, 1)
#: First day, and first time in all zones, that are the same in both calendars.
_FIRST_DAY: Final = dt.date(1582, 10, 15)
_FIRST_TIME: Final = dt.datetime(1900, 1, 1, tzinfo=dt.UTC)


def is_old(metadata: Mapping[bytes, bytes] | None) -> bool:
    """Return True if the metadata of a Parquet file says that it may have times of the old calendar."""
    entries = metadata or {}
    version = re.match(rb"(\d+)\.(\d+)", entries.get(_VERSION, b""))
    is_early = version is not None and (int(version[1]), int(version[2])) < _TODAY
    return is_early or any(key in entries for key in _LEGACY)


def refuse_old_times(batch: pa.RecordBatch, path: str) -> pa.RecordBatch:
    """Return the batch, if all its days and times are the same in both calendars.

    Raises:
        SchemaMismatchError: there is an older one.
    """
    for field, column in zip(batch.schema, batch.columns, strict=True):
        first: dt.date
        if pt.is_date(field.type):
            first = _FIRST_DAY
        elif pt.is_timestamp(field.type):
            first = _FIRST_TIME if field.type.tz else _FIRST_TIME.replace(tzinfo=None)
        else:
            continue
        if pc.any(pc.less(column, pa.scalar(first, field.type))).as_py():
            raise SchemaMismatchError(
                f"column {field.name!r} of {path} has values before {first:%Y-%m-%d} in the calendar of Spark 2",
                asked=f"{field.name} {field.type}",
                have="a file that Spark 2 wrote, or a later one in the mode LEGACY",
                remedy="spark.read.parquet(path), which converts them · write the file again by Spark 3 or newer",
                details={"path": path, "column": field.name},
            )
    return batch
