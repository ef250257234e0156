"""Keyed state and timers of an operator, and the context that its function sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.errors import StateError
from headgate.stream.graph.operator import EXPIRED, OperatorContext, OperatorSnapshot
from headgate.stream.operators.results import Results
from headgate.stream.state.backend import KeyedStateBackend
from headgate.stream.state.descriptors import StateDescriptor
from headgate.stream.windows.kinds import NO_WATERMARK

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from headgate.stream.graph.functions import Made
    from headgate.stream.state.timers import Timers


class KeyedState:
    """The keyed state of an operator's task: that of the checkpoint which the job continues from, or none.

    Args:
        context: of the operator.
        key_schema: the key columns.
        namespace: columns beside the keys.

    Attributes:
        backend: the state.

    Raises:
        StateError: the checkpoint has state of other keys.
        SnapshotError: a file of it is missing or damaged.
    """

    def __init__(
        self, context: OperatorContext, key_schema: pa.Schema, namespace: pa.Schema | None = None
    ) -> None:
        self._is_durable = context.is_durable
        self._allow_dropped = context.allow_dropped_state
        self._uid = context.uid
        if not context.restored:
            self.backend = KeyedStateBackend(
                key_schema,
                key_groups=context.key_groups,
                max_parallelism=context.max_parallelism,
                namespace=namespace,
                clock=context.clock,
            )
            return
        self.backend = KeyedStateBackend.restore(
            context.restored, key_groups=context.key_groups, clock=context.clock
        )
        before = self.backend.scope.key_schema
        if not before.equals(key_schema):
            raise StateError(
                f"the state of {context.uid} in the checkpoint has other keys",
                asked=", ".join(f"{f.name} {f.type}" for f in key_schema),
                have=", ".join(f"{f.name} {f.type}" for f in before),
                remedy="key_by() as when the checkpoint was taken · another name= for the operator",
            )

    def opened(self) -> None:
        """Check that the operator has declared the states that it declared before, when it has opened.

        Raises:
            StateError: the checkpoint has state that it does not declare.
        """
        try:
            self.backend.opened(allow_dropped=self._allow_dropped)
        except StateError as error:
            error.summary = f"{self._uid}: {error.summary}"
            raise

    def snapshot(self, checkpoint: int, *, savepoint: bool) -> OperatorSnapshot | None:
        """Freeze the state; None if the job keeps no checkpoints."""
        if not self._is_durable and not savepoint:
            return None
        return OperatorSnapshot(state=self.backend.snapshot(checkpoint, savepoint=savepoint))

    def complete(self, checkpoint: int) -> None:
        """Let later snapshots build on this one."""
        if self._is_durable:
            self.backend.complete(checkpoint)

    def abort(self, checkpoint: int) -> None:
        """Give up a snapshot."""
        self.backend.abort(checkpoint)

    @property
    def dropped(self) -> dict[str, int]:
        """Values that were older than their time to live."""
        return {EXPIRED: self.backend.num_expired_values}

    @property
    def files_in_flight(self) -> set[str]:
        """Files that snapshots in flight build on."""
        return self.backend.files_in_flight

    def close(self) -> None:
        """Free the state."""
        self.backend.close()


class FunctionContext:
    """The context of a user's function; see :class:`headgate.stream.KeyedContext`.

    Args:
        context: of the operator.
        schema: of the main output.
        side_outputs: schemas by name.
        state: keyed state; None on a stream without keys.
    """

    def __init__(
        self,
        context: OperatorContext,
        schema: pa.Schema,
        side_outputs: Mapping[str, pa.Schema],
        state: KeyedState | None,
    ) -> None:
        self._context = context
        self._results: dict[str | None, Results] = {None: Results(context.uid, schema)}
        for output, own in side_outputs.items():
            self._results[output] = Results(context.uid, own, "side_outputs")
        self._backend = None if state is None else state.backend
        self.watermark = NO_WATERMARK

    @property
    def index(self) -> int:
        """Number of the task."""
        return self._context.index

    @property
    def parallelism(self) -> int:
        """Number of tasks."""
        return self._context.parallelism

    @property
    def processing_time(self) -> int:
        """The wall clock in ms since 1970."""
        return self._context.clock()

    @property
    def state(self) -> KeyedStateBackend:
        """Keyed state.

        Raises:
            StateError: the stream has no keys.
        """
        if self._backend is None:
            raise StateError(
                f"{self._context.uid} has no keys, so it has no keyed state and no timers",
                remedy="stream.key_by(...).process(...)",
            )
        return self._backend

    @property
    def keys(self) -> pa.RecordBatch:
        """The distinct keys at hand."""
        return self.state.keys

    @property
    def rows(self) -> pa.Int64Array:
        """For each row, the position of its key."""
        return self.state.rows

    @property
    def event_timers(self) -> Timers:
        """Timers in event time."""
        return self.state.event_timers

    @property
    def processing_timers(self) -> Timers:
        """Timers in processing time."""
        return self.state.processing_timers

    def get_state(self, descriptor: Any) -> Any:
        """Return the state of a name; declare it if it is new.

        Raises:
            StateError: ``open()`` declares a name twice, so that two states would be one.
        """
        backend = self.state
        is_descriptor = isinstance(descriptor, StateDescriptor)
        if is_descriptor and not backend.is_open and backend.has_declared(descriptor.name):
            raise StateError(
                f"open() declares the state {descriptor.name!r} twice, and both would be one state",
                remedy="another name for one of them",
            )
        return backend.get_state(descriptor)

    def emit(self, rows: Made, output: str | None = None) -> None:
        """Emit rows."""
        results = self._results.get(output)
        if results is None:
            raise StateError(
                f"{self._context.uid} has no side output {output!r}",
                have=", ".join(name for name in self._results if name) or "none",
                remedy="side_outputs={name: schema} of process()",
            )
        for batch in results.batches("emit()", rows):
            self._context.emit(batch, output)
