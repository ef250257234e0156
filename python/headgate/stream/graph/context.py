"""The task that runs a function, as the function sees it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from headgate.batches import Rows
from headgate.errors import StateError
from headgate.stream.state.descriptors import (
    BroadcastStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from headgate.stream.state.timers import NO_WATERMARK

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from headgate.stream.graph.metrics import Metrics
    from headgate.stream.graph.operator import OperatorContext
    from headgate.stream.state.backend import KeyedStateBackend
    from headgate.stream.state.broadcast import BroadcastState
    from headgate.stream.state.lists import ListState
    from headgate.stream.state.maps import MapState
    from headgate.stream.state.states import ReducingState, ValueState
    from headgate.stream.state.timers import Timers

#: The result of a function: a batch, a table or a DataFrame of any library, or several of them. None is an error.
FunctionRows: TypeAlias = Rows | Iterable[Rows]


class RuntimeContext:
    """The task that runs a function. Source: Flink's RuntimeContext.

    Args:
        operator: its context.
        emit: takes the function's rows, and the name of a side output or None.

    Attributes:
        watermark: in ms since 1970; very small before the first one.
    """

    watermark: int

    def __init__(
        self, operator: OperatorContext, emit: Callable[[FunctionRows, str | None], None]
    ) -> None:
        self.watermark = NO_WATERMARK
        self._operator = operator
        self._emit = emit

    @property
    def index(self) -> int:
        """Number of the task within its operator, from 0."""
        return self._operator.index

    @property
    def parallelism(self) -> int:
        """Number of tasks of the operator."""
        return self._operator.parallelism

    @property
    def processing_time(self) -> int:
        """The wall clock in ms since 1970."""
        return self._operator.clock()

    @property
    def metrics(self) -> Metrics:
        """Counters, gauges and histograms of this operator, which ``query.status.metrics`` and Prometheus show."""
        return self._operator.metrics

    @property
    def shared(self) -> Any:
        """The object that ``shared=`` has loaded for all tasks of this process; None without ``shared=``."""
        return self._operator.shared

    def emit(self, rows: FunctionRows, output: str | None = None) -> None:
        """Emit rows.

        Args:
            rows: of the operator's schema, or of the side output's.
            output: name of a side output; None for the main one.

        Raises:
            StateError: the operator has no side output of this name.
            SchemaMismatchError: the rows have another schema.
        """
        self._emit(rows, output)


class KeyedContext(RuntimeContext):
    """The context of a function on a keyed stream, with the keys of the current batch or of the timers that fire.

    Args:
        operator: its context.
        emit: takes the function's rows, and the name of a side output or None.
        backend: keyed state; None on a stream without keys.

    Raises:
        StateError: from all that needs keys, on a stream without keys.
    """

    def __init__(
        self,
        operator: OperatorContext,
        emit: Callable[[FunctionRows, str | None], None],
        backend: KeyedStateBackend | None,
    ) -> None:
        super().__init__(operator, emit)
        self._backend = backend

    def _backend_of(self, descriptor: Any) -> KeyedStateBackend:
        if isinstance(descriptor, BroadcastStateDescriptor):
            raise StateError(
                f"{self._operator.uid} gets no rows that all its tasks get",
                remedy="stream.connect(rules.broadcast()).process(BroadcastProcessFunction)",
            )
        return self._state

    @property
    def _state(self) -> KeyedStateBackend:
        if self._backend is None:
            raise StateError(
                f"{self._operator.uid} has no keys, so it has no keyed state and no timers",
                remedy="stream.key_by(...).process(...)",
            )
        return self._backend

    @property
    def keys(self) -> pa.RecordBatch:
        """The distinct keys, in the order of their first rows."""
        return self._state.keys

    @property
    def rows(self) -> pa.Int64Array:
        """For each row, the position of its key in :attr:`keys`."""
        return self._state.rows

    @property
    def event_timers(self) -> Timers:
        """Timers in event time, which fire with the watermark."""
        return self._state.event_timers

    @property
    def processing_timers(self) -> Timers:
        """Timers in processing time, which fire by the wall clock."""
        return self._state.processing_timers

    @overload
    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState: ...
    @overload
    def get_state(self, descriptor: ReducingStateDescriptor) -> ReducingState: ...
    @overload
    def get_state(self, descriptor: ListStateDescriptor) -> ListState: ...
    @overload
    def get_state(self, descriptor: MapStateDescriptor) -> MapState: ...
    @overload
    def get_state(self, descriptor: BroadcastStateDescriptor) -> BroadcastState: ...
    def get_state(self, descriptor: Any) -> Any:
        """Return the state of a name; declare it if it is new.

        Raises:
            StateError: ``open()`` declares a name twice, so that two states would be one; broadcast state in a function
                without a broadcast stream.
        """
        backend = self._backend_of(descriptor)
        is_descriptor = isinstance(descriptor, StateDescriptor)
        if is_descriptor and not backend.is_open and backend.has_declared(descriptor.name):
            raise StateError(
                f"open() declares the state {descriptor.name!r} twice, and both would be one state",
                remedy="another name for one of them",
            )
        return backend.get_state(descriptor)


class BroadcastContext(KeyedContext):
    """The context of a :class:`~headgate.stream.BroadcastProcessFunction`; without keys it has broadcast state alone.

    Args:
        operator: its context.
        emit: takes the function's rows, and the name of a side output or None.
        backend: has the broadcast state, and state by key on a keyed stream.
        is_keyed: True for the context of a keyed stream.
    """

    def __init__(
        self,
        operator: OperatorContext,
        emit: Callable[[FunctionRows, str | None], None],
        backend: KeyedStateBackend,
        *,
        is_keyed: bool,
    ) -> None:
        super().__init__(operator, emit, backend if is_keyed else None)
        self._broadcast = backend

    def _backend_of(self, descriptor: Any) -> KeyedStateBackend:
        if not isinstance(descriptor, BroadcastStateDescriptor):
            return self._state
        if self._broadcast.is_open:
            raise StateError(
                f"broadcast state {descriptor.name!r} is declared after open()",
                remedy="context.get_state() in open()",
            )
        return self._broadcast
