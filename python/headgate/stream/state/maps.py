"""MapState: an index of entries, and a chain of entries per key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self
from weakref import WeakMethod

import numpy as np
import pyarrow as pa

from headgate import _native
from headgate.errors import StateError
from headgate.stream.state.column import Column, Rows
from headgate.stream.state.keys import KeySpace
from headgate.stream.state.memory import want
from headgate.stream.state.states import ColumnState
from headgate.stream.state.table import Mask, Slots, distinct

if TYPE_CHECKING:
    from headgate.stream.state.column import Clock
    from headgate.stream.state.current import CurrentBatch, Selection

#: Name of the column with the keys of maps.
MAP_KEY = "map_key"


class MapState(ColumnState):
    """A map per key. An entry is a row with a key of its own: the key's columns, and the map's key."""

    kind = "map"

    def __init__(self, name: str, column: Column, current: CurrentBatch, keys: KeySpace) -> None:
        super().__init__(name, column, current)
        self._keys = keys
        self._chains = _native.Chains(keys.scope.memory.native)
        #: Number of entries by slot of the key.
        self._counts: Slots = np.zeros(0, np.int64)
        #: Slot of the key of each entry.
        self._owners = Owners(self.space)
        column.drop_expired = WeakMethod(self._drop)
        keys.attach(self)

    @classmethod
    def create(
        cls, name: str, types: pa.Schema, space: KeySpace, current: CurrentBatch, clock: Clock
    ) -> Self:
        """Return new state of the types that a manifest has."""
        entries = KeySpace(space.scope, pa.schema([*space.extra, types.field(MAP_KEY)]))
        return cls(name, Column(entries, types.field("value").type, clock), current, space)

    def get(self, map_keys: Any) -> pa.Array:
        """Return the value of each row's map key in the map of the row's key; null if there is none.

        Args:
            map_keys: an array with one map key per row of the batch.

        Raises:
            StateError: another number of map keys.
            SchemaMismatchError: map keys that cannot be cast to their type.
        """
        slots, has_entry = self._find(map_keys, self._current.rows())
        values = self.column.get(slots, self.column.alive(slots))
        # The value of a row without an entry is beyond the last one: null.
        at = np.full(len(has_entry), len(slots))
        at[has_entry] = np.arange(len(slots))
        return values.take(pa.array(at, mask=~has_entry))

    def contains(self, map_keys: Any) -> pa.BooleanArray:
        """Return True for each row whose map key is in the map of the row's key. Arguments as for :meth:`get`."""
        slots, has_entry = self._find(map_keys, self._current.rows())
        has_entry[has_entry] = self.column.alive(slots)
        return pa.array(has_entry)

    def put(self, map_keys: Any, values: Any, *, where: Any = None, at: int | None = None) -> None:
        """Set the value of each row's map key in the map of the row's key. Of equal map keys the last row counts.

        Args:
            map_keys: an array with one map key per row of the batch, none of them null.
            values: an array with one value per row; null is a value.
            where: booleans, one per row or per distinct key, for the rows that are put. None for all.
            at: time in ms since 1970 from which on a time to live counts; None for now.

        Raises:
            StateError: another number of values, map keys or booleans, or a map key that is null.
            SchemaMismatchError: values or map keys that cannot be cast to their type.
        """
        selection = self._current.rows(where)
        columns = self._columns(map_keys, selection)
        if columns[MAP_KEY].null_count:
            raise StateError(
                "a map key is null", remedy="where=map_keys.is_valid() · fill the nulls"
            )
        values = selection.values(values, self.column.type)
        entries = self.space.resolve(columns)
        self._link(entries.slots, selection.slots[entries.first])
        self.column.put(entries.row_slots, values, None if self.column.ttl is None else at)

    def add(self, map_keys: Any, numbers: Any) -> None:
        """Add a number to the value of each row's map key, which is 0 if there is none; an entry of 0 is removed.

        Args:
            map_keys: an array with one map key per row of the batch, none of them null.
            numbers: an array with one integer per row, as the values of the map are.
        """
        selection = self._current.rows()
        entries = self.space.resolve(self._columns(map_keys, selection))
        sums = np.zeros(len(entries.slots), np.int64)
        np.add.at(sums, entries.rows, selection.values(numbers, pa.int64()).to_numpy())
        alive = self.column.alive(entries.slots)
        before = self.column.get(entries.slots, alive).fill_null(0)
        sums += before.cast(pa.int64()).to_numpy()
        self._drop(entries.slots[sums == 0])
        rest = sums != 0
        slots = entries.slots[rest]
        self._link(slots, selection.slots[entries.first[rest]])
        self.column.put(slots, pa.array(sums[rest]).cast(self.column.type))

    def remove(self, map_keys: Any, *, where: Any = None) -> None:
        """Remove each row's map key from the map of the row's key. Arguments as for :meth:`put`."""
        slots, _ = self._find(map_keys, self._current.rows(where))
        self._drop(distinct(slots))

    def items(self) -> pa.MapArray:
        """Return the map of each distinct key of the batch; an empty one for a key without entries."""
        slots = self._current.batch.slots
        lengths, entries = self._collect(slots)
        alive = self.column.alive(entries)
        lists = np.repeat(np.arange(len(slots)), lengths)[alive]
        entries = entries[alive]
        offsets = np.r_[0, np.cumsum(np.bincount(lists, minlength=len(slots)))]
        values = self.column.get(entries, np.ones(len(entries), np.bool_))
        keys = self.space.keys(entries)[MAP_KEY]
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, values)

    def lengths(self) -> Slots:
        """Return the number of entries of each distinct key of the batch, with those that have expired."""
        return self._counts[self._current.batch.slots]

    def clear(self, *, where: Any = None) -> None:
        """Remove the map of each distinct key of the batch, or of some.

        Args:
            where: booleans, one per distinct key or per row, for the keys whose maps are removed. None for all.
        """
        self._drop(self._collect(self._current.keys(where).slots)[1])

    # --- as columns of the key space, and in snapshots ---

    @property
    def types(self) -> pa.Schema:
        """The types, as a manifest has them."""
        return pa.schema([self.space.schema.field(MAP_KEY), ("value", self.column.type)])

    def close(self) -> None:
        """Free the entries."""
        super().close()
        self._chains = _native.Chains()
        self._counts = self._counts[:0].copy()
        self._owners.slots = self._counts

    def grow(self, capacity: int) -> None:
        """Make room for slots below a number."""
        self._counts = self._keys.scope.memory.wider(self._counts, capacity)

    def expire(self) -> None:
        """Remove the entries that have expired."""
        self.column.expire()

    def occupied(self) -> Mask:
        """Return True for each slot whose key must stay."""
        return self._counts > 0

    def load(self, slots: Slots, rows: Rows) -> None:
        """Store entries of a snapshot, one per slot."""
        self._drop(slots[~rows.present])
        here = slots[rows.present]
        keys = self.space.keys(here)
        owners = self._keys.resolve(keys.select(range(keys.num_columns - 1)))
        self._link(here, owners.row_slots)
        self.column.load(slots, rows)

    # --- entries ---

    def _columns(self, map_keys: Any, selection: Selection) -> pa.RecordBatch:
        map_keys = selection.values(map_keys, self.space.schema.field(MAP_KEY).type)
        columns = [*selection.rows(selection.batch.columns).columns, map_keys]
        return pa.RecordBatch.from_arrays(columns, schema=self.space.schema)

    def _find(self, map_keys: Any, selection: Selection) -> tuple[Slots, Mask]:
        """Return the slots of the entries that exist, and for each row whether its entry does."""
        slots = self.space.find(self._columns(map_keys, selection))
        has_entry = slots >= 0
        return slots[has_entry], has_entry

    def _link(self, entries: Slots, owners: Slots) -> None:
        new = ~self.column.present[entries]
        entries, owners = entries[new], owners[new]
        memory = self._keys.scope.memory
        want(memory, self._owners.slots, entries)
        self._owners.slots[entries] = owners
        self._chains.append(owners, entries)
        want(memory, self._counts, owners)
        np.add.at(self._counts, owners, 1)

    def _drop(self, entries: Slots) -> None:
        entries = entries[self.column.present[entries]]
        memory = self._keys.scope.memory
        want(memory, self._owners.slots, entries)
        owners = self._owners.slots[entries]
        self._chains.remove(owners, entries)
        want(memory, self._counts, owners)
        np.subtract.at(self._counts, owners, 1)
        self.column.drop(entries)

    def _collect(self, slots: Slots) -> tuple[Slots, Slots]:
        lengths, entries = self._chains.collect(slots)
        return lengths.to_numpy(), entries.to_numpy()


class Owners:
    """The slot of each entry's key, by slot of the entry."""

    def __init__(self, entries: KeySpace) -> None:
        self.slots: Slots = np.zeros(0, np.int64)
        self._entries = entries
        entries.attach(self)

    def grow(self, capacity: int) -> None:
        """Make room for slots below a number."""
        self.slots = self._entries.scope.memory.wider(self.slots, capacity)

    def expire(self) -> None:
        """Do nothing: the entries do it."""

    def occupied(self) -> Mask:
        """Return False for all: other columns know which entries must stay."""
        return np.zeros(self._entries.capacity, np.bool_)
