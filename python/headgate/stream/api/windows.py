"""Windows of a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from headgate._arguments import refuse, span, takes
from headgate.errors import StateError
from headgate.stream.api.checks import OPERATOR, check_window, refuse_changes
from headgate.stream.api.event_time import check_watermarks
from headgate.stream.api.stream_calls import StreamCalls, StreamT
from headgate.stream.graph.nodes import Edge, Shipping
from headgate.stream.operators.windowed import LATE, ClockOperator, PanesOperator, WindowedOperator
from headgate.stream.windows.aggregates import WINDOW_END
from headgate.stream.windows.kinds import CountWindow, SessionWindow, SlidingWindow, TumblingWindow
from headgate.stream.windows.partials import PANE

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.stream.windows.aggregates import Aggregate, WindowFunction
    from headgate.stream.windows.top import Top


class WindowStep(NamedTuple):
    """An operator to add.

    Attributes:
        kind: what it is called without a name.
        name: of the operator; None for its kind and a number.
        make: makes it.
        schema: of its rows.
        parallelism: number of its tasks; None for that of the stream before it.
    """

    kind: str
    name: str | None
    make: Callable[[], Any]
    schema: pa.Schema
    parallelism: int | None


@dataclass(frozen=True, slots=True)
class WindowCall:
    """The arguments of :meth:`DataStream.window`."""

    window: TumblingWindow | SlidingWindow | SessionWindow | CountWindow
    time: str | None
    aggregates: Sequence[Aggregate]
    function: WindowFunction | None
    top: Top | None
    allowed_lateness: timedelta | str
    early: timedelta | str | None
    parallelism: int | None
    name: str | None

    def steps(self, schema: pa.Schema, keys: Sequence[str]) -> list[WindowStep]:
        """Return the operators, of which the first has the side output of late rows.

        Args:
            schema: of the stream.
            keys: of the stream; none for windows of all rows.

        Raises:
            HeadgateError: as :meth:`DataStream.window` has it.
        """
        aggregates = check_window(
            self.window, self.time, self.aggregates, self.function, self.top, schema
        )
        lateness = span("allowed_lateness", self.allowed_lateness)
        window = self.window
        arguments: dict[str, Any] = {
            "window": window,
            "time": self.time,
            "allowed_lateness": lateness,
        }
        if self.early is not None:
            arguments["early"] = self._early_millis(window, aggregates)
        if isinstance(window, CountWindow) and (self.time is not None or lateness):
            raise StateError(
                "a window of a number of rows has no times",
                have=f"time={self.time!r}, allowed_lateness={lateness}",
                remedy="CountWindow(100) without time= and allowed_lateness=",
            )
        if self.time is None and lateness:
            raise StateError(
                "no row is late for a window of processing time",
                have=f"allowed_lateness={lateness}, time=None",
                remedy='time="at" for event time · no allowed_lateness=',
            )
        if self.top is None or not aggregates:
            arguments |= {"aggregates": aggregates, "top": self.top}
            return self._windows(schema, keys, self.name, arguments)
        has_common_windows = bool(keys) and not lateness and self.time is not None
        if isinstance(window, (SessionWindow, CountWindow)) or not has_common_windows:
            raise self._no_top_of_results(keys, lateness)
        steps = self._windows(schema, keys, self.name, arguments | {"aggregates": aggregates})
        # The results of one window, of all tasks, come with a time that is in a window of their own.
        size = slide = span("size", window.size)
        if isinstance(window, SlidingWindow):
            slide = span("slide", window.slide)
        offset = span("offset", window.offset) + size % slide
        arguments |= {"window": TumblingWindow(slide, offset), "time": WINDOW_END}
        arguments |= {"top": self.top, "of_windows": True}
        name = None if self.name is None else f"{self.name}-top"
        return steps + self._windows(steps[-1].schema, (), name, arguments)

    def _windows(
        self, schema: pa.Schema, keys: Sequence[str], name: str | None, arguments: dict[str, Any]
    ) -> list[WindowStep]:
        """Return the operators of windows of rows."""
        # The checks of two phases are those of one, by the rows as they come.
        is_by_clock = arguments["time"] is None and not isinstance(self.window, CountWindow)
        operator = ClockOperator if is_by_clock else WindowedOperator
        whole = partial(operator, schema, self.function, keys=keys, **arguments)
        result = whole().result_schema()
        has_one_phase = isinstance(self.window, (SessionWindow, CountWindow))
        if keys or self.function is not None or has_one_phase:
            parallelism = self.parallelism if keys else self._one_task()
            return [WindowStep("window", name, partial(whole, result), result, parallelism)]
        panes = partial(PanesOperator, schema, **arguments)
        partials = panes().result_schema()
        time = None if is_by_clock else PANE
        arguments = arguments | {"keys": (), "time": time, "partials_of": schema}
        merge = partial(operator, partials, None, result, **arguments)
        first = None if name is None else f"{name}-panes"
        return [
            WindowStep("panes", first, panes, partials, self.parallelism),
            WindowStep("window", name, merge, result, 1),
        ]

    def _early_millis(self, window: Any, aggregates: Sequence[Aggregate]) -> int:
        is_fixed = isinstance(window, (TumblingWindow, SlidingWindow))
        if not is_fixed or not aggregates or self.top is not None:
            raise StateError(
                "early= is for aggregates of tumbling and sliding windows",
                have=f"{window}, {len(aggregates)} aggregates, top={self.top}",
                remedy='window(TumblingWindow("1h"), time="at", aggregates=[...], early="1s")',
            )
        return span("early", self.early, 1) // timedelta(milliseconds=1)

    def _one_task(self) -> int:
        if self.parallelism not in {None, 1}:
            raise refuse(
                "parallelism",
                self.parallelism,
                "is more than the one task that windows of all rows have",
                "1, for a function, sessions or windows of a number of rows without keys",
                'key_by("user") before window() · aggregates= of fixed windows',
            )
        return 1

    def _no_top_of_results(self, keys: Sequence[str], lateness: timedelta) -> StateError:
        reason = "late rows change results that were compared already"
        if not keys:
            reason = "there is one result of all rows in each window"
        elif isinstance(self.window, (SessionWindow, CountWindow)):
            reason = "several keys have no such windows in common"
        elif self.time is None:
            reason = "tasks close windows of processing time each by its own clock"
        return StateError(
            f"top= of the results of aggregates= has nothing to choose from: {reason}",
            have=f"keys {list(keys)}, {self.window}, allowed_lateness={lateness}",
            remedy='key_by("item").window(TumblingWindow("1h"), ...) without allowed_lateness=',
        )


class WindowCalls(StreamCalls[StreamT]):
    """A stream, as far as it has windows."""

    @takes(**OPERATOR)
    def window(
        self,
        window: TumblingWindow | SlidingWindow | SessionWindow | CountWindow,
        *,
        time: str | None = None,
        aggregates: Sequence[Aggregate] = (),
        function: WindowFunction | None = None,
        top: Top | None = None,
        allowed_lateness: timedelta | str = timedelta(0),
        early: timedelta | str | None = None,
        parallelism: int | None = None,
        name: str | None = None,
    ) -> StreamT:
        """Collect rows in windows: those of each key, or all rows of a stream without keys.

        The side output ``"late"`` has the rows that came too late. Without keys one task has the windows. Aggregates of
        fixed windows are made in two phases: the tasks before it aggregate their own rows, and a row is late by the
        watermark of its task. For a function and for sessions, all rows go to the one task.

        Args:
            window: the kind of windows.
            time: name of the column of event times, as the watermarks have it. None for processing time, which the clock of
                the task with the windows says: no row is late. None for ``CountWindow``, too.
            aggregates: columns of the result.
            function: makes the result of a batch of closed windows and their rows.
            top: the first rows of each window, of each key; with ``aggregates``, the first results of each window, of all
                keys. Results then have all columns of the rows.
            allowed_lateness: time after the end of a window in which rows still change its result.
            early: processing time after which open windows that have got rows emit the aggregates so far. The results are
                changes then: their last column is ``_change_type``.
            parallelism: number of tasks; without keys, of those that aggregate their own rows.
            name: of the operator. Without keys, the first phase is called so with ``-panes``.

        Raises:
            OptionError: an argument has a value that it does not take.
            StateError: both aggregates and a function, or none of aggregates, function and first rows; a filter of an
                aggregate that does not fit; first results of windows that several keys do not share.
            UnknownColumnError: a column that the stream does not have.
            StreamError: a source of the stream never ends and makes no watermarks, so that no window would ever close;
                the rows are changes.
            UserFunctionError: the function failed without windows.
        """
        refuse_changes("window()", self.schema, "window() of the rows before they are aggregated")
        if time is not None:
            check_watermarks(name or "window()", self._edges)
        call = WindowCall(
            window, time, aggregates, function, top, allowed_lateness, early, parallelism, name
        )
        inputs = self._edges if self._keys else _each_row_once(self._edges)
        schema, nodes = self.schema, []
        for kind, operator, make, result, tasks in call.steps(schema, self._keys):
            late = {LATE: schema}
            nodes.append(self._add(kind, operator, make, result, tasks, late, inputs=inputs))
            inputs, schema = (Edge(nodes[-1]),), result
        nodes[-1].has_windows = time is not None
        results = self._of(*inputs)
        results._further_outputs[LATE] = Edge(nodes[0], LATE)  # noqa: SLF001 - of a base
        return results


def _each_row_once(edges: Sequence[Edge]) -> list[Edge]:
    """Return edges by which each row goes to one task, also behind ``broadcast()``."""
    ways = {Shipping.BROADCAST: Shipping.FORWARD}
    return [replace(edge, shipping=ways.get(edge.shipping, edge.shipping)) for edge in edges]
