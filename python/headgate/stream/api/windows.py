"""The call of ``window()``: the operators that it adds to a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from headgate._arguments import refuse, span
from headgate.stream.api.checks import check_window
from headgate.stream.operators.windowed import PanesOperator, WindowedOperator
from headgate.stream.windows.kinds import SessionWindow, SlidingWindow, TumblingWindow
from headgate.stream.windows.partials import PANE

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.stream.windows.aggregates import Aggregate, WindowFunction


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

    window: TumblingWindow | SlidingWindow | SessionWindow
    time: str
    aggregates: Sequence[Aggregate]
    function: WindowFunction | None
    allowed_lateness: timedelta | str
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
        arguments = {
            "window": self.window,
            "time": self.time,
            "aggregates": check_window(
                self.window, self.time, self.aggregates, self.function, schema
            ),
            "allowed_lateness": span("allowed_lateness", self.allowed_lateness),
        }
        # The checks of two phases are those of one, by the rows as they come.
        whole = partial(WindowedOperator, schema, self.function, keys=keys, **arguments)
        result = whole().result_schema()
        if keys or self.function is not None or isinstance(self.window, SessionWindow):
            parallelism = self.parallelism if keys else self._one_task()
            return [WindowStep("window", self.name, partial(whole, result), result, parallelism)]
        panes = partial(PanesOperator, schema, **arguments)
        partials = panes().result_schema()
        name = None if self.name is None else f"{self.name}-panes"
        arguments |= {"keys": (), "time": PANE, "partials_of": schema}
        merge = partial(WindowedOperator, partials, None, result, **arguments)
        return [
            WindowStep("panes", name, panes, partials, self.parallelism),
            WindowStep("window", self.name, merge, result, 1),
        ]

    def _one_task(self) -> int:
        if self.parallelism not in {None, 1}:
            raise refuse(
                "parallelism",
                self.parallelism,
                "is more than the one task that windows of all rows have",
                "1, for a function or sessions without keys",
                'key_by("user") before window() · aggregates= of fixed windows',
            )
        return 1
