"""Values of one Arrow type by slot: in numpy arrays if they have a fixed width, else in Arrow arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.errors import SchemaMismatchError
from headgate.stream.state.table import Mask, Slots, SlotTable

#: Turns rows of a table, and a mask of those to show, into values; other values are null.
Decoder = Callable[[Mapping[str, npt.NDArray[Any]], Mask], pa.Array]

#: Most bytes and values of parts that are joined into one.
_LARGE: Final = 1 << 26
_MANY: Final = 1 << 19


class Values(Protocol):
    """Values by slot, in columns of a table."""

    type: pa.DataType

    def put(self, slots: Slots, values: pa.Array) -> None:
        """Store values, one per slot; of equal slots the last one counts. The table was touched."""

    def drop(self, slots: Slots) -> None:
        """Free what the values of slots take, as far as it is not freed by other values."""

    def decoder(self) -> Decoder:
        """Return the function that makes values of the table's rows as they are now."""


def values_of(table: SlotTable, data_type: pa.DataType) -> Values:
    """Add columns for values of a type to a table."""
    stored = storage_type(data_type)
    if stored is None:
        return ArrowValues(table, data_type)
    return NumpyValues(table, data_type, stored)


def storage_type(data_type: pa.DataType) -> pa.DataType | None:
    """Return the boolean or numeric type whose bits a type has; None if there is none."""
    t = pa.types
    if t.is_boolean(data_type) or t.is_integer(data_type) or t.is_floating(data_type):
        return data_type
    if t.is_date(data_type) or t.is_time(data_type):
        return pa.int32() if data_type.bit_width == 32 else pa.int64()
    return pa.int64() if t.is_timestamp(data_type) or t.is_duration(data_type) else None


def to_numpy(values: pa.Array, stored: pa.DataType) -> npt.NDArray[Any]:
    """Return values as numpy array of their storage type; nulls become zeros."""
    if values.type != stored:
        values = values.view(stored)
    if values.null_count:
        values = values.fill_null(False if pa.types.is_boolean(stored) else 0)
    return np.asarray(values.to_numpy(zero_copy_only=False))


def is_valid(values: pa.Array) -> Mask:
    """Return True for each value that is not null."""
    if not values.null_count:
        return np.ones(len(values), np.bool_)
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False))


class NumpyValues:
    """Values in a numpy array, and one of validity."""

    def __init__(self, table: SlotTable, data_type: pa.DataType, stored: pa.DataType) -> None:
        self.type = data_type
        self.stored = stored
        self._table = table
        table.add("value", stored.to_pandas_dtype())
        table.add("valid", np.bool_)

    def put(self, slots: Slots, values: pa.Array) -> None:
        """See :class:`Values`."""
        self._table["value"][slots] = to_numpy(values, self.stored)
        self._table["valid"][slots] = is_valid(values)

    def drop(self, slots: Slots) -> None:
        """See :class:`Values`."""

    def decoder(self) -> Decoder:
        """See :class:`Values`."""

        def decode(rows: Mapping[str, npt.NDArray[Any]], shown: Mask) -> pa.Array:
            mask = ~(rows["valid"] & shown)
            values = pa.array(rows["value"], self.stored, mask=mask if mask.any() else None)
            return values if self.type == self.stored else values.view(self.type)

        return decode


@dataclass(slots=True)
class _Part:
    """An array of values, which never changes.

    Attributes:
        values: of which some are replaced or dropped.
        slots: the slot of each value.
        start: position of the first one.
        dead: number of those that are replaced or dropped.
        size: bytes.
    """

    values: pa.Array
    slots: npt.NDArray[np.uint32]
    start: int
    dead: int
    size: int


class ArrowValues:
    """Values in Arrow arrays, and the position of each slot's value in all of them.

    A value that is replaced stays in its array. When more than half of an array is replaced, the rest moves behind all
    others, and the array is freed: one array at a time, so that no write takes time for all values.
    """

    def __init__(self, table: SlotTable, data_type: pa.DataType) -> None:
        self.type = data_type
        self._table = table
        self._parts: list[_Part] = []
        #: Position of the next value. Positions of arrays that are freed are not used again.
        self._next = 0
        # Position plus one; 0 is none.
        table.add("position", np.int64)

    def put(self, slots: Slots, values: pa.Array) -> None:
        """See :class:`Values`."""
        if not len(values):
            return
        # A slice would keep all of the array that it is cut from.
        values = pa.concat_arrays([values]) if values.offset else values
        positions = self._table["position"]
        old = positions[slots]
        part = self._append(values, slots)
        counts = positions[slots] == np.arange(part.start + 1, self._next + 1)
        # Of a slot that is there twice, the old value is counted once.
        part.dead = len(slots) - int(np.count_nonzero(counts))
        self._bury(old[counts] if part.dead else old)
        self._join()
        self._clean(1 + part.size // _LARGE)

    def drop(self, slots: Slots) -> None:
        """See :class:`Values`."""
        positions = self._table["position"]
        old = positions[slots]
        # Of a slot that is there twice, the old value is counted once.
        marks = -1 - np.arange(len(slots))
        positions[slots] = marks
        old = old[positions[slots] == marks]
        positions[slots] = 0
        self._bury(old)
        self._clean(1)

    def decoder(self) -> Decoder:
        """See :class:`Values`."""
        parts = [part.values for part in self._parts]
        starts = np.array([part.start for part in self._parts], np.int64)
        data_type = self.type

        def decode(rows: Mapping[str, npt.NDArray[Any]], shown: Mask) -> pa.Array:
            positions = rows["position"] - 1
            hidden = ~shown | (positions < 0)
            if hidden.all():
                return pa.nulls(len(positions), data_type)
            return take(parts, positions, hidden, starts)

        return decode

    def evolve(self, data_type: pa.DataType) -> None:
        """Turn the values into structs with more fields, which are null."""
        for part in self._parts:
            part.values = with_fields(part.values, data_type)
        self.type = data_type

    def _append(self, values: pa.Array, slots: Slots) -> _Part:
        """Add a part with values of slots behind all others."""
        part = _Part(values, slots.astype(np.uint32), self._next, 0, values.nbytes)
        self._next += len(values)
        self._table["position"][slots] = np.arange(part.start + 1, self._next + 1)
        self._parts.append(part)
        return part

    def _bury(self, positions: Slots) -> None:
        """Count values that are replaced or dropped, by their positions plus one."""
        positions = positions[positions > 0]
        if not len(positions):
            return
        starts = [part.start for part in self._parts]
        parts = np.searchsorted(starts, positions - 1, side="right") - 1
        for part, count in zip(self._parts, np.bincount(parts).tolist(), strict=False):
            part.dead += count

    def _join(self) -> None:
        """Join the last parts so that each is longer than all behind it, or large: each value moves log(n) times."""
        parts = self._parts
        end, length, size = len(parts) - 1, len(parts[-1].values), parts[-1].size
        while end:
            before = parts[end - 1]
            rows = len(before.values)
            if rows > length or length + rows > _MANY or size + before.size > _LARGE:
                break
            end, length, size = end - 1, length + rows, size + before.size
        joined = parts[end:]
        if len(joined) == 1:
            return
        dead = sum(part.dead for part in joined)
        follow = all(a.start + len(a.values) == b.start for a, b in pairwise(joined))
        # Small values that are not used cost less than to tell the positions of the others.
        if follow and dead * max(8, size // length // 16) < length:
            values = pa.concat_arrays([part.values for part in joined])
            slots = np.concatenate([part.slots for part in joined])
            self._parts[end:] = [_Part(values, slots, joined[0].start, dead, size)]
        else:
            self._move(joined)

    def _clean(self, most: int) -> None:
        """Free the parts without values, and the values that are not used in some of those that are mostly of these."""
        self._parts = [part for part in self._parts if part.dead < len(part.values)]
        for _ in range(most):
            worst = max(self._parts, key=lambda p: p.dead / len(p.values), default=None)
            if worst is None or 2 * worst.dead <= len(worst.values):
                return
            self._move([worst])
            self._join()

    def _move(self, parts: Sequence[_Part]) -> None:
        """Put the values of parts that are used into one part behind all others."""
        positions = self._table["position"]
        values, slots = [], []
        for part in parts:
            if part.dead:
                places = np.arange(part.start + 1, part.start + 1 + len(part.values))
                used = np.flatnonzero(positions[part.slots] == places)
                values.append(part.values.take(pa.array(used)))
                slots.append(part.slots[used])
            else:
                values.append(part.values)
                slots.append(part.slots)
        self._parts = [part for part in self._parts if not any(part is other for other in parts)]
        moved = np.concatenate(slots).astype(np.int64)
        if len(moved):
            self._table.touch(moved)
            self._append(pa.concat_arrays(values), moved)


def take(
    parts: Sequence[pa.Array],
    positions: npt.NDArray[np.int64],
    hidden: Mask | None = None,
    starts: npt.NDArray[np.int64] | None = None,
) -> pa.Array:
    """Return the values at positions of all parts together, null where hidden; other positions exist.

    ``ChunkedArray.take`` copies all parts into one first: time and memory of the whole state, and an error above 2 GiB
    of strings.

    Args:
        parts: the arrays.
        positions: of the values.
        hidden: True for those to be null; their positions may be below 0.
        starts: position of the first value of each array; None if each follows the one before.
    """
    if starts is None:
        starts = np.cumsum([0, *map(len, parts)])[:-1]
    if len(parts) == 1:
        return parts[0].take(pa.array(positions - starts[0], mask=hidden))
    order = np.argsort(positions, kind="stable")
    ordered = positions[order]
    cuts = np.r_[np.searchsorted(ordered, starts), len(ordered)]
    values = [
        part.take(pa.array(ordered[begin:end] - first))
        for part, first, (begin, end) in zip(parts, starts, pairwise(cuts), strict=True)
        if begin < end
    ]
    # Positions below 0 are hidden, and not among these values.
    place = np.empty_like(order)
    place[order] = np.arange(-cuts[0], len(order) - cuts[0])
    return pa.concat_arrays(values).take(pa.array(place, mask=hidden))


def with_fields(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return values of a type, of which structs may have more fields than before; these are null.

    Raises:
        SchemaMismatchError: the type has not all fields of the values, or new ones that are not nullable.
    """
    old = values.type
    if old == data_type:
        return values
    if not evolves(old, data_type):
        raise SchemaMismatchError(
            f"state of type {old} cannot become {data_type}",
            remedy="keep all fields as they are, and add nullable ones",
        )
    fields = [
        values.field(old.get_field_index(field.name))
        if old.get_field_index(field.name) >= 0
        else pa.nulls(len(values), field.type)
        for field in data_type
    ]
    # field() ignores the offset and the validity of the struct itself.
    if values.offset:
        return with_fields(pa.concat_arrays([values]), data_type)
    mask = values.is_null() if values.null_count else None
    return pa.StructArray.from_arrays(fields, fields=list(data_type), mask=mask)


def evolves(old: pa.DataType, new: pa.DataType) -> bool:
    """Return True if structs of the old type can get fields to be of the new one."""
    if not (pa.types.is_struct(old) and pa.types.is_struct(new)):
        return False
    old_fields = {field.name: field for field in old}
    fields = {field.name: field for field in new}
    return old_fields.keys() <= fields.keys() and all(
        field.type == old_fields[name].type if name in old_fields else field.nullable
        for name, field in fields.items()
    )


def adopt_type(values: Values, data_type: pa.DataType) -> None:
    """Change the type of stored values to one with more fields, if it is another.

    Raises:
        SchemaMismatchError: the type is another, and values cannot become of it.
    """
    if values.type == data_type:
        return
    if not (isinstance(values, ArrowValues) and evolves(values.type, data_type)):
        raise SchemaMismatchError(
            f"state of type {values.type} cannot become {data_type}",
            remedy="declare the old type · a struct may gain nullable fields",
        )
    values.evolve(data_type)
