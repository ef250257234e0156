"""State with one value per key: ValueState and ReducingState."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from headgate.errors import StateError
from headgate.stream.state.column import Column, Rows, as_array
from headgate.stream.state.descriptors import ReducingStateDescriptor
from headgate.stream.state.reducing import Reduction, reduce_into
from headgate.stream.state.values import is_valid

if TYPE_CHECKING:
    from headgate.stream.state.column import Clock
    from headgate.stream.state.current import CurrentBatch
    from headgate.stream.state.descriptors import Reduce, StateDescriptor
    from headgate.stream.state.keys import KeySpace
    from headgate.stream.state.snapshot import FrozenRows
    from headgate.stream.state.table import Changes, Mask, Slots


class ColumnState:
    """State whose rows are those of one column."""

    kind = ""

    def __init__(self, name: str, column: Column, current: CurrentBatch) -> None:
        self.name = name
        self.column = column
        self._current = current

    @property
    def types(self) -> pa.Schema:
        """The types, as a manifest has them."""
        return pa.schema([("value", self.column.type)])

    @property
    def space(self) -> KeySpace:
        """The keys by which a snapshot has rows."""
        return self.column.space

    @property
    def changes(self) -> Changes:
        """The changes since the last completed snapshot."""
        return self.column.changes

    @property
    def expired(self) -> int:
        """Number of values that have expired and are gone."""
        return self.column.expired

    @property
    def present(self) -> Mask:
        """True for each slot with a row in a full snapshot."""
        return self.column.present

    def close(self) -> None:
        """Free the values."""
        self.column.close()

    def declare(self, descriptor: StateDescriptor) -> None:
        """Take over what a descriptor says and a snapshot does not."""
        self.column.evolve(descriptor.type)
        self.column.set_ttl(descriptor.ttl)

    def freeze(self, snapshot: int | None, *, full: bool) -> FrozenRows:
        """Return the rows of a snapshot: see :meth:`Column.freeze`."""
        return self.column.freeze(snapshot, full=full)

    def load(self, slots: Slots, rows: Rows) -> None:
        """Store rows of a snapshot, one per slot of the keys."""
        self.column.load(slots, rows)

    def table(self) -> pa.Table:
        """Return all keys with their values."""
        slots = self.column.table_rows()
        table = pa.Table.from_batches([self.space.keys(slots)])
        if self.column.values is None:
            return table
        values = self.column.get(slots, np.ones(len(slots), np.bool_))
        return table.append_column("value", values)


class SingleValue(ColumnState):
    """State with one value per key."""

    @classmethod
    def create(
        cls, name: str, types: pa.Schema, space: KeySpace, current: CurrentBatch, clock: Clock
    ) -> Self:
        """Return new state of the types that a manifest has."""
        return cls(name, Column(space, types.field("value").type, clock), current)

    def get(self) -> pa.Array:
        """Return the value of each distinct key of the batch; null for a key without one."""
        slots = self._current.batch.slots
        return self.column.get(slots, self.column.alive(slots))

    def set_values(self, values: Any, *, where: Any = None) -> None:
        """Set the value of each distinct key, as it is; null removes it."""
        selection = self._current.keys(where)
        slots, values = selection.slots, selection.values(values, self.column.type)
        valid = is_valid(values)
        if not valid.all():
            self.column.drop(slots[~valid])
            slots, values = slots[valid], values.drop_null()
        self.column.put(slots, values)

    def of(self, keys: Slots) -> pa.Array:
        """Return the values of some of the distinct keys of the batch, by position; each has one."""
        return self.column.get(self._current.batch.slots[keys], np.ones(len(keys), np.bool_))

    def is_there(self) -> Mask:
        """Return True for each distinct key of the batch with a value."""
        return self.column.alive(self._current.batch.slots)

    def clear(self, *, where: Any = None) -> None:
        """Remove the value of each distinct key of the batch, or of some: ``where`` as for :meth:`CurrentBatch.keys`."""
        self.column.drop(self._current.keys(where).slots)


class ValueState(SingleValue):
    """One value per key. Methods are about the distinct keys of the current batch, in their order."""

    kind = "value"

    def put(self, values: Any, *, where: Any = None) -> None:
        """Set the value of each key.

        Args:
            values: an array with one value per distinct key. Null removes the value, as in Flink.
            where: booleans, one per distinct key or per row, for the keys that are set; others stay. None for all.

        Raises:
            StateError: another number of values or booleans.
            SchemaMismatchError: values that cannot be cast to the state's type.
        """
        self.set_values(values, where=where)


class ReducingState(SingleValue):
    """One value per key, into which values are combined row by row."""

    kind = "reducing"
    #: None after a restore, until the state is declared.
    reduce: Reduce | None = None

    def declare(self, descriptor: StateDescriptor) -> None:
        """Take over what a descriptor says and a snapshot does not."""
        super().declare(descriptor)
        if isinstance(descriptor, ReducingStateDescriptor):
            self.reduce = descriptor.reduce

    def add(self, values: Any, *, where: Any = None) -> None:
        """Combine a value per row into the value of the row's key. Nulls are left out.

        Args:
            values: an array with one value per row of the batch; of any type if the state counts.
            where: booleans, one per row or per distinct key, for the rows that are added. None for all.

        Raises:
            StateError: another number of values or booleans, or a sum that exceeds its type; no value is added then.
            SchemaMismatchError: values that cannot be cast to the state's type.
        """
        column, selection = self.column, self._current.rows(where)
        if self.reduce == "count":
            valid = is_valid(as_array(values))
            values = pa.array(np.ones(len(valid), np.int8), mask=~valid)
        values = selection.values(values, column.type)
        rows = selection.numbers(selection.batch.rows)
        if values.null_count:
            valid = is_valid(values)
            rows, values = rows[valid], values.drop_null()
        if self.reduce is None:
            raise StateError(f"state {self.name!r} was restored and is not declared")
        reduction = Reduction(self.reduce, column.type, self.name)
        reduce_into(column, selection.batch.slots, rows, values, reduction)
