"""Operators with keyed state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.errors import StateError
from headgate.stream.graph.operator import EXPIRED, Operator, OperatorContext, OperatorSnapshot
from headgate.stream.operators.lives import KeyLives, key_lives
from headgate.stream.state.backend import KeyedStateBackend

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from headgate.stream.state.descriptors import StateTtlConfig


class KeyedOperator(Operator):
    """An operator that may have keyed state: that of the checkpoint which the job continues from, or none at first."""

    #: None before :meth:`open`, and on a stream without keys.
    _backend: KeyedStateBackend | None = None
    #: The times after which keys are forgotten; None if they never are.
    _lives: KeyLives | None = None

    def _restore(
        self, context: OperatorContext, key_schema: pa.Schema, namespace: pa.Schema | None = None
    ) -> KeyedStateBackend:
        """Return the state, which this operator has from now on.

        Args:
            context: of the operator.
            key_schema: the key columns.
            namespace: columns beside the keys.

        Raises:
            StateError: the checkpoint has state of other keys.
            SnapshotError: a file of it is missing or damaged.
        """
        self._is_durable = context.is_durable
        if not context.restored:
            self._backend = KeyedStateBackend(
                key_schema,
                key_groups=context.key_groups,
                max_parallelism=context.max_parallelism,
                namespace=namespace,
                clock=context.clock,
                memory=context.state_memory,
            )
            return self._backend
        backend = self._backend = KeyedStateBackend.restore(
            context.restored,
            key_groups=context.key_groups,
            clock=context.clock,
            memory=context.state_memory,
        )
        before = backend.scope.key_schema
        if (before.names, before.types) != (key_schema.names, key_schema.types):
            raise StateError(
                f"the state of {context.uid} in the checkpoint has other keys",
                asked=", ".join(f"{f.name} {f.type}" for f in key_schema),
                have=", ".join(f"{f.name} {f.type}" for f in before),
                remedy="key_by() as when the checkpoint was taken · another name= for the operator",
            )
        return backend

    def _opened(self, context: OperatorContext, ttl: StateTtlConfig | None = None) -> None:
        """Check that the states which were declared before are declared again, at the end of :meth:`open`.

        Args:
            context: of the operator.
            ttl: time to live of keys without rows, with all their state.

        Raises:
            StateError: the checkpoint has state that is not declared.
        """
        if self._backend is not None:
            self._lives = key_lives(self._backend, ttl)
            try:
                self._backend.opened(allow_dropped=context.allow_dropped_state)
            except StateError as error:
                error.summary = f"{context.uid}: {error.summary}"
                raise

    @property
    def has_state(self) -> bool:
        """True with keys."""
        return self._backend is not None and self._is_durable

    def snapshot(self, checkpoint: int, *, savepoint: bool) -> OperatorSnapshot | None:
        """Freeze the state; None if there is none, or the job keeps no checkpoints."""
        if self._backend is None or not (self._is_durable or savepoint):
            return None
        if self._lives is not None:
            self._lives.expire()
        return OperatorSnapshot(state=self._backend.snapshot(checkpoint, savepoint=savepoint))

    def complete(self, checkpoint: int) -> None:
        """Let later snapshots build on this one."""
        if self._backend is not None and self._is_durable:
            self._backend.complete(checkpoint)

    def abort(self, checkpoint: int) -> None:
        """Give up a snapshot."""
        if self._backend is not None:
            self._backend.abort(checkpoint)

    @property
    def dropped(self) -> Mapping[str, int]:
        """Values that were older than their time to live."""
        return {} if self._backend is None else {EXPIRED: self._backend.num_expired_values}

    @property
    def state_size(self) -> Mapping[str, int]:
        """The keys, and the bytes of their state; nothing if no state is declared."""
        return self._backend.size if self._backend is not None and self._backend.states else {}

    @property
    def files_in_flight(self) -> set[str]:
        """Files that snapshots in flight build on."""
        return set() if self._backend is None else self._backend.files_in_flight

    def close(self) -> None:
        """Free the state."""
        if self._backend is not None:
            self._backend.close()
