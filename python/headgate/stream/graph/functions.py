"""Functions with state, called once per batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.stream.graph.context import FunctionRows, KeyedContext

_NO_METHOD: Final = "{} registers timers and has no {}()"


class _KeyedFunction:
    """The base of functions with state; one instance per task."""

    def open(self, context: KeyedContext) -> None:
        """Declare state and open resources; called once, before any other method."""

    def on_event_timers(self, timers: pa.RecordBatch, context: KeyedContext) -> FunctionRows:
        """Handle timers up to the watermark, in order of time; all state is about their keys.

        The batch has the key columns, and ``timestamp``: int64 of ms since 1970, not null. A key with several timers has a
        row for each. More than 65,536 timers come in several calls. A function that registers timers has this method.
        """
        raise NotImplementedError(_NO_METHOD.format(type(self).__name__, "on_event_timers"))

    def on_processing_timers(self, timers: pa.RecordBatch, context: KeyedContext) -> FunctionRows:
        """Handle timers up to the wall clock's time, as :meth:`on_event_timers`."""
        raise NotImplementedError(_NO_METHOD.format(type(self).__name__, "on_processing_timers"))

    def close(self) -> None:
        """Release resources; called once, also after a failure."""


class ProcessFunction(_KeyedFunction):
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

    def process(self, batch: pa.RecordBatch, context: KeyedContext) -> FunctionRows:
        """Handle a batch of at least one row; all state is about its keys.

        Returns:
            Rows of the operator's schema: a batch, a table or a DataFrame, or several. ``[]`` or an empty batch for no
            rows, also after ``context.emit()``; None is an error.
        """
        raise NotImplementedError


class CoProcessFunction(_KeyedFunction):
    """A function of two keyed streams that share their state. Source: Flink's KeyedCoProcessFunction, by batches.

    Both streams have keys of the same types. In state and timers they have the first stream's names.
    """

    def process_first(self, batch: pa.RecordBatch, context: KeyedContext) -> FunctionRows:
        """Handle a batch of the first stream; all state is about its keys."""
        raise NotImplementedError

    def process_second(self, batch: pa.RecordBatch, context: KeyedContext) -> FunctionRows:
        """Handle a batch of the second stream; all state is about its keys."""
        raise NotImplementedError


class BroadcastProcessFunction(_KeyedFunction):
    """A function of a stream and of another one of which all tasks get all rows, such as rules.

    The broadcast stream writes broadcast state (:class:`~headgate.stream.BroadcastStateDescriptor`), which the function
    reads for the rows of the stream. All tasks have the same: so write nothing that depends on the task or the clock.
    On a keyed stream there is state by key and timers too. Source: Flink's KeyedBroadcastProcessFunction, by batches.

    Example:
        >>> import pyarrow as pa
        >>> import pyarrow.compute as pc
        >>> from headgate.stream import BroadcastProcessFunction, BroadcastStateDescriptor
        >>> class Limits(BroadcastProcessFunction):
        ...     def open(self, context):
        ...         self.limits = context.get_state(
        ...             BroadcastStateDescriptor("limits", pa.string(), pa.int64())
        ...         )
        ...     def process_broadcast(self, batch, context):
        ...         self.limits.put(batch["kind"], batch["limit"])
        ...         return []
        ...     def process(self, batch, context):
        ...         return batch.filter(pc.greater(batch["size"], self.limits.get(batch["kind"])))
    """

    def process(self, batch: pa.RecordBatch, context: KeyedContext) -> FunctionRows:
        """Handle a batch of the stream; broadcast state can be read, and state by key is about its keys."""
        raise NotImplementedError

    def process_broadcast(self, batch: pa.RecordBatch, context: KeyedContext) -> FunctionRows:
        """Handle a batch of the broadcast stream: write broadcast state. There is no current key."""
        raise NotImplementedError
