"""State that is the same in all tasks of an operator: what the rows of a broadcast stream wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from headgate.errors import StateError
from headgate.stream.state.column import Column, as_array, cast_to
from headgate.stream.state.keys import KeySpace, Scope
from headgate.stream.state.maps import MAP_KEY
from headgate.stream.state.states import ColumnState
from headgate.stream.state.table import distinct

if TYPE_CHECKING:
    from headgate.stream.state.column import Clock
    from headgate.stream.state.current import CurrentBatch
    from headgate.stream.state.descriptors import StateDescriptor


class BroadcastState(ColumnState):
    """One map for all rows of a task, the same in each task. Source: Flink's BroadcastState, by batches.

    Only ``process_broadcast()`` writes, since all tasks get its rows.
    """

    kind = "broadcast"
    #: True while rows of the broadcast stream are handled.
    is_writable = False

    @classmethod
    def create(
        cls, name: str, types: pa.Schema, space: KeySpace, current: CurrentBatch, clock: Clock
    ) -> Self:
        """Return new state of the types that a manifest has."""
        groups = space.scope.max_parallelism
        # Each task has the keys of all groups.
        entries = KeySpace(Scope(pa.schema([types.field(MAP_KEY)]), range(groups), groups))
        return cls(name, Column(entries, types.field("value").type, clock), current)

    def declare(self, descriptor: StateDescriptor) -> None:
        """Take over what a descriptor says and a snapshot does not."""
        self.column.evolve(descriptor.type)

    @property
    def types(self) -> pa.Schema:
        """The types, as a manifest has them."""
        return pa.schema([self.space.schema.field(MAP_KEY), ("value", self.column.type)])

    def put(self, keys: Any, values: Any) -> None:
        """Set the value of each key. Of equal keys the last one counts.

        Args:
            keys: an array, none of them null.
            values: an array with one value per key; null is a value.

        Raises:
            StateError: another number of values, a key that is null, or not in ``process_broadcast()``.
            SchemaMismatchError: keys or values that cannot be cast to their type.
        """
        self._check_writable()
        columns = self._columns(keys)
        values = cast_to(as_array(values, self.column.type), self.column.type)
        if len(values) != columns.num_rows:
            raise StateError(
                f"{len(values)} values were given for {columns.num_rows} keys",
                remedy="one value per key",
            )
        if columns.column(0).null_count:
            raise StateError("a key is null", remedy="filter the rows with such keys")
        self.column.put(self.space.resolve(columns).row_slots, values)

    def remove(self, keys: Any) -> None:
        """Remove keys; those that are not there are no error. Raises as :meth:`put`."""
        self._check_writable()
        slots = self.space.find(self._columns(keys))
        self.column.drop(distinct(slots[slots >= 0]))

    def clear(self) -> None:
        """Remove all keys. Raises as :meth:`put`."""
        self._check_writable()
        self.column.drop(np.flatnonzero(self.column.present))

    def get(self, keys: Any) -> pa.Array:
        """Return the value of each key; null for one that is not there.

        Raises:
            SchemaMismatchError: keys that cannot be cast to their type.
        """
        slots = self.space.find(self._columns(keys))
        is_there = slots >= 0
        is_there[is_there] = self.column.present[slots[is_there]]
        # A state without keys has no slots.
        if not is_there.any():
            return pa.nulls(len(slots), self.column.type)
        return self.column.get(slots, is_there)

    def entries(self) -> pa.Table:
        """Return all keys and values, as columns ``map_key`` and ``value``."""
        return self.table()

    def _columns(self, keys: Any) -> pa.RecordBatch:
        of = self.space.schema.field(MAP_KEY).type
        return pa.RecordBatch.from_arrays(
            [cast_to(as_array(keys, of), of)], schema=self.space.schema
        )

    def _check_writable(self) -> None:
        if not self.is_writable:
            raise StateError(
                f"broadcast state {self.name!r} is written outside of process_broadcast()",
                have="all tasks have the same state, as all get the rows of the broadcast stream",
                remedy="write it in process_broadcast() · keyed state for the rest",
            )
