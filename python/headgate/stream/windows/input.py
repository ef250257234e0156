"""Input, timers and results of the operators of all windows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headgate._arguments import span
from headgate._times import scale_of
from headgate.errors import SchemaMismatchError, StateError, UnsupportedTypeError
from headgate.stream.state.backend import KeyedStateBackend
from headgate.stream.state.groups import check_keys
from headgate.stream.state.types import check_columns
from headgate.stream.windows.aggregates import (
    WINDOW_END,
    WINDOW_START,
    Aggregate,
    Aggregates,
    WindowFunction,
    column_index,
)
from headgate.stream.windows.kinds import millis, times_of

if TYPE_CHECKING:
    from headgate.stream.state.table import Mask, Slots
    from headgate.stream.state.timers import Timers

#: Name of the column with the rows of a window.
ROWS: Final = "rows"


class WindowInput:
    """The input, the timers and the results of a window operator.

    Args:
        schema: schema of the batches.
        keys: names of the key columns.
        time: name of the column of event times.
        aggregates: columns of the results, unless there is a function.
        function: makes the results of closed windows and their rows.
        allowed_lateness: time after the end of a window in which rows still change its result.

    Raises:
        UnknownColumnError: the schema has no column of a name.
        UnsupportedTypeError: a column of a type that cannot be a key, a time or aggregated so, or whose rows cannot
            be chosen.
        StateError: both aggregates and a function, or neither; a negative lateness.
    """

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        time: str,
        aggregates: Sequence[Aggregate],
        function: WindowFunction | None,
        allowed_lateness: timedelta | str,
    ) -> None:
        if bool(aggregates) == (function is not None):
            raise StateError(
                "a window has aggregates or a function",
                have=f"{len(aggregates)} aggregates and {'a' if function else 'no'} function",
                remedy="either aggregates= or function=",
            )
        check_columns(schema)
        self.schema = schema
        self._keys = [column_index(schema, name) for name in keys]
        self.key_schema = pa.schema([schema.field(at) for at in self._keys])
        check_keys(self.key_schema)
        self._time = column_index(schema, time)
        self.aggregates = Aggregates(schema, aggregates)
        _check_names([*keys, WINDOW_START, WINDOW_END], aggregates)
        self.function = function
        self.lateness = millis(span("allowed_lateness", allowed_lateness))
        self.row_type = pa.struct(list(schema))
        time_type = schema.field(time).type
        if scale_of(time_type) is None:
            raise UnsupportedTypeError(
                f"time={time!r} is a column of type {time_type}, which has no times",
                have="a timestamp of any unit, a date, or int64 of milliseconds since 1970",
                remedy='map() that casts it: pc.cast(batch["at"], pa.timestamp("ms"))',
            )
        zone = time_type.tz if pa.types.is_timestamp(time_type) else None
        is_number = pa.types.is_integer(time_type)
        self._shown = pa.int64() if is_number else pa.timestamp("ms", zone)

    def keys(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the key columns of a batch."""
        return [batch.column(at) for at in self._keys]

    def times(self, batch: pa.RecordBatch) -> Slots:
        """Return the time of each row in milliseconds.

        Raises:
            SchemaMismatchError: the batch has another schema.
        """
        if not batch.schema.equals(self.schema):
            raise SchemaMismatchError(
                "the batch has another schema than the window operator",
                asked=str(batch.schema.types),
                have=str(self.schema.types),
            )
        return times_of(batch.column(self._time))

    def register(self, timers: Timers, ends: Slots, watermark: int) -> Mask:
        """Register the timers that emit the windows of the current keys and forget them.

        Args:
            timers: of the backend.
            ends: exclusive ends of the windows, one per row of the current keys.
            watermark: the watermark of the operator.

        Returns:
            The windows that are closed already. They are emitted now, so they need no timer but the one that
            forgets them.
        """
        last = ends - 1
        closed: Mask = last <= watermark
        timers.register(np.where(closed, last + self.lateness, last))
        if self.lateness:
            timers.register(last + self.lateness)
        return closed

    def rows(self, batch: pa.RecordBatch) -> pa.StructArray:
        """Return the rows of a batch as structs."""
        return pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))

    def results(
        self, keys: Sequence[pa.Array], starts: Slots, ends: Slots, values: dict[str, pa.Array]
    ) -> pa.RecordBatch:
        """Return the results of windows: of the accumulators, or of ``rows`` by the function."""
        columns = {WINDOW_START: self._times(starts), WINDOW_END: self._times(ends)}
        columns |= values if self.function else self.aggregates.results(values)
        batch = pa.RecordBatch.from_arrays(
            [*keys, *columns.values()], names=[*self.key_schema.names, *columns]
        )
        return batch if self.function is None else self.function(batch)

    def _times(self, numbers: Slots) -> pa.Array:
        return pa.array(numbers, pa.int64()).view(self._shown)


def new_or_checked(
    backend: KeyedStateBackend | None, key_schema: pa.Schema, namespace: pa.Schema
) -> KeyedStateBackend:
    """Return a backend for keys, new if there is none.

    Raises:
        StateError: the backend has other keys.
    """
    if backend is None:
        return KeyedStateBackend(key_schema, namespace=namespace)
    wanted = pa.schema([*key_schema, *namespace])
    if not backend.space.schema.equals(wanted):
        raise StateError(
            "the backend has other keys than the windows",
            asked=str(backend.space.schema.names),
            have=str(wanted.names),
            remedy="KeyedStateBackend(key_schema, namespace=...) as in a snapshot of this operator",
        )
    return backend


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return an empty batch."""
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)


def _check_names(taken: Sequence[str], aggregates: Sequence[Aggregate]) -> None:
    """Check that no column of the result replaces another one.

    Raises:
        StateError: two have one name.
    """
    names = set(taken)
    for one in aggregates:
        if one.result in names:
            raise StateError(
                f"two columns of the result have the name {one.result!r}",
                have=", ".join([*taken, *(other.result for other in aggregates)]),
                remedy=f'Aggregate({one.kind!r}, {one.column!r}, name="another")',
            )
        names.add(one.result)
