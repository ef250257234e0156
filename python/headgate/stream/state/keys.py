"""The keys of a batch, and the slots of all keys that have state."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate import _native
from headgate.errors import SchemaMismatchError, StateError
from headgate.stream.state.groups import check_keys, key_groups_of
from headgate.stream.state.memory import ALL_IN_MEMORY, StateMemory
from headgate.stream.state.table import CHUNK, Mask, Slots
from headgate.stream.state.zeros import encoded, normalized


class SlotColumns(Protocol):
    """Columns whose rows are the slots of a key space."""

    def grow(self, capacity: int) -> None:
        """Make room for slots below a number."""

    def expire(self) -> None:
        """Remove what has expired."""

    def occupied(self) -> Mask:
        """Return True for each slot whose key must stay."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The key groups that a task owns.

    Attributes:
        key_schema: the key columns.
        key_groups: the groups of the task.
        max_parallelism: number of all groups.
        memory: of the state of these groups.
    """

    key_schema: pa.Schema
    key_groups: range
    max_parallelism: int
    memory: StateMemory = ALL_IN_MEMORY


@dataclass(frozen=True, slots=True)
class Batch:
    """The keys of a batch of rows.

    Attributes:
        columns: the key columns, one value per row.
        rows: for each row, the position of its key among the distinct ones.
        slots: slot of each distinct key.
        first: first row of each distinct key.
    """

    columns: pa.RecordBatch
    rows: Slots
    slots: Slots
    first: Slots

    @property
    def keys(self) -> pa.RecordBatch:
        """The distinct keys."""
        return self.columns.take(pa.array(self.first))

    @property
    def row_slots(self) -> Slots:
        """Slot of each row's key."""
        return self.slots[self.rows]


class KeySpace:
    """Slots of keys.

    Args:
        scope: the key columns, and the groups that this task owns.
        extra: columns beside the key columns that tell keys apart, and play no part in the key group: a window,
            a map's key.
    """

    def __init__(self, scope: Scope, extra: pa.Schema | None = None) -> None:
        self.scope = scope
        self.extra = extra if extra is not None else pa.schema([])
        self.schema = pa.schema([*scope.key_schema, *self.extra])
        doubled = {name for name in self.schema.names if self.schema.names.count(name) > 1}
        if doubled:
            raise SchemaMismatchError(
                f"the columns {sorted(doubled)} are there twice", remedy="rename the key columns"
            )
        check_keys(scope.key_schema, self.extra)
        self.capacity = 0
        #: Snapshots that are being written: no slot may get another key meanwhile.
        self.pins: weakref.WeakSet[object] = weakref.WeakSet()
        self._index = _native.KeyIndex(self.schema, scope.memory.native)
        self._groups = np.zeros(0, np.int32)
        self._held: Mask = np.zeros(0, np.bool_)
        #: They refer to this space, and end with their last user, not with a garbage collection.
        self._columns: list[weakref.ref[SlotColumns]] = []

    def attach(self, columns: SlotColumns) -> None:
        """Add columns by slot of this space."""
        columns.grow(self.capacity)
        self._columns.append(weakref.ref(columns))

    def close(self) -> None:
        """Free the keys, unless a snapshot that is being written reads them; they are freed with it."""
        if not self.pins:
            self._index = _native.KeyIndex(self.schema)
            self._groups, self._held = self._groups[:0].copy(), self._held[:0].copy()
            self.capacity = 0

    def _attached(self) -> list[SlotColumns]:
        return [columns for reference in self._columns if (columns := reference()) is not None]

    @property
    def num_keys(self) -> int:
        """Number of keys with a slot."""
        return self._index.num_keys

    def resolve(self, columns: pa.RecordBatch) -> Batch:
        """Return the keys of rows; each gets a slot.

        Raises:
            StateError: a key belongs to a group of another task. None of the keys has got a slot then.
        """
        columns = normalized(columns)
        self._make_room(columns.num_rows)
        rows, slots, first, new = map(_numbers, self._index.resolve(columns.columns))
        batch = Batch(columns, rows, slots, first)
        if len(new):
            try:
                groups = self._groups_of(columns.take(pa.array(first[new])))
            except BaseException:
                self._index.remove(pa.array(slots[new]))
                raise
            self._groups[slots[new]] = groups
            self._held[slots[new]] = True
        return batch

    def reserve(self, keys: int) -> None:
        """Make room for more keys at once: growing by steps moves all that are there each time."""
        self._make_room(keys)
        self._index.reserve(keys)

    def find(self, columns: pa.RecordBatch) -> Slots:
        """Return the slot of each row's key, or -1."""
        return _numbers(self._index.find(normalized(columns).columns))

    def keys(self, slots: Slots) -> pa.RecordBatch:
        """Return the keys of slots. Any thread may call it."""
        columns = self._index.keys(pa.array(slots))
        columns = [_as(c, f.type) for c, f in zip(columns, self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def groups(self, slots: Slots) -> Any:
        """Return the key groups of slots."""
        return self._groups[slots]

    def checked(self, columns: Any) -> pa.RecordBatch:
        """Return columns as key columns of this space, by position.

        Args:
            columns: a record batch, a struct array, or a sequence of arrays. A dictionary is decoded.

        Raises:
            SchemaMismatchError: another number of columns, or another type.
        """
        if isinstance(columns, pa.StructArray):
            columns = columns.flatten()
        elif isinstance(columns, pa.RecordBatch):
            columns = columns.columns
        arrays = [_plain(c, f.type) for c, f in zip(columns, self.schema, strict=False)]
        if len(columns) != len(self.schema) or any(array is None for array in arrays):
            raise SchemaMismatchError(
                "the columns are not the key columns of this state",
                asked=str([str(getattr(c, "type", type(c).__name__)) for c in columns]),
                have=str([f"{f.name}: {f.type}" for f in self.schema]),
                remedy="cast the columns to the key schema",
            )
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def sweep(self) -> None:
        """Free the slots of keys without state, unless a snapshot is being written."""
        if self.pins or not self.capacity:
            return
        idle = self._held.copy()
        for columns in self._attached():
            # A job that keeps no checkpoints takes no snapshot, which would do it.
            columns.expire()
            idle &= ~columns.occupied()
        slots = np.flatnonzero(idle)
        self._index.remove(pa.array(slots))
        self._held[slots] = False

    def _make_room(self, rows: int) -> None:
        if self.num_keys + rows <= self.capacity:
            return
        self.sweep()
        needed = self.num_keys + rows
        # A quarter of the slots stays free, so that the next sweep is far away.
        if needed > self.capacity - self.capacity // 4:
            capacity = max(CHUNK, 1 << (needed + needed // 3).bit_length())
            memory = self.scope.memory
            self._groups = memory.wider(self._groups, capacity)
            self._held = memory.wider(self._held, capacity)
            self.capacity = capacity
            for columns in self._attached():
                columns.grow(capacity)

    def _groups_of(self, keys: pa.RecordBatch) -> Any:
        scope = self.scope
        keys = keys.select(range(len(scope.key_schema)))
        groups = key_groups_of(keys, scope.max_parallelism)
        mine = scope.key_groups
        outside = np.flatnonzero((groups < mine.start) | (groups >= mine.stop))
        if len(outside):
            key = keys.slice(outside[0], 1).to_pylist()[0]
            raise StateError(
                f"key {key} is of key group {groups[outside[0]]}, which another task owns",
                have=f"key groups {mine.start} to {mine.stop - 1} of {scope.max_parallelism}",
                remedy="partition rows by KeyGroupSelector over the same key and max_parallelism",
            )
        return groups


def numbered(rows: pa.RecordBatch) -> tuple[Slots, Slots]:
    """Return a number for each row, from 0, the same for equal ones; and the first row of each number."""
    index = _native.KeyIndex(rows.schema)
    numbers, _, first, _ = map(_numbers, index.resolve(normalized(rows).columns))
    return numbers, first


def _plain(column: Any, to: pa.DataType) -> pa.Array | None:
    """Return a column as one array of a type; None if it has another."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, np.ndarray):
        column = pa.array(column)
    if not isinstance(column, pa.Array):
        return None
    if pa.types.is_dictionary(column.type) and column.type.value_type == to:
        column = pc.cast(column, to)
    return column if column.type == to else None


def _as(column: pa.Array, of: pa.DataType) -> pa.Array:
    """Return a column of the index, which has decoded dictionaries, as a type."""
    if column.type == of:
        # A cast refuses the nulls below null structs whose fields are not nullable.
        return column
    return encoded(column, of) if pa.types.is_dictionary(of) else column.cast(of)


def _numbers(array: pa.Array) -> Slots:
    return np.asarray(array.to_numpy())
