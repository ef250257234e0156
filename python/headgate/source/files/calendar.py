"""Days and times that Spark wrote by the calendar before 1582, which Arrow reads as other ones."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headgate.errors import SchemaMismatchError

_VERSION: Final = b"org.apache.spark.version"
#: The note of the old calendar, and the first version of Spark that writes times by today's unless it says otherwise:
#: for dates and timestamps, and for INT96.
_OTHERS: Final = (b"org.apache.spark.legacyDateTime", (3, 0))
_INT96: Final = (b"org.apache.spark.legacyINT96", (3, 1))
#: First day, and first time in all zones, that are the same in both calendars.
FIRST_DAY: Final = dt.date(1582, 10, 15)
FIRST_TIME: Final = dt.datetime(1900, 1, 1, tzinfo=dt.UTC)


def is_of_today(notes: Mapping[bytes, bytes], *, is_int96: bool) -> bool | None:
    """Return True if days and times count by today's calendar, and False if they may count by the old one.

    Returns None if no version of Spark has written the file. Times without a zone always count by today's.

    Args:
        notes: key-value metadata of a Parquet file.
        is_int96: True for INT96, False for dates and other timestamps.
    """
    legacy, first = _INT96 if is_int96 else _OTHERS
    if legacy in notes:
        return False
    if _VERSION not in notes:
        return None
    version = re.match(rb"(\d+)\.(\d+)", notes[_VERSION])
    return version is not None and (int(version[1]), int(version[2])) >= first


@dataclass(frozen=True, slots=True)
class OldTimes:
    """The kinds of values of a file that may count by the old calendar.

    Attributes:
        days: True if dates may.
        times: True if timestamps with a zone may.
    """

    days: bool
    times: bool

    @classmethod
    def of(cls, metadata: Any) -> Self:
        """Return those of a file by pyarrow's metadata."""
        notes, schema = metadata.metadata or {}, metadata.schema
        # A writer writes all of its timestamps in one way.
        is_int96 = any(schema.column(n).physical_type == "INT96" for n in range(len(schema)))
        return cls(*(is_of_today(notes, is_int96=it) is False for it in (False, is_int96)))

    def refuse(self, batch: pa.RecordBatch, path: str) -> pa.RecordBatch:
        """Return a batch, if all its days and times are the same in both calendars.

        Raises:
            SchemaMismatchError: there is an older one.
        """
        for field, column in zip(batch.schema, batch.columns, strict=True):
            first = self._first_older(column)
            if first is not None:
                raise SchemaMismatchError(
                    f"column {field.name!r} of {path} has values before {first:%Y-%m-%d} in the calendar of Spark 2",
                    asked=f"{field.name} {field.type}",
                    have="a file that Spark 2 wrote, or a later one in the mode LEGACY",
                    remedy="spark.read.parquet(path), which converts them · write the file again by Spark 3 or newer",
                    details={"path": path, "column": field.name},
                )
        return batch

    def _first_older(self, column: pa.Array) -> dt.date | None:
        """Return the first day of today's calendar if a value in a column is older; None if there is none."""
        kind = column.type
        if pt.is_struct(kind) or pt.is_map(kind) or pt.is_list(kind) or pt.is_large_list(kind):
            if pt.is_map(kind):
                parts = [column.keys, column.items]
            else:
                parts = column.flatten() if pt.is_struct(kind) else [column.flatten()]
            older = (self._first_older(part) for part in parts)
            return next((first for first in older if first is not None), None)
        first: dt.date
        if pt.is_date(kind) and self.days:
            first = FIRST_DAY
        elif pt.is_timestamp(kind) and kind.tz is not None and self.times:
            first = FIRST_TIME
        else:
            return None
        return first if pc.any(pc.less(column, pa.scalar(first, kind))).as_py() else None
