"""The base of all operators of windows: input, results, and the watermark that closes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa

from headgate._arguments import span
from headgate._times import milli_of
from headgate.errors import SchemaMismatchError, StateError
from headgate.stream.state.backend import KeyedStateBackend
from headgate.stream.state.groups import check_keys
from headgate.stream.state.timers import NO_WATERMARK
from headgate.stream.state.types import check_columns, column_index, no_rows
from headgate.stream.windows.aggregates import (
    WINDOW_END,
    WINDOW_START,
    Aggregate,
    Aggregates,
    WindowFunction,
)
from headgate.stream.windows.distinct import elements
from headgate.stream.windows.kinds import WindowOutput, check_times, millis, times_of
from headgate.stream.windows.top import Top, TopRows

if TYPE_CHECKING:
    from headgate.stream.state.table import Slots

#: Name of the column with the rows of a window.
ROWS: Final = "rows"
#: Most windows of a batch of results.
MOST_WINDOWS: Final = 1 << 14
#: The key of all rows of a stream without keys.
_EVERYTHING: Final = pa.schema([("everything", pa.int8())])
#: The kind of windows.
Kind = TypeVar("Kind")


class Windows(ABC, Generic[Kind]):
    """Windows by key. A subclass has one kind of them.

    The state is ``backend``, of which snapshots are taken; an operator over a restored backend continues. Rows are
    late, and timers fire, by the watermark that was given last; a restored operator has none.

    Args:
        schema: schema of the batches.
        keys: names of the key columns; without any, the windows are of all rows.
        time: name of the column of event times: timestamps of any unit, dates, or int64 of milliseconds since 1970.
            They are rounded down to milliseconds, and not null. None for processing time: rows have the time ``now``.
        window: the kind of windows.
        aggregates: columns of the results.
        function: makes the results of a batch of closed windows; their rows are kept. Called for no windows, too.
        top: the rows of each window that are its results, in place of aggregates.
        of_windows: True for rows that are results of windows: their time is that of the end of a window, and the last moment
            of it counts. The results have no other windows.
        allowed_lateness: time after the end of a window in which rows still change its result. Each batch with such rows
            emits the window again.
        partials_of: schema of the rows that were aggregated before; a batch then has a column for each accumulator.
        backend: a backend with the key columns and the namespace, as one that is restored; new if None.

    Attributes:
        watermark: the greatest so far, in ms.
        now: time of rows without a column of times, in ms.

    Raises:
        UnknownColumnError: the schema has no column of a name.
        UnsupportedTypeError: a column of a type that cannot be a key, a time or aggregated so.
        StateError: both aggregates and a function, or neither; a negative lateness; a backend of other keys.
    """

    #: The columns of the state beside the keys.
    namespace: ClassVar[pa.Schema]

    def __init__(
        self,
        schema: pa.Schema,
        *,
        keys: Sequence[str],
        time: str | None = None,
        window: Kind,
        aggregates: Sequence[Aggregate] = (),
        function: WindowFunction | None = None,
        top: Top | None = None,
        of_windows: bool = False,
        allowed_lateness: timedelta | str = timedelta(0),
        partials_of: pa.Schema | None = None,
        backend: KeyedStateBackend | None = None,
    ) -> None:
        if bool(aggregates) + (function is not None) + (top is not None) != 1:
            raise StateError(
                "a window has aggregates or a function or first rows",
                have=f"{len(aggregates)} aggregates, {'a' if function else 'no'} function, top={top}",
                remedy="one of aggregates=, function= and top=",
            )
        check_columns(schema)
        self._schema = schema
        self._keys = [column_index(schema, name) for name in keys]
        self._key_schema = key_schema_of(schema, keys)
        check_keys(self._key_schema)
        self._time = None if time is None else column_index(schema, time)
        self.now = 0
        self._aggregates = Aggregates(schema, aggregates, top=top, partials_of=partials_of)
        self._top, self._of_windows = top, of_windows
        # Partial results have the time of their pane.
        self._shift = int(of_windows and partials_of is None)
        names = [*keys, WINDOW_START, WINDOW_END]
        if top is not None:
            ours = [] if of_windows else [WINDOW_START, WINDOW_END]
            names = [*(partials_of or schema).names, *ours, *([top.rank] if top.rank else [])]
        _check_names(names, aggregates)
        self._function = function
        self._lateness = millis(span("allowed_lateness", allowed_lateness))
        self._row_type = pa.struct(list(schema))
        self._no_late = no_rows(schema)
        self._shown = shown_type(schema, time)
        self._window = window
        self.watermark = NO_WATERMARK
        key_schema = self._key_schema
        wanted = pa.schema([*key_schema, *self.namespace])
        if backend is not None and not backend.space.schema.equals(wanted):
            raise StateError(
                "the backend has other keys than the windows",
                asked=str(backend.space.schema.names),
                have=str(wanted.names),
                remedy="KeyedStateBackend(key_schema, namespace=...) as in a snapshot of this operator",
            )
        self.backend = backend or KeyedStateBackend(key_schema, namespace=self.namespace)
        self._declare()

    @abstractmethod
    def _declare(self) -> None:
        """Declare the state."""

    @property
    @abstractmethod
    def wake(self) -> int:
        """The watermark from which on there is something to do."""

    @abstractmethod
    def process(self, batch: pa.RecordBatch) -> WindowOutput:
        """Add the rows of a batch, of the operator's schema, to their windows.

        Returns:
            The new results of windows that were closed before, and the rows that are late for all windows.

        Raises:
            SchemaMismatchError: the batch has another schema.
            StateError: a row has no time, or its key belongs to another task.
        """

    def advance_watermark(self, watermark: int) -> WindowOutput:
        """Close the windows that end up to the watermark.

        Args:
            watermark: no row with this time or an earlier one follows; milliseconds since 1970. A smaller one than the
                last changes nothing.

        Returns:
            The results of the windows in order of their ends. :meth:`close_until` has them in parts.
        """
        first, *rest = self.close_until(watermark)
        if not rest:
            return first
        results = pa.concat_batches([first.results, *(output.results for output in rest)])
        return WindowOutput(results, first.late)

    def close_until(self, watermark: int) -> Iterator[WindowOutput]:
        """Close windows as :meth:`advance_watermark`, and yield the results in parts that fit in memory, at least one.

        Exhaust it before anything else is done with the operator.
        """
        self.watermark = max(self.watermark, milli_of(watermark))
        yield from self._close()

    @abstractmethod
    def _close(self) -> Iterator[WindowOutput]:
        """Emit and remove the windows that end up to the watermark; yield at least one output."""

    def _keys_of(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the key columns of a batch."""
        if not self._keys:
            return [pa.array(np.zeros(batch.num_rows, np.int8))]
        return [batch.column(at) for at in self._keys]

    def _times_of(self, batch: pa.RecordBatch) -> Slots:
        """Return the time of each row in milliseconds.

        Raises:
            SchemaMismatchError: the batch has another schema.
        """
        if not batch.schema.equals(self._schema):
            raise SchemaMismatchError(
                "the batch has another schema than the window operator",
                asked=str(batch.schema.types),
                have=str(self._schema.types),
            )
        if self._time is None:
            return np.full(batch.num_rows, self.now)
        return times_of(batch.column(self._time), self._schema.names[self._time]) - self._shift

    def _results(
        self, keys: Sequence[pa.Array], starts: Slots, ends: Slots, values: dict[str, pa.Array]
    ) -> pa.RecordBatch:
        """Return the results of windows: of the accumulators, or of ``rows`` by the function."""
        columns = {WINDOW_START: self._shown_as(starts), WINDOW_END: self._shown_as(ends)}
        if self._top is not None:
            return self._first_rows(self._top, columns, values[self._top.name])
        columns |= values if self._function else self._aggregates.results(values)
        names = self._key_schema.names if self._keys else []
        batch = pa.RecordBatch.from_arrays(
            [*keys[: len(names)], *columns.values()], names=[*names, *columns]
        )
        return batch if self._function is None else self._function(batch)

    def _first_rows(
        self, top: Top, windows: dict[str, pa.Array], lists: pa.ListArray
    ) -> pa.RecordBatch:
        """Return the rows of windows, of which each has a list."""
        owners, rows = elements(lists)
        columns = dict(zip(rows.type.names, rows.flatten(), strict=True))
        if not self._of_windows:
            columns |= {name: of.take(pa.array(owners)) for name, of in windows.items()}
        if top.rank is not None:
            columns[top.rank] = pa.array(TopRows(top).ranks(lists))
        return pa.RecordBatch.from_pydict(columns)

    def _shown_as(self, numbers: Slots) -> pa.Array:
        return pa.array(numbers, pa.int64()).view(self._shown)


def shown_type(schema: pa.Schema, time: str | None) -> pa.DataType:
    """Return the type of the starts and ends of windows.

    Args:
        schema: of the rows.
        time: name of their column of times; None for processing time.

    Raises:
        UnsupportedTypeError: the column has no times.
    """
    if time is None:
        return pa.timestamp("ms", "UTC")
    time_type = check_times(schema, time)
    zone = time_type.tz if pa.types.is_timestamp(time_type) else None
    return pa.int64() if pa.types.is_integer(time_type) else pa.timestamp("ms", zone)


def key_schema_of(schema: pa.Schema, keys: Sequence[str]) -> pa.Schema:
    """Return the key columns of windows; without keys all rows have one."""
    return pa.schema([schema.field(key) for key in keys]) if keys else _EVERYTHING


def _check_names(columns: Sequence[str], aggregates: Sequence[Aggregate]) -> None:
    """Check that no column of the result replaces another one.

    Raises:
        StateError: two have one name.
    """
    names = set(columns)
    if len(names) < len(columns):
        twice = next(name for name in columns if columns.count(name) > 1)
        raise StateError(
            f"two columns of the result have the name {twice!r}",
            have=", ".join(columns),
            remedy='rename the column in a map() before · Top(..., rank="another")',
        )
    for aggregate in aggregates:
        if aggregate.result in names:
            raise StateError(
                f"two columns of the result have the name {aggregate.result!r}",
                have=", ".join([*columns, *(other.result for other in aggregates)]),
                remedy=f'Aggregate({aggregate.kind!r}, {aggregate.column!r}, name="another")',
            )
        names.add(aggregate.result)
