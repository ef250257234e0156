"""Windows in event time, of a fixed length or with gaps between, for batches of rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from headgate._arguments import refuse, span, whole_number
from headgate._times import millis_of, scale_of
from headgate.errors import StateError, UnsupportedTypeError
from headgate.stream.state.types import column_index

if TYPE_CHECKING:
    from headgate.stream.state.table import Slots

#: The latest time, in ms: a window and its lateness later, a time is an int64 still.
_FARTHEST: Final = 1 << 61


def millis(of: timedelta | str) -> int:
    """Return a duration in whole milliseconds."""
    length = of if isinstance(of, timedelta) else span("duration", of)
    return length // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class TumblingWindow:
    """Windows that follow each other. They start at multiples of their size since 1970.

    >>> TumblingWindow("5 minutes").size
    datetime.timedelta(seconds=300)

    Attributes:
        size: length, at least a millisecond: ``"5 minutes"``, or a ``timedelta``, which it becomes.
        offset: shift of the starts.
    """

    size: timedelta | str
    offset: timedelta | str = timedelta(0)

    def __post_init__(self) -> None:
        """Refuse a length that is not positive."""
        _as_spans(self, "size", "offset")


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """Windows that overlap: a row is in about ``size / slide`` of them.

    Attributes:
        size: length, at least a millisecond: ``"5 minutes"``, or a ``timedelta``, which it becomes.
        slide: time from the start of one window to that of the next.
        offset: shift of the starts.
    """

    size: timedelta | str
    slide: timedelta | str
    offset: timedelta | str = timedelta(0)

    def __post_init__(self) -> None:
        """Refuse a length or a slide that is not positive, and rows between two windows."""
        _as_spans(self, "size", "slide", "offset")
        if millis(self.slide) > millis(self.size):
            raise refuse(
                "slide",
                self.slide,
                f"is longer than size={self.size!r}, so some rows would be in no window",
                "at most size",
                "a shorter slide · a filter() before the window, to leave out rows on purpose",
            )


@dataclass(frozen=True, slots=True)
class SessionWindow:
    """Windows of rows that are at most a gap apart, as in Flink. A window ends a gap after its last row.

    Attributes:
        gap: at least a millisecond: ``"5 minutes"``, or a ``timedelta``, which it becomes.
    """

    gap: timedelta | str

    def __post_init__(self) -> None:
        """Refuse a gap that is not positive."""
        _as_spans(self, "gap")


@dataclass(frozen=True, slots=True)
class CountWindow:
    """Windows of a number of rows of a key, in the order in which they arrive, as in Flink.

    Attributes:
        n: number of rows of a window.
        slide: rows from one window to the next; the first windows have fewer than ``n`` if it is less. By default ``n``.
    """

    n: int
    slide: int | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that are not positive, and rows between two windows."""
        whole_number("n", self.n, 1)
        if self.slide is not None and whole_number("slide", self.slide, 1) > self.n:
            raise refuse(
                "slide",
                self.slide,
                f"is more than n={self.n}, so some rows would be in no window",
                "at most n",
                "a smaller slide",
            )

    @property
    def step(self) -> int:
        """Rows from one window to the next."""
        return self.n if self.slide is None else self.slide


@dataclass(frozen=True, slots=True)
class WindowOutput:
    """The output of a window operator for a batch or a watermark.

    Attributes:
        results: a batch for closed windows, and for those that got late rows after they were closed.
        late: the rows of the input that came too late for all of their windows.
    """

    results: pa.RecordBatch
    late: pa.RecordBatch


def _as_spans(window: Any, *names: str) -> None:
    """Make lengths of time of a window's attributes; all but the offset are positive."""
    for name in names:
        value = getattr(window, name)
        if name != "offset" or not isinstance(value, timedelta):
            value = span(name, value, int(name != "offset"))
        object.__setattr__(window, name, value)


def windows_per_row(window: TumblingWindow | SlidingWindow) -> int:
    """Return the most windows that a row is in."""
    slide = window.slide if isinstance(window, SlidingWindow) else window.size
    return max(1, -(-millis(window.size) // millis(slide)))


def assign(window: TumblingWindow | SlidingWindow, times: Slots) -> tuple[Slots, Slots]:
    """Return the rows of all pairs of a row and a window, and the starts of the windows.

    Args:
        window: the kind of windows.
        times: time of each row in milliseconds.
    """
    size, offset = millis(window.size), millis(window.offset)
    slide = millis(window.slide) if isinstance(window, SlidingWindow) else size
    last = times - (times - offset) % slide
    starts = last[:, None] - slide * np.arange(windows_per_row(window))
    rows, places = np.nonzero(starts + size > times[:, None])
    return rows, starts[rows, places]


def check_times(schema: pa.Schema, name: str) -> pa.DataType:
    """Return the type of a column of times.

    Raises:
        UnknownColumnError: no column, or more than one, has the name.
        UnsupportedTypeError: the column has no times.
    """
    of = schema.field(column_index(schema, name, "a column of times, {}")).type
    if scale_of(of) is None:
        is_number = pa.types.is_integer(of) or pa.types.is_floating(of)
        target = "pa.int64()), of milliseconds since 1970" if is_number else 'pa.timestamp("ms"))'
        raise UnsupportedTypeError(
            f"column {name!r} of times is of type {of}, which has none",
            have="timestamps of any unit, dates, or int64 of milliseconds since 1970",
            remedy=f"map() that makes it a column of times: pc.cast(batch[{name!r}], {target}",
        )
    return of


def times_of(column: pa.Array, name: str) -> Slots:
    """Return times as milliseconds since 1970, rounded down.

    Args:
        column: the times.
        name: of the column, for errors.

    Raises:
        StateError: a time is null, or so far from 1970 that the end of its window is no int64.
        UnsupportedTypeError: the column has no times.
    """
    if column.null_count:
        raise StateError(
            "a row has no time",
            have=f"null in {column.null_count} of {len(column)} rows of column {name!r}",
            remedy=f"filter(pc.field({name!r}).is_valid()) · map() that gives these rows a time",
        )
    times = np.asarray(millis_of(column).to_numpy())
    beyond = np.flatnonzero((times > _FARTHEST) | (times < -_FARTHEST))
    if len(beyond):
        raise StateError(
            f"a row has the time {times[beyond[0]]} ms in column {name!r}, which no window contains",
            have=f"times up to {_FARTHEST} ms before and after 1970",
            remedy="filter the rows with such times · integers are milliseconds, not microseconds",
        )
    return times


def coded(keys: Slots, times: Slots) -> Slots:
    """Return numbers that are in the order of their keys, and of one key in the order of the times.

    Args:
        keys: small numbers, not negative.
        times: as many.
    """
    least, most = int(times.min(initial=0)), int(times.max(initial=0))
    span = most - least + 1
    if span * (int(keys.max(initial=0)) + 1) < 1 << 62:
        return keys * span + (times - least)
    # Times far apart: their ranks.
    values, ranks = np.unique(times, return_inverse=True)
    codes: Slots = keys * len(values) + ranks
    return codes
