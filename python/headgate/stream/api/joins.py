"""Joins of two keyed streams: their arguments, and their operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headgate._arguments import one_of, refuse, span, text
from headgate._changes import CHANGE_TYPE, is_changing
from headgate._kinds import kind_of
from headgate.errors import StreamError
from headgate.stream.api.checks import wrong_stream
from headgate.stream.api.datastream import DataStream
from headgate.stream.api.event_time import check_watermarks
from headgate.stream.api.two_streams import check_same_keys, of_both, two_sides
from headgate.stream.operators.interval_join import Interval, IntervalJoinOperator
from headgate.stream.operators.joining import HOWS, LATE_SIDES, joined_columns
from headgate.stream.operators.regular_join import InnerJoinOperator
from headgate.stream.operators.temporal_join import TemporalJoinOperator
from headgate.stream.operators.window_join import WindowJoinOperator, window_fields
from headgate.stream.state.descriptors import StateTtlConfig
from headgate.stream.state.types import column_index, no_rows
from headgate.stream.windows.kinds import SlidingWindow, TumblingWindow, millis, times_of

_Streams: TypeAlias = tuple[DataStream, DataStream]
_TAKES_WITHIN = 'a length of time, or a pair of its start and end, such as ("-1h", "0s")'


def joined(
    left: DataStream,
    right: Any,
    *,
    within: Any,
    window: Any,
    as_of: Any,
    time: Any,
    how: Any,
    ttl: Any,
    suffixes: Any,
    parallelism: int | None,
    name: str | None,
) -> DataStream:
    """Return the join of two keyed streams; arguments as for :meth:`KeyedStream.join`."""
    if not (isinstance(right, DataStream) and right._keys):  # noqa: SLF001 - one package
        raise wrong_stream("join()", right, 'clicks.key_by("user").join(names.key_by("user"))')
    check_same_keys("join()", left, right)
    one_of(*HOWS)("how", how)
    kinds = {"within": within, "window": window, "as_of": as_of}
    kind, *others = [option for option, value in kinds.items() if value is not None] or [None]
    if others:
        raise refuse(others[0], kinds[others[0]], f"is there beside {kind}=", "None beside it")
    if time is not None and kind not in {"within", "window"}:
        raise refuse("time", time, "has no within= or window=", "None without them")
    if ttl is not None and kind is not None:
        raise refuse("ttl", ttl, f"has no meaning beside {kind}=", f"None beside {kind}=")
    streams = left, right
    for stream in streams:
        if is_changing(stream.schema):
            raise StreamError(
                "join() of a stream of changes",
                have=f"the column {CHANGE_TYPE}",
                remedy="join the rows before they are aggregated · filter() and drop the column",
            )
    if kind is None:
        timed = _without_times(how, ttl)
    else:
        timed = _TIMED[kind](kinds[kind], time, streams, how)
    sides = two_sides(*streams)
    columns = joined_columns(sides, how, _suffixes(suffixes), timed.columns)
    make = partial(timed.make, sides, columns, how)
    late = dict(zip(timed.late, sides.schemas, strict=False))
    if timed.has_watermarks:
        for stream in streams:
            check_watermarks(name or "join()", stream._edges)  # noqa: SLF001 - one package
    result = of_both("join", name, streams, sides, make, columns.schema, parallelism, late)
    result._edges[0].node.has_windows = timed.has_watermarks  # noqa: SLF001 - one package
    return result


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of join.

    Attributes:
        make: makes the operator, from both sides, the columns of the result and ``how``.
        late: side outputs of late rows.
        columns: of the result behind those of both sides.
        has_watermarks: True if rows wait for the watermark.
    """

    make: Callable[..., Any]
    late: tuple[str, ...] = LATE_SIDES
    columns: tuple[pa.Field, ...] = ()
    has_watermarks: bool = True


def _without_times(how: str, ttl: Any) -> _Kind:
    if how != "inner":
        raise refuse("how", how, "needs within= or window=", '"inner" without times')
    if ttl is not None and not isinstance(ttl, StateTtlConfig):
        ttl = StateTtlConfig(span("ttl", ttl, 1))
    return _Kind(partial(InnerJoinOperator, ttl), (), has_watermarks=False)


def _within(within: Any, time: Any, streams: _Streams, how: str) -> _Kind:  # noqa: ARG001 - as others
    times = _times("time", time, streams)
    return _Kind(partial(IntervalJoinOperator, _interval(within, times, streams[0].schema)))


def _window(window: Any, time: Any, streams: _Streams, how: str) -> _Kind:  # noqa: ARG001 - as others
    if not isinstance(window, (TumblingWindow, SlidingWindow)):
        raise refuse(
            "window",
            window,
            f"is {kind_of(window)}",
            "a TumblingWindow or a SlidingWindow",
            'TumblingWindow("1 minute") · within="30 minutes" for rows that are near each other',
        )
    times = _times("time", time, streams)
    columns = window_fields(streams[0].schema.field(times[0]).type)
    return _Kind(partial(WindowJoinOperator, window, times), columns=tuple(columns))


def _as_of(as_of: Any, time: None, streams: _Streams, how: str) -> _Kind:  # noqa: ARG001 - as others
    if how not in {"inner", "left"}:
        raise refuse("how", how, "asks for versions without rows", '"inner" or "left"')
    times = _times("as_of", as_of, streams)
    return _Kind(partial(TemporalJoinOperator, times), LATE_SIDES[:1])


_TIMED: Final = {"within": _within, "window": _window, "as_of": _as_of}


def _suffixes(suffixes: Any) -> tuple[str, str]:
    is_pair = isinstance(suffixes, (tuple, list)) and len(suffixes) == 2
    if not is_pair or not all(isinstance(suffix, str) for suffix in suffixes):
        raise refuse(
            "suffixes",
            suffixes,
            f"is {kind_of(suffixes)}",
            "a pair of texts",
            'suffixes=("", "_right")',
        )
    return suffixes[0], suffixes[1]


def _times(name: str, time: Any, streams: _Streams) -> tuple[str, str]:
    """Return the columns of times of both sides.

    Args:
        name: of the argument.
        time: its value.
        streams: both sides.

    Raises:
        OptionError: neither a name nor a pair of them.
        UnknownColumnError: a stream has no such column.
        UnsupportedTypeError: a column has no times.
    """
    names = (time, time) if isinstance(time, str) else time
    if not isinstance(names, (tuple, list)) or len(names) != 2:
        raise refuse(
            name,
            time,
            f"is {kind_of(time)}",
            "the column of times, or a pair of those of both sides",
            f'{name}="at" · {name}=("at", "paid_at")',
        )
    for column, stream in zip(names, streams, strict=True):
        _check_times(stream.schema, text(name, column))
    return names[0], names[1]


def _check_times(schema: pa.Schema, column: str) -> None:
    times_of(no_rows(schema).column(column_index(schema, column)))


def _interval(within: Any, times: tuple[str, str], left: pa.Schema) -> Interval:
    """Return the times that match.

    Raises:
        OptionError: no interval, or an empty one.
        UnknownColumnError: the left side has no column of the upper bound.
    """
    if isinstance(within, (str, timedelta)):
        length = millis(span("within", within))
        return Interval(times, -length, length)
    if not isinstance(within, (tuple, list)) or len(within) != 2:
        raise refuse("within", within, f"is {kind_of(within)}", _TAKES_WITHIN)
    lower = _signed(within[0])
    if isinstance(within[1], pc.Expression):
        column = _column_of(within[1], left)
        _check_times(left, column)
        return Interval(times, lower, column)
    upper = _signed(within[1])
    if upper < lower:
        raise refuse("within", within, "ends before it starts", _TAKES_WITHIN)
    return Interval(times, lower, upper)


def _signed(bound: Any) -> int:
    """Return a length of time in ms, which may be negative: "-1h"."""
    if isinstance(bound, timedelta):
        return millis(bound)
    is_negative = isinstance(bound, str) and bound.startswith("-")
    length = millis(span("within", bound[1:] if is_negative else bound))
    return -length if is_negative else length


def _column_of(expression: pc.Expression, schema: pa.Schema) -> str:
    """Return the column that an expression is.

    Raises:
        OptionError: it is no column of the schema.
    """
    names = [name for name in schema.names if expression.equals(pc.field(name))]
    if not names:
        raise refuse(
            "within",
            expression,
            "is no column of the left side",
            f"pc.field(name) as the end of the interval, of {', '.join(schema.names)}",
            'within=("0s", pc.field("expires"))',
        )
    return names[0]
