"""ListState: elements in columns, and a chain of elements per key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from headgate import _native
from headgate.stream.state.column import STAMP, Rows, as_array
from headgate.stream.state.memory import want
from headgate.stream.state.table import Changes, Frozen, Mask, Slots, SlotTable, ranges
from headgate.stream.state.values import Decoder, adopt_type, values_of, with_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.stream.state.column import Clock
    from headgate.stream.state.current import CurrentBatch
    from headgate.stream.state.descriptors import StateDescriptor, StateTtlConfig
    from headgate.stream.state.keys import KeySpace


class ListState:
    """A list per key, to which values are added row by row."""

    kind = "list"
    #: Further numbers of each element, which snapshots have too: columns of int64.
    _numbers: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        name: str,
        data_type: pa.DataType,
        space: KeySpace,
        current: CurrentBatch,
        clock: Clock,
    ) -> None:
        self.name = name
        self.space = space
        self.ttl: StateTtlConfig | None = None
        self.changes = Changes(space.scope.memory)
        self._current = current
        self._clock = clock
        self._chains = _native.Chains(space.scope.memory.native)
        #: Number of elements that have expired and are gone.
        self.expired = 0
        #: Number of elements by slot of the key.
        self._counts: Slots = np.zeros(0, np.int64)
        #: Elements; the slot of each one's key is 0 if it is free, else one more.
        self._elements = SlotTable(space.scope.memory)
        self._elements.add("owner", np.int64)
        for number in (STAMP, *self._numbers):
            self._elements.add(number, np.int64)
        self._values = values_of(self._elements, data_type)
        space.attach(self)

    @classmethod
    def create(
        cls, name: str, types: pa.Schema, space: KeySpace, current: CurrentBatch, clock: Clock
    ) -> Self:
        """Return new state of the types that a manifest has."""
        return cls(name, types.field("value").type, space, current, clock)

    def get(self) -> pa.ListArray:
        """Return the list of each distinct key of the batch; an empty one for a key without elements."""
        return self._lists(*self._read(self._current.batch.slots))

    def lengths(self) -> Slots:
        """Return the length of the list of each distinct key of the batch, with elements that have expired."""
        return self._counts[self._current.batch.slots]

    def add(self, values: Any, *, where: Any = None) -> None:
        """Append a value per row to the list of the row's key. Nulls are elements too.

        Args:
            values: an array with one value per row of the batch.
            where: booleans, one per row or per distinct key, for the rows that are added: ``values.is_valid()`` leaves
                nulls out. None for all.

        Raises:
            StateError: another number of values or booleans.
            SchemaMismatchError: values that cannot be cast to the type of an element.
        """
        selection = self._current.rows(where)
        values = selection.values(values, self._values.type)
        self._append(selection.slots, values, self._now())

    def put(self, lists: Any, *, where: Any = None) -> None:
        """Replace the list of each distinct key.

        Args:
            lists: a list array with one list per distinct key. A null or empty list removes the key's list.
            where: booleans, one per distinct key or per row, for the keys that are set; others stay. None for all.

        Raises:
            StateError: another number of lists or booleans.
            SchemaMismatchError: elements that cannot be cast to their type.
        """
        selection = self._current.keys(where)
        slots, lists = selection.slots, selection.values(lists, pa.list_(self._values.type))
        self.replace(slots, _lengths(lists), lists.flatten())

    def replace(self, slots: Slots, lengths: Slots, values: pa.Array) -> None:
        """Replace the lists of slots.

        Args:
            slots: of the keys, each once.
            lengths: of the new lists.
            values: all elements, of their type.
        """
        self._drop(slots)
        self._append(np.repeat(slots, lengths), values, self._now())

    def clear(self, *, where: Any = None) -> None:
        """Remove the list of each distinct key of the batch, or of some: ``where`` as for :meth:`put`."""
        self._drop(self._current.keys(where).slots)

    # --- as columns of the key space, and in snapshots ---

    def close(self) -> None:
        """Free the elements; snapshots that are being written have what they need."""
        self._elements = SlotTable()
        self._values = values_of(self._elements, self._values.type)
        self._chains = _native.Chains()
        self._counts, self.changes = self._counts[:0].copy(), Changes()

    @property
    def types(self) -> pa.Schema:
        """The types, as a manifest has them."""
        return pa.schema([("value", self._values.type)])

    @property
    def present(self) -> Mask:
        """True for each slot with elements."""
        return self._counts > 0

    def grow(self, capacity: int) -> None:
        """Make room for slots below a number."""
        self._counts = self.space.scope.memory.wider(self._counts, capacity)
        self.changes.grow(capacity)

    def occupied(self) -> Mask:
        """Return True for each slot whose key must stay."""
        return self.present | self.changes.saved

    def declare(self, descriptor: StateDescriptor) -> None:
        """Take over what a descriptor says and a snapshot does not."""
        adopt_type(self._values, descriptor.type)
        if descriptor.ttl is not None and self.ttl is None:
            # Elements from before there was a time to live: they live since now.
            stamps, owners = self._elements[STAMP], self._elements["owner"]
            elements = np.flatnonzero((owners > 0) & (stamps == 0))
            self._elements.touch(elements)
            self.changes.mark(owners[elements] - 1)
            stamps[elements] = self._clock()
        self.ttl = descriptor.ttl

    def freeze(self, snapshot: int | None, *, full: bool) -> FrozenList:
        """Return the lists of a snapshot. A list that changed is in it as a whole."""
        self.expire()
        if snapshot is None:
            slots = np.flatnonzero(self.present)
        else:
            slots = self.changes.take(snapshot, self.present, full=full)
        return FrozenList(
            self.space,
            slots,
            self._collect(slots),
            self._elements,
            self._values.decoder(),
            (STAMP, *self._numbers),
        )

    def load(self, slots: Slots, rows: Rows) -> None:
        """Store lists of a snapshot, one per slot."""
        self._drop(slots)
        lists = rows.values
        items = lists.flatten()
        values = with_fields(items.field("element"), self._values.type)
        numbers = [np.asarray(items.field(n).to_numpy()) for n in (STAMP, *self._numbers)]
        self._append(np.repeat(slots, _lengths(lists)), values, *numbers)

    def table(self) -> pa.Table:
        """Return all keys with their lists."""
        lengths, elements = self._alive(np.flatnonzero(self.present))
        slots = np.flatnonzero(self.present)[lengths > 0]
        table = pa.Table.from_batches([self.space.keys(slots)])
        return table.append_column("value", self._lists(lengths[lengths > 0], elements))

    # --- elements ---

    def _now(self) -> int:
        return 0 if self.ttl is None else self._clock()

    def _append(self, owners: Slots, values: pa.Array, *numbers: Any) -> Slots:
        """Add an element to the list of each owner, with its stamp and further numbers; return the elements."""
        elements = self._allocate(len(values))
        if not len(values):
            return elements
        self._elements.touch(elements)
        self._elements["owner"][elements] = owners + 1
        for name, column in zip((STAMP, *self._numbers), numbers, strict=True):
            self._elements[name][elements] = column
        self._values.put(elements, values)
        self._chains.append(pa.array(owners), pa.array(elements))
        want(self.space.scope.memory, self._counts, owners)
        np.add.at(self._counts, owners, 1)
        self.changes.mark(owners)
        return elements

    def _drop(self, slots: Slots) -> None:
        want(self.space.scope.memory, self._counts, slots)
        slots = slots[self._counts[slots] > 0]
        _, elements = self._collect(slots)
        self._chains.clear(pa.array(slots))
        self._counts[slots] = 0
        self.changes.mark(slots)
        self._release(elements)

    def expire(self) -> None:
        """Remove the elements that have expired."""
        if self.ttl is None:
            return
        elements = np.flatnonzero(self._elements["owner"])
        elements = elements[~self._fresh(elements)]
        self.expired += len(elements)
        self._remove(elements)

    def _remove(self, elements: Slots) -> None:
        """Take elements out of their lists."""
        owners = self._elements["owner"][elements] - 1
        self._chains.remove(pa.array(owners), pa.array(elements))
        want(self.space.scope.memory, self._counts, owners)
        np.subtract.at(self._counts, owners, 1)
        self.changes.mark(owners)
        self._release(elements)

    def _fresh(self, elements: Slots) -> Mask:
        if self.ttl is None:
            return np.ones(len(elements), np.bool_)
        fresh: Mask = self._elements[STAMP][elements] > self._clock() - self.ttl.millis
        return fresh

    def _collect(self, slots: Slots) -> tuple[Slots, Slots]:
        lengths, elements = self._chains.collect(pa.array(slots))
        return lengths.to_numpy(), elements.to_numpy()

    def _read(self, slots: Slots) -> tuple[Slots, Slots]:
        """Return the length of each slot's list, and all elements; a read may let them live on."""
        lengths, elements = self._alive(slots)
        if self.ttl is not None and self.ttl.update_type == "on_read_and_write":
            self._elements.touch(elements)
            self._elements[STAMP][elements] = self._clock()
            self.changes.mark(slots[lengths > 0])
        return lengths, elements

    def _alive(self, slots: Slots) -> tuple[Slots, Slots]:
        """Return the length of each slot's list, and all elements, without those that expired."""
        lengths, elements = self._collect(slots)
        if self.ttl is None:
            return lengths, elements
        fresh = self._fresh(elements)
        lists = np.repeat(np.arange(len(slots)), lengths)[fresh]
        return np.bincount(lists, minlength=len(slots)), elements[fresh]

    def _lists(self, lengths: Slots, elements: Slots) -> pa.ListArray:
        shown = np.ones(len(elements), np.bool_)
        values = self._values.decoder()(self._elements.rows(elements), shown)
        return pa.ListArray.from_arrays(_offsets(lengths), values)

    def _allocate(self, count: int) -> Slots:
        elements: Slots = self._chains.take(count).to_numpy()
        self._elements.grow(int(elements.max(initial=-1)) + 1)
        return elements

    def _release(self, elements: Slots) -> None:
        if len(elements):
            self._elements.touch(elements)
            self._elements["owner"][elements] = 0
            self._values.drop(elements)
            self._chains.give_back(elements)


class FrozenList:
    """The lists of slots at one moment. An element of a file has the time at which it expires with it."""

    def __init__(
        self,
        space: KeySpace,
        slots: Slots,
        chains: tuple[Slots, Slots],
        elements: SlotTable,
        decoder: Decoder,
        numbers: Sequence[str],
    ) -> None:
        self.space = space
        self.slots = slots
        self._lengths, self._nodes = chains
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._table = elements
        self._frozen: Frozen = elements.freeze(self._nodes)
        self._decoder = decoder
        self._numbers = numbers

    def read(self, slots: Slots) -> Rows:
        """Return the lists of some of the slots. Any thread may call it."""
        at = np.searchsorted(self.slots, slots)
        lengths = self._lengths[at]
        nodes = self._nodes[ranges(self._starts[at], lengths)]
        rows = self._table.read(self._frozen, nodes)
        shown = np.ones(len(nodes), np.bool_)
        elements = self._decoder(rows, shown)
        numbers = [pa.array(rows[name], pa.int64()) for name in self._numbers]
        items = pa.StructArray.from_arrays([elements, *numbers], names=["element", *self._numbers])
        lists = pa.ListArray.from_arrays(_offsets(lengths), items)
        return Rows(lengths > 0, None, lists)

    def release(self) -> None:
        """Free the copies."""
        self._table.release(self._frozen)


def _offsets(lengths: Slots) -> pa.Array:
    return pa.array(np.r_[0, np.cumsum(lengths)], pa.int32())


def _lengths(lists: pa.Array) -> Slots:
    return np.asarray(as_array(lists).value_lengths().fill_null(0).to_numpy().astype(np.int64))
