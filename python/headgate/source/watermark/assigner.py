"""Timestamps of records, computed from a whole Arrow column at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headgate._matches import close_matches
from headgate._times import UNITS, scale_of
from headgate.errors import OptionError, UnknownColumnError, UnsupportedTypeError
from headgate.source.watermark.generator import MAX_WATERMARK, MIN_WATERMARK

#: A function from a batch to an Arrow array of timestamps, or of int64 ms, one per row.
TimestampFunction = Callable[[Any], Any]


#: Rows of which fewer are cheaper to compare in Python: a call of Arrow gives up Python's lock, and has to wait for it.
_FEW_ROWS: Final = 512


@dataclass(frozen=True, slots=True)
class TimestampAssigner:
    """Finds the latest timestamp of a batch, in ms since 1970 (UTC).

    Null timestamps do not count. A record that is not an Arrow batch or table keeps the timestamp
    that the source gave it.

    Attributes:
        column: a column of Arrow timestamps (any unit; without a time zone they count as UTC), dates or
            int64, or a function from a batch to such an array.
        unit: the unit of int64 values: "s", "ms", "us" or "ns".
    """

    column: str | TimestampFunction
    unit: str = "ms"

    def __post_init__(self) -> None:
        """Check that the column is a name or a function, and that the unit is known."""
        if not isinstance(self.column, str) and not callable(self.column):
            raise OptionError(
                f"with_timestamp_assigner({self.column!r}) names no column",
                have="a column's name or a function from a batch to an Arrow array",
                remedy='with_timestamp_assigner("event_time")',
            )
        unit: Any = self.unit
        if not isinstance(unit, str) or unit not in UNITS:
            raise OptionError(
                f"unit={self.unit!r} is no unit of time",
                have=" or ".join(f'"{unit}"' for unit in UNITS),
                remedy='unit="ms"',
            )

    def check(self, schema: pa.Schema) -> None:
        """Check that batches of a schema have a column of times of the name, if it is one.

        Raises:
            UnknownColumnError: they have no such column, or several.
            UnsupportedTypeError: the column has no times.
        """
        if isinstance(self.column, str):
            index = schema.get_field_index(self.column)
            if index < 0:
                raise self._unknown(self.column, schema.names)
            self._scale(schema.field(index).type)

    def __call__(self, record: Any, timestamp: int | None) -> int | None:
        """Return the latest timestamp of a record, or None if it has none.

        Args:
            record: the emitted record.
            timestamp: the source's own timestamp of the record, in ms.

        Raises:
            UnknownColumnError: the batch has no such column.
            UnsupportedTypeError: the column has no times.
        """
        if not isinstance(record, (pa.RecordBatch, pa.Table)):
            return timestamp
        if isinstance(self.column, str):
            index = record.schema.get_field_index(self.column)
            if index < 0:
                raise self._unknown(self.column, record.schema.names)
            values = record.column(index)
        else:
            values = self.column(record)
        return self._latest(values)

    def _latest(self, values: Any) -> int | None:
        kind = getattr(values, "type", None)
        multiply, divide = self._scale(kind, type(values).__name__)
        raw = _highest(values, kind)
        if raw is None:
            return None
        return max(MIN_WATERMARK, min(MAX_WATERMARK, raw * multiply // divide))

    def _scale(self, kind: pa.DataType | None, of: str = "") -> tuple[int, int]:
        """Return the factor and the divisor that make ms of values; ``of`` names what has no type of Arrow."""
        scale = None if kind is None else scale_of(kind, self.unit)
        if scale is None:
            raise self._unsupported(of if kind is None else str(kind))
        return scale

    def _unknown(self, name: str, names: list[str]) -> UnknownColumnError:
        near = close_matches(name, names)
        problem, remedy = "no column", " · ".join(f"with_timestamp_assigner({n!r})" for n in near)
        if name in names:
            problem = "more than one column"
            remedy = "with_timestamp_assigner(lambda batch: batch.column(0)), with the place of the right one"
        return UnknownColumnError(
            f"{problem} {name!r} in the batches of the source",
            asked=f"with_timestamp_assigner({name!r})",
            have=", ".join(names) or "no columns",
            remedy=remedy,
            details={"column": name, "columns": names, "close": near},
        )

    def _unsupported(self, have: str) -> UnsupportedTypeError:
        named = isinstance(self.column, str)
        what = f"column {self.column!r}" if named else "the result of the timestamp function"
        is_number = have.startswith(("int", "uint", "halffloat", "float", "double"))
        cast = 'cast("int64"), unit="s"' if is_number else 'cast("timestamp[ms]")'
        return UnsupportedTypeError(
            f"{what} is of type {have}, which is no Arrow type of timestamps",
            asked=f"with_timestamp_assigner({self.column!r})",
            have="a timestamp of any unit, a date, or int64",
            remedy=f'with_timestamp_assigner(lambda batch: batch["t"].{cast})',
            details={"column": self.column if named else "", "type": have},
        )


def _highest(values: Any, kind: pa.DataType) -> int | None:
    """Return the highest number of an array of times; None if all are null."""
    if len(values) < _FEW_ROWS and isinstance(values, pa.Array) and not values.null_count:
        if not len(values):
            return None
        width = 4 if pa.types.is_date32(kind) else 8
        first, end = values.offset * width, (values.offset + len(values)) * width
        data = memoryview(values.buffers()[1])[first:end]
        return max(data.cast("i") if width == 4 else data.cast("q"))
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import, and few readers need it

    latest = pc.max(values)
    # as_py() returns a datetime or date, which has no nanoseconds and ends with the year 9999.
    highest: int | None = latest.as_py() if pa.types.is_integer(kind) else latest.value
    return highest
