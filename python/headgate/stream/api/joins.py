"""Joins of two keyed streams: their arguments, and their operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headgate._arguments import one_of, refuse, span, takes, text
from headgate._changes import (
    CHANGE_TYPE,
    change_field,
    is_changing,
    upsert_keys,
    without_changes,
)
from headgate._kinds import kind_of
from headgate.errors import StreamError
from headgate.stream.api.checks import OPERATOR, check_suffixes, wrong_stream
from headgate.stream.api.event_time import check_watermarks
from headgate.stream.api.stream_calls import StreamCalls, StreamT
from headgate.stream.api.two_streams import check_same_keys, edges_of_both, two_sides
from headgate.stream.graph.nodes import Edge
from headgate.stream.operators.changing_join import ChangingJoinOperator
from headgate.stream.operators.interval_join import Interval, IntervalJoinOperator
from headgate.stream.operators.joining import HOWS, LATE_SIDES, joined_columns
from headgate.stream.operators.regular_join import InnerJoinOperator
from headgate.stream.operators.session_join import SessionJoinOperator
from headgate.stream.operators.temporal_join import TemporalJoinOperator
from headgate.stream.operators.window_join import WindowJoinOperator, window_fields
from headgate.stream.state.descriptors import StateTtlConfig
from headgate.stream.state.groups import check_keys
from headgate.stream.windows.kinds import (
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
    check_times,
    millis,
)

if TYPE_CHECKING:
    from headgate.stream.operators.joining import How
    from headgate.stream.operators.sides import Sides

#: A keyed stream: the edges to the operator that joins it.
_Rows: TypeAlias = Sequence[Edge]
_TAKES_WITHIN = 'a length of time, or a pair of its start and end, such as ("-1h", "0s")'


@dataclass(frozen=True, slots=True)
class Join:
    """The operator of a join.

    Attributes:
        make: makes it, for a task.
        sides: how the rows of both streams travel.
        schema: of the result.
        late: schemas of the side outputs of late rows.
        has_watermarks: True if rows wait for the watermark.
    """

    make: Callable[[], Any]
    sides: Sides
    schema: pa.Schema
    late: dict[str, pa.Schema]
    has_watermarks: bool


def join_of(
    left: _Rows,
    right: _Rows,
    *,
    within: Any,
    window: Any,
    as_of: Any,
    time: Any,
    how: Any,
    ttl: Any,
    suffixes: Any,
    name: str | None,
) -> Join:
    """Return the operator that joins two keyed streams; arguments as for :meth:`KeyedStream.join`."""
    check_same_keys("join()", left, right)
    one_of(*HOWS)("how", how)
    kinds = {"within": within, "window": window, "as_of": as_of}
    kind, *others = [*(option for option in kinds if kinds[option] is not None), ""]
    if others[:-1]:
        raise refuse(others[0], kinds[others[0]], f"is there beside {kind}=", "None beside it")
    if time is not None and kind not in {"within", "window"}:
        raise refuse("time", time, "has no within= or window=", "None without them")
    if ttl is not None and kind:
        raise refuse("ttl", ttl, f"has no meaning beside {kind}=", f"None beside {kind}=")
    schemas = left[0].schema, right[0].schema
    timed = _KINDS[kind](kinds.get(kind, ttl), time, schemas, how)
    sides = two_sides(left, right)
    columns = joined_columns(sides, how, check_suffixes(suffixes), timed.columns)
    if timed.has_watermarks:
        for edges in (left, right):
            check_watermarks(name or "join()", edges)
    make = partial(timed.make, sides, columns, how)
    late = dict(zip(timed.late, schemas, strict=False))
    return Join(make, sides, columns.schema, late, timed.has_watermarks)


_Schemas: TypeAlias = tuple[pa.Schema, pa.Schema]


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


def _whenever(ttl: Any, time: None, schemas: _Schemas, how: str) -> _Kind:  # noqa: ARG001 - as others
    """Return the join without times.

    Raises:
        OptionError: no time to live.
        StreamError: a stream whose changes lack the rows before them.
        UnsupportedTypeError: a column of changes of a type whose rows cannot be compared.
    """
    if ttl is not None and not isinstance(ttl, StateTtlConfig):
        ttl = StateTtlConfig(span("ttl", ttl, 1))
    changing = list(filter(is_changing, schemas))
    for schema in changing:
        if upsert_keys(schema) is not None:
            raise StreamError(
                "join() of a stream of upserts, of which rows are replaced without saying which",
                remedy="leave update_before=False out where the stream is made",
            )
        check_keys(without_changes(schema))
    if how == "inner" and not changing:
        return _Kind(partial(InnerJoinOperator, ttl), (), has_watermarks=False)
    make = partial(ChangingJoinOperator, ttl)
    return _Kind(make, (), (change_field(),), has_watermarks=False)


def _check_appended(schemas: _Schemas) -> None:
    """Check that no row of a stream is ever taken away.

    Raises:
        StreamError: one is of changes.
    """
    if any(map(is_changing, schemas)):
        raise StreamError(
            "join() with times of a stream of changes",
            have=f"the column {CHANGE_TYPE}",
            remedy="join() without times · join the rows before they are aggregated",
        )


def _within(within: Any, time: Any, schemas: _Schemas, how: str) -> _Kind:  # noqa: ARG001 - as others
    _check_appended(schemas)
    times = _times("time", time, schemas)
    return _Kind(partial(IntervalJoinOperator, _interval(within, times, schemas[0])))


def _window(window: Any, time: Any, schemas: _Schemas, how: str) -> _Kind:  # noqa: ARG001 - as others
    if not isinstance(window, (TumblingWindow, SlidingWindow, SessionWindow)):
        raise refuse(
            "window",
            window,
            f"is {kind_of(window)}",
            "a TumblingWindow, a SlidingWindow or a SessionWindow",
            'TumblingWindow("1 minute") · within="30 minutes" for rows that are near each other',
        )
    _check_appended(schemas)
    times = _times("time", time, schemas)
    columns = window_fields(schemas[0].field(times[0]).type)
    if isinstance(window, SessionWindow):
        return _Kind(partial(SessionJoinOperator, window, times), columns=tuple(columns))
    return _Kind(partial(WindowJoinOperator, window, times), columns=tuple(columns))


def _as_of(as_of: Any, time: None, schemas: _Schemas, how: str) -> _Kind:  # noqa: ARG001 - as others
    if how not in {"inner", "left"}:
        raise refuse("how", how, "asks for versions without rows", '"inner" or "left"')
    _check_appended(schemas)
    times = _times("as_of", as_of, schemas)
    return _Kind(partial(TemporalJoinOperator, times), LATE_SIDES[:1])


_KINDS: Final[dict[str, Callable[..., _Kind]]] = {
    "": _whenever,
    "within": _within,
    "window": _window,
    "as_of": _as_of,
}


def _times(name: str, time: Any, schemas: _Schemas) -> tuple[str, str]:
    """Return the columns of times of both sides.

    Args:
        name: of the argument.
        time: its value.
        schemas: of both sides.

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
    for column, schema in zip(names, schemas, strict=True):
        check_times(schema, text(name, column))
    return names[0], names[1]


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
        check_times(left, column)
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
    return str(names[0])


class JoinCalls(StreamCalls[StreamT]):
    """A keyed stream, as far as it can be joined with another one."""

    @takes(**OPERATOR)
    def join(
        self,
        other: JoinCalls[StreamT],
        *,
        within: timedelta
        | str
        | tuple[timedelta | str, timedelta | str | pc.Expression]
        | None = None,
        window: TumblingWindow | SlidingWindow | SessionWindow | None = None,
        as_of: str | tuple[str, str] | None = None,
        time: str | tuple[str, str] | None = None,
        how: How = "inner",
        ttl: StateTtlConfig | timedelta | str | None = None,
        suffixes: tuple[str, str] = ("", "_right"),
        parallelism: int | None = None,
        name: str | None = None,
    ) -> StreamT:
        """Join rows of this stream and another one that have one key. A null key matches nothing.

        The result has all columns of this stream, and behind them those of the other one but its keys. At most one of three
        arguments says which rows of a key match:

        - ``within=``: those whose times are near each other, as in Flink's interval join. State has the rows that a match may
          still come for. The watermark behind the join is later by the greater bound, so that the times of both sides are
          event times there.
        - ``window=``: those that are in one window, when it is over. The result ends with ``window_start`` and ``window_end``.
          A session is one of the rows of both sides.
        - ``as_of=``: each row of this stream with the version of its key in the other one that was valid at its time: the
          last one up to it. A row waits for the watermark, and so for its version.
        - None of them: all, whenever they come. State has all rows, or those of ``ttl``. If it is an outer join, or a stream
          has changes, the result has changes: its last column is ``_change_type``, with ``insert`` and ``delete``.

        With times, the side outputs ``"late"`` and ``"late_right"`` have the rows of each side that came too late to match:
        behind the watermark, or behind all of their windows. A version is never late: it is there for rows that follow.

        Args:
            other: keyed by columns of the same types.
            within: the time of the other row minus that of this one: from where to where, both inclusive, such as ``("-1h",
                "0s")``. ``"1h"`` is an hour either way. The end may be a column of this stream that has the last time itself:
                ``("0s", pc.field("expires"))``.
            window: the kind of windows.
            as_of: the column of event times in both streams; a pair if they have different ones.
            time: the column of event times for ``within=`` and ``window=``; a pair if the other stream has another one.
            how: ``"inner"``, ``"left"``, ``"right"`` or ``"full"``: the side whose rows without a match are emitted too, with
                nulls for the other: when none can come, or without times at once, and deleted when one comes. ``"inner"`` or
                ``"left"`` with ``as_of=``.
            ttl: time to live of rows in state without times: a config or a length of time.
            suffixes: what the columns of each side get behind a name that both sides have.
            parallelism: number of tasks.
            name: of the operator.

        Raises:
            OptionError: an argument has a value that it does not take.
            UnknownColumnError: a column that a stream does not have.
            UnsupportedTypeError: a column of times that has none, or one whose rows pyarrow cannot choose.
            StreamError: no keys, or keys of other types; two columns of the result with one name; times over a source that
                never ends and makes no watermarks; changes in a join with times; upserts.
        """
        if not isinstance(other, JoinCalls):
            raise wrong_stream("join()", other, 'clicks.key_by("user").join(names.key_by("user"))')
        join = join_of(
            self._edges,
            other._edges,
            within=within,
            window=window,
            as_of=as_of,
            time=time,
            how=how,
            ttl=ttl,
            suffixes=suffixes,
            name=name,
        )
        self._graph.absorb(other._graph)
        both = edges_of_both(self._graph, self._edges, other._edges, join.sides)
        node = self._add("join", name, join.make, join.schema, parallelism, join.late, inputs=both)
        node.has_windows = join.has_watermarks
        return self._of(Edge(node))
