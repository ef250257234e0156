"""A value per slot, which may be absent or expire; every kind of state is made of such columns."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakMethod

import numpy as np
import pyarrow as pa

from headgate.errors import SchemaMismatchError, StateError
from headgate.stream.state.table import Changes, Mask, Slots, SlotTable, distinct
from headgate.stream.state.values import adopt_type, values_of, with_fields

if TYPE_CHECKING:
    from headgate.stream.state.descriptors import StateTtlConfig
    from headgate.stream.state.keys import KeySpace

#: Returns the processing time in milliseconds since 1970.
Clock = Callable[[], int]
#: Name of the column in which a snapshot has the time of the last update.
STAMP: Final = "stamp"


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a state in a snapshot.

    Attributes:
        present: False for a key whose state is gone since the snapshots before.
        stamps: time of the last update in milliseconds since 1970, 0 without a time to live; None if all are 0.
        values: the values, null where not present; None for a state without values.
    """

    present: Mask
    stamps: Any
    values: Any


class Column:
    """A value per slot, which may be absent: columns of a table, and their changes.

    Args:
        space: the keys.
        data_type: type of the values; None if there is only presence.
        clock: the processing time, for the time to live.
    """

    def __init__(self, space: KeySpace, data_type: pa.DataType | None, clock: Clock) -> None:
        self.space = space
        self.ttl: StateTtlConfig | None = None
        self.table = SlotTable(space.scope.memory)
        self.table.add("present", np.bool_)
        self.values = None if data_type is None else values_of(self.table, data_type)
        self.changes = Changes(space.scope.memory)
        self.clock = clock
        #: Number of values that have expired and are gone.
        self.expired = 0
        #: Removes values that have expired, if the column's owner has more to remove than :meth:`drop`.
        self.drop_expired: WeakMethod[Callable[[Slots], None]] | None = None
        space.attach(self)

    @property
    def present(self) -> Mask:
        """True for each slot with a value, also an expired one."""
        return self.table["present"]

    @property
    def type(self) -> pa.DataType:
        """Type of the values; null if there are none."""
        return pa.null() if self.values is None else self.values.type

    def grow(self, capacity: int) -> None:
        """Make room for slots below a number."""
        self.table.grow(capacity)
        self.changes.grow(self.table.capacity)

    def close(self) -> None:
        """Free the values and the keys; snapshots that are being written have what they need."""
        self.values = None
        self.table = SlotTable()
        self.changes = Changes()
        self.space.close()

    def occupied(self) -> Mask:
        """Return True for each slot with a value, or with one in a snapshot."""
        return (self.present | self.changes.saved)[: self.space.capacity]

    def alive(self, slots: Slots) -> Mask:
        """Return True for slots with a value that has not expired."""
        alive = self.present[slots]
        if self.ttl is not None:
            alive &= self.table[STAMP][slots] > self.clock() - self.ttl.millis
        return alive

    def touch(self, slots: Slots) -> None:
        """Announce a write to slots."""
        self.table.touch(slots)
        self.changes.mark(slots)

    def get(self, slots: Slots, alive: Mask) -> pa.Array:
        """Return the values of slots, null where there is none; a read that counts for the time to live."""
        if self.values is None:
            raise StateError("this state has no values")
        if self.ttl is not None and self.ttl.update_type == "on_read_and_write":
            read = slots[alive]
            self.touch(read)
            self.table[STAMP][read] = self.clock()
        self.table.want(slots)
        return self.values.get(slots, alive)

    def put(self, slots: Slots, values: pa.Array | None, stamps: Any = None) -> None:
        """Store values of the right type, one per slot; of equal slots the last counts."""
        self.touch(slots)
        if self.ttl is not None:
            old = distinct(slots)
            self.expired += int(np.count_nonzero(self.present[old] & ~self.alive(old)))
        if self.values is not None:
            self.values.put(slots, values)
        self.present[slots] = True
        if self.ttl is not None or stamps is not None:
            self._stamps()[slots] = self.clock() if stamps is None else stamps
        elif STAMP in self.table:
            self.table[STAMP][slots] = 0

    def drop(self, slots: Slots) -> None:
        """Remove the values of slots."""
        slots = slots[self.present[slots]]
        if len(slots):
            self.touch(slots)
            self.present[slots] = False
            if self.values is not None:
                self.values.drop(slots)

    def expire(self) -> None:
        """Remove all values that have expired."""
        if self.ttl is not None:
            slots = np.flatnonzero(self.present)
            slots = slots[~self.alive(slots)]
            self.expired += len(slots)
            drop = None if self.drop_expired is None else self.drop_expired()
            (drop or self.drop)(slots)

    def evolve(self, data_type: pa.DataType) -> None:
        """Change the type of the values to one with more fields, if it is another.

        Raises:
            SchemaMismatchError: the type is another, and values cannot become of it.
        """
        if self.values is not None:
            adopt_type(self.values, data_type)

    def set_ttl(self, ttl: StateTtlConfig | None) -> None:
        """Set the time to live. Values from before there was one live since now."""
        if ttl is not None and self.ttl is None:
            stamps = self._stamps()
            slots = np.flatnonzero(self.present & (stamps == 0))
            self.touch(slots)
            stamps[slots] = self.clock()
        self.ttl = ttl

    def _stamps(self) -> Any:
        """Return the times of the last updates, a column that state without a time to live need not have."""
        if STAMP not in self.table:
            self.table.add(STAMP, np.int64)
        return self.table[STAMP]

    def freeze(self, snapshot: int | None, *, full: bool) -> FrozenColumn:
        """Return the rows of a snapshot.

        Args:
            snapshot: number of the snapshot, for later ones to have only what changes after it; None if no
                later one builds on it.
            full: True for all rows, False for those that changed since the last completed snapshot.
        """
        self.expire()
        if snapshot is None:
            slots = np.flatnonzero(self.present)
        else:
            slots = self.changes.take(snapshot, self.present, full=full)
        return FrozenColumn(self, slots)

    def load(self, slots: Slots, rows: Rows) -> None:
        """Store rows of a snapshot, one per slot."""
        here, values, stamps = slots, rows.values, rows.stamps
        if not rows.present.all():
            self.drop(slots[~rows.present])
            here = slots[rows.present]
            values = None if values is None else values.filter(pa.array(rows.present))
            stamps = None if stamps is None else stamps[rows.present]
        if values is not None:
            # A file may be older than the last fields of the type.
            values = with_fields(values, self.type)
        self.put(here, values, stamps if stamps is not None and stamps.any() else None)

    def table_rows(self) -> Slots:
        """Return the slots with a value that has not expired."""
        slots = np.flatnonzero(self.present)
        return slots[self.alive(slots)]


class FrozenColumn:
    """The rows of a column at one moment."""

    def __init__(self, column: Column, slots: Slots) -> None:
        self.space = column.space
        self.slots = slots
        self._table = column.table
        self._frozen = column.table.freeze(slots)
        self._decoder = None if column.values is None else column.values.decoder()
        #: The column may get them later, when rows of this snapshot were written without.
        self._has_stamps = STAMP in column.table

    def read(self, slots: Slots) -> Rows:
        """Return rows of some of the slots. Any thread may call it."""
        rows = self._table.read(self._frozen, slots)
        present = rows["present"]
        values = None if self._decoder is None else self._decoder(rows, present)
        return Rows(present, rows[STAMP] if self._has_stamps else None, values)

    def release(self) -> None:
        """Free the copies."""
        self._table.release(self._frozen)


def as_array(values: Any, data_type: pa.DataType | None = None) -> pa.Array:
    """Return values as one Arrow array: of their own type, or of the given one if Arrow finds none for them.

    Raises:
        SchemaMismatchError: values of which Arrow makes no array.
    """
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    if isinstance(values, pa.Array):
        return values
    failures = (pa.ArrowException, TypeError, ValueError, OverflowError)
    try:
        return pa.array(values)
    except failures as error:
        with suppress(*failures):
            if data_type is not None:
                return pa.array(values, data_type)
        raise SchemaMismatchError(
            f"{type(values).__name__} is no array, nor a sequence of values of one type: {error}",
            remedy="an Arrow array · a numpy array · a list",
        ) from error


def cast_to(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return values as those of a type.

    Raises:
        SchemaMismatchError: values that cannot be cast without loss.
    """
    if array.type == data_type:
        return array
    try:
        return array.cast(data_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaMismatchError(
            f"values of type {array.type} cannot be stored as {data_type}: {error}",
            remedy="cast the values to the type of the state",
        ) from error
