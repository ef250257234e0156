"""Days and times that Arrow reads as other ones: Spark's by the calendar before 1582, and INT96 of far years."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping
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
#: Microseconds since 1970 of the years 1 to 9999 in any zone, up to the first that is too large. Pyarrow 26 takes INT96 before the
#: year -4712 and after 287396 for other times: it reads the number of a day without its sign. Ones of around the year
#: -63000 become ones of these years; to tell them each value would have to be read twice.
_YEARS: Final = (-62_135_683_200_000_000, 253_402_387_200_000_000)


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
class DoubtfulTimes:
    """The kinds of values of a file that Arrow may read as others.

    Attributes:
        old_days: True if dates may count by the old calendar.
        old_times: True if timestamps with a zone may.
        int96: True if timestamps with a zone have 96 bits.
    """

    old_days: bool
    old_times: bool
    int96: bool

    @classmethod
    def of(cls, metadata: Any) -> Self:
        """Return those of a file by pyarrow's metadata."""
        notes, schema = metadata.metadata or {}, metadata.schema
        # A writer writes all of its timestamps in one way.
        int96 = any(schema.column(n).physical_type == "INT96" for n in range(len(schema)))
        old_days = is_of_today(notes, is_int96=False) is False
        old_times = is_of_today(notes, is_int96=int96) is False
        return cls(old_days, old_times, int96)

    def refuse(self, batch: pa.RecordBatch, path: str) -> pa.RecordBatch:
        """Return a batch, if Arrow has read all its days and times as they are.

        Raises:
            SchemaMismatchError: it may have read one as another.
        """
        if not (self.old_days or self.old_times or self.int96):
            return batch
        for field, column in zip(batch.schema, batch.columns, strict=True):
            doubt = next(self._doubts(column), None)
            if doubt is not None:
                problem, have = doubt
                raise SchemaMismatchError(
                    f"column {field.name!r} of {path} has {problem}",
                    asked=f"{field.name} {field.type}",
                    have=have,
                    remedy='spark.read.parquet(path) with read="spark", for Spark reads them · write the file again by Spark 3 or newer',
                    details={"path": path, "column": field.name},
                )
        return batch

    def _doubts(self, column: pa.Array) -> Iterator[tuple[str, str]]:
        """Yield problems with the values of a column, and how they came to be."""
        kind = column.type
        if pt.is_struct(kind) or pt.is_map(kind) or pt.is_list(kind) or pt.is_large_list(kind):
            if pt.is_map(kind):
                parts = [column.keys, column.items]
            else:
                parts = column.flatten() if pt.is_struct(kind) else [column.flatten()]
            for part in parts:
                yield from self._doubts(part)
            return
        first: dt.date | None = None
        is_time = pt.is_timestamp(kind) and kind.tz is not None
        if pt.is_date(kind) and self.old_days:
            first = FIRST_DAY
        elif is_time and self.old_times:
            first = FIRST_TIME
        if first is not None and pc.any(pc.less(column, pa.scalar(first, kind))).as_py():
            yield (
                f"values before {first:%Y-%m-%d} in the calendar of Spark 2",
                "a file that Spark 2 wrote, or a later one in the mode LEGACY",
            )
        if is_time and self.int96:
            limits = pc.min_max(column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())).as_py()
            least, most = limits["min"], limits["max"]
            if least is not None and not _YEARS[0] <= least <= most < _YEARS[1]:
                yield (
                    "times of 96 bits outside of the years 1 to 9999, and pyarrow takes some of these for others",
                    "INT96",
                )
