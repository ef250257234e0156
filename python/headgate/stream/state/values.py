"""Values of one Arrow type by slot: in numpy arrays if they have a fixed width, else in Arrow arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.errors import SchemaMismatchError
from headgate.stream.state.table import Mask, Slots, SlotTable

#: Turns rows of a table, and a mask of those to show, into values; other values are null.
Decoder = Callable[[Mapping[str, npt.NDArray[Any]], Mask], pa.Array]

#: Most bytes of parts that are joined into one.
_LARGE: Final = 1 << 28
#: Values of which fewer are not worth compacting.
_FEW: Final = 1 << 12


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


class ArrowValues:
    """Values in Arrow arrays that only grow, and the position of each slot's value in all of them."""

    def __init__(self, table: SlotTable, data_type: pa.DataType) -> None:
        self.type = data_type
        self._table = table
        #: Arrays without change; they are replaced, so a decoder keeps those of its moment.
        self._parts: tuple[pa.Array, ...] = ()
        self._length = 0
        #: Positions beyond which it is worth looking for values that are no longer used.
        self._compact_at = _FEW
        # Position plus one; 0 is none.
        table.add("position", np.int64)

    def put(self, slots: Slots, values: pa.Array) -> None:
        """See :class:`Values`."""
        if not len(values):
            return
        # A slice would keep all of the array that it is cut from.
        values = pa.concat_arrays([values]) if values.offset else values
        self._parts = _joined((*self._parts, values))
        at = self._length + 1
        self._length += len(values)
        self._table["position"][slots] = np.arange(at, at + len(values))
        if self._length > self._compact_at:
            self._compact()

    def drop(self, slots: Slots) -> None:
        """See :class:`Values`."""
        self._table["position"][slots] = 0

    def decoder(self) -> Decoder:
        """See :class:`Values`."""
        parts, data_type = self._parts, self.type

        def decode(rows: Mapping[str, npt.NDArray[Any]], shown: Mask) -> pa.Array:
            positions = rows["position"] - 1
            hidden = ~shown | (positions < 0)
            if hidden.all():
                return pa.nulls(len(positions), data_type)
            return take(parts, positions, hidden)

        return decode

    def evolve(self, data_type: pa.DataType) -> None:
        """Turn the values into structs with more fields, which are null."""
        self._parts = tuple(with_fields(part, data_type) for part in self._parts)
        self.type = data_type

    def _compact(self) -> None:
        positions = self._table["position"]
        used = np.flatnonzero(positions)
        if 2 * len(used) < self._length:
            self._table.touch(used)
            rows = max(1, len(used) * _LARGE // max(_LARGE, self._bytes()))
            kept = [used[at : at + rows] for at in range(0, len(used), rows)]
            self._parts = tuple(take(self._parts, positions[some] - 1) for some in kept)
            positions[used] = np.arange(1, len(used) + 1)
            self._length = len(used)
        self._compact_at = max(_FEW, 2 * self._length)

    def _bytes(self) -> int:
        return sum(part.nbytes for part in self._parts)


def take(
    parts: Sequence[pa.Array], positions: npt.NDArray[np.int64], hidden: Mask | None = None
) -> pa.Array:
    """Return the values at positions of all parts together, null where hidden; other positions exist.

    ``ChunkedArray.take`` copies all parts into one first: time and memory of the whole state, and an error above 2 GiB
    of strings.
    """
    if len(parts) == 1:
        return parts[0].take(pa.array(positions, mask=hidden))
    order = np.argsort(positions, kind="stable")
    ordered = positions[order]
    ends = np.cumsum([0, *map(len, parts)])
    cuts = np.searchsorted(ordered, ends)
    taken = [
        part.take(pa.array(ordered[begin:end] - first))
        for part, first, (begin, end) in zip(parts, ends[:-1], pairwise(cuts), strict=True)
        if begin < end
    ]
    # Positions below 0 are hidden, and not among those taken.
    place = np.empty_like(order)
    place[order] = np.arange(-cuts[0], len(order) - cuts[0])
    return pa.concat_arrays(taken).take(pa.array(place, mask=hidden))


def _joined(parts: tuple[pa.Array, ...]) -> tuple[pa.Array, ...]:
    """Join the last parts so that each is longer than all behind it, or large: each value moves log(n) times."""
    end, length, size = len(parts) - 1, len(parts[-1]), parts[-1].nbytes
    while end and len(parts[end - 1]) <= length and size + parts[end - 1].nbytes <= _LARGE:
        end -= 1
        length += len(parts[end])
        size += parts[end].nbytes
    return (*parts[:end], pa.concat_arrays(parts[end:]) if end < len(parts) - 1 else parts[-1])


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
    kept = {field.name: field for field in old}
    fields = {field.name: field for field in new}
    return kept.keys() <= fields.keys() and all(
        field.type == kept[name].type if name in kept else field.nullable
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
