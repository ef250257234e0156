"""Functions with state, called once per batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, overload

from headgate.batches import Rows

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.stream.state.descriptors import (
        ListStateDescriptor,
        MapStateDescriptor,
        ReducingStateDescriptor,
        ValueStateDescriptor,
    )
    from headgate.stream.state.lists import ListState
    from headgate.stream.state.maps import MapState
    from headgate.stream.state.states import ReducingState, ValueState
    from headgate.stream.state.timers import Timers

#: The result of a function: a batch, a table or a DataFrame of any library, or several of them. None is an error.
Made: TypeAlias = Rows | Iterable[Rows]
_NO_METHOD: Final = "{} registers timers and has no {}()"


class RuntimeContext(Protocol):
    """The task that runs a function, as the function sees it. Source: Flink's RuntimeContext."""

    @property
    def index(self) -> int:
        """Number of the task within its operator, from 0."""

    @property
    def parallelism(self) -> int:
        """Number of tasks of the operator."""

    @property
    def watermark(self) -> int:
        """The watermark in ms since 1970; very small before the first one."""

    @property
    def processing_time(self) -> int:
        """The wall clock in ms since 1970."""

    def emit(self, rows: Made, output: str | None = None) -> None:
        """Emit rows.

        Args:
            rows: of the operator's schema, or of the side output's.
            output: name of a side output; None for the main one.

        Raises:
            StateError: the operator has no side output of this name.
            SchemaMismatchError: the rows have another schema.
        """


class KeyedContext(RuntimeContext, Protocol):
    """The context of a function on a keyed stream, with the keys of the current batch or of the timers that fire."""

    @property
    def keys(self) -> pa.RecordBatch:
        """The distinct keys, in the order of their first rows."""

    @property
    def rows(self) -> pa.Int64Array:
        """For each row, the position of its key in :attr:`keys`."""

    @property
    def event_timers(self) -> Timers:
        """Timers in event time, which fire with the watermark."""

    @property
    def processing_timers(self) -> Timers:
        """Timers in processing time, which fire by the wall clock."""

    @overload
    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState: ...
    @overload
    def get_state(self, descriptor: ReducingStateDescriptor) -> ReducingState: ...
    @overload
    def get_state(self, descriptor: ListStateDescriptor) -> ListState: ...
    @overload
    def get_state(self, descriptor: MapStateDescriptor) -> MapState: ...


class ProcessFunction:
    """A function that keeps state; one instance per task. Override what is needed.

    Source: Flink's KeyedProcessFunction, by batches. On a stream without keys there is no state by key and
    no timer.

    Example:
        >>> import pyarrow as pa
        >>> from headgate.stream import ProcessFunction, ReducingStateDescriptor
        >>> class Count(ProcessFunction):
        ...     def open(self, context):
        ...         self.count = context.get_state(ReducingStateDescriptor("count", "count", pa.int64()))
        ...     def process(self, batch, context):
        ...         self.count.add(batch["price"])
        ...         return context.keys.append_column("count", self.count.get())
    """

    def open(self, context: KeyedContext) -> None:
        """Declare state and open resources; called once, before any other method."""

    def process(self, batch: pa.RecordBatch, context: KeyedContext) -> Made:
        """Handle a batch of at least one row; all state is about its keys.

        Returns:
            Rows of the operator's schema: a batch, a table or a DataFrame, or several. ``[]`` or an empty batch for no
            rows, also after ``context.emit()``; None is an error.
        """
        raise NotImplementedError

    def on_event_timers(self, timers: pa.RecordBatch, context: KeyedContext) -> Made:
        """Handle timers up to the watermark, in order of time; all state is about their keys.

        The batch has the key columns, and ``timestamp``: int64 of ms since 1970, not null. A key with several timers has a
        row for each. More than 65,536 timers come in several calls. A function that registers timers has this method.
        """
        raise NotImplementedError(_NO_METHOD.format(type(self).__name__, "on_event_timers"))

    def on_processing_timers(self, timers: pa.RecordBatch, context: KeyedContext) -> Made:
        """Handle timers up to the wall clock's time, as :meth:`on_event_timers`."""
        raise NotImplementedError(_NO_METHOD.format(type(self).__name__, "on_processing_timers"))

    def close(self) -> None:
        """Release resources; called once, also after a failure."""


class CoProcessFunction:
    """A function of two keyed streams that share their state. Source: Flink's KeyedCoProcessFunction, by batches.

    Both streams have keys of the same types. In state and timers they have the first stream's names.
    """

    def open(self, context: KeyedContext) -> None:
        """Declare state and open resources; called once, before any other method."""

    def process_first(self, batch: pa.RecordBatch, context: KeyedContext) -> Made:
        """Handle a batch of the first stream; all state is about its keys."""
        raise NotImplementedError

    def process_second(self, batch: pa.RecordBatch, context: KeyedContext) -> Made:
        """Handle a batch of the second stream; all state is about its keys."""
        raise NotImplementedError

    def on_event_timers(self, timers: pa.RecordBatch, context: KeyedContext) -> Made:
        """Handle timers up to the watermark, as in a :class:`ProcessFunction`."""
        raise NotImplementedError(_NO_METHOD.format(type(self).__name__, "on_event_timers"))

    def on_processing_timers(self, timers: pa.RecordBatch, context: KeyedContext) -> Made:
        """Handle timers up to the wall clock's time."""
        raise NotImplementedError(_NO_METHOD.format(type(self).__name__, "on_processing_timers"))

    def close(self) -> None:
        """Release resources; called once, also after a failure."""
