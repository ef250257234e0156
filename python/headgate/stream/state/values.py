"""Values of one Arrow type by slot: in numpy arrays if they have a fixed width, else in Arrow arrays, outside of Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate import _native
from headgate.errors import SchemaMismatchError
from headgate.stream.state.table import Mask, Slots, SlotTable

#: Turns rows of a table, and a mask of those to show, into values; other values are null.
Decoder = Callable[[Mapping[str, npt.NDArray[Any]], Mask], pa.Array]


class Values(Protocol):
    """Values by slot, in columns of a table."""

    type: pa.DataType

    def put(self, slots: Slots, values: pa.Array) -> None:
        """Store values, one per slot; of equal slots the last one counts. The table was touched."""

    def drop(self, slots: Slots) -> None:
        """Free what the values of slots take, as far as it is not freed by other values."""

    def get(self, slots: Slots, shown: Mask) -> pa.Array:
        """Return the values of slots; null where a mask is False, of slots below 0 too."""

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


def decoded(values: pa.Array) -> pa.Array:
    """Return the values of a dictionary, which Arrow cannot sort; others as they are."""
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def is_valid(values: pa.Array) -> Mask:
    """Return True for each value that is not null."""
    if not values.null_count:
        return np.ones(len(values), np.bool_)
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False))


#: Name of the column that is True for nulls.
_NULL: Final = "null"


class NumpyValues:
    """Values in a numpy array, and one of nulls once there is one."""

    def __init__(self, table: SlotTable, data_type: pa.DataType, stored: pa.DataType) -> None:
        self.type = data_type
        self.stored = stored
        self._table = table
        table.add("value", stored.to_pandas_dtype())

    def put(self, slots: Slots, values: pa.Array) -> None:
        """See :class:`Values`."""
        if values.null_count and _NULL not in self._table:
            self._table.add(_NULL, np.bool_)
        self._table["value"][slots] = to_numpy(values, self.stored)
        if _NULL in self._table:
            self._table[_NULL][slots] = ~is_valid(values)

    def drop(self, slots: Slots) -> None:
        """See :class:`Values`."""

    def get(self, slots: Slots, shown: Mask) -> pa.Array:
        """See :class:`Values`."""
        names = ("value", _NULL) if _NULL in self._table else ("value",)
        return self.decoder()({name: self._table[name][slots] for name in names}, shown)

    def decoder(self) -> Decoder:
        """See :class:`Values`."""

        def decode(rows: Mapping[str, npt.NDArray[Any]], shown: Mask) -> pa.Array:
            mask = ~shown | rows[_NULL] if _NULL in rows else ~shown
            values = pa.array(rows["value"], self.stored, mask=mask if mask.any() else None)
            return values if self.type == self.stored else values.view(self.type)

        return decode


class ArrowValues:
    """Values in Arrow arrays, and the position of each slot's value in them, which it has as long as it is there."""

    def __init__(self, table: SlotTable, data_type: pa.DataType) -> None:
        self.type = data_type
        self._table = table
        self._schema = one_column(data_type)
        self._values = _native.ArrowValues(self._schema, table.memory.native)
        # 0 is none.
        table.add("position", np.int64)

    @property
    def num_held(self) -> int:
        """Number of values in memory, with those that are replaced or dropped and not freed yet."""
        return len(self._values)

    def put(self, slots: Slots, values: pa.Array) -> None:
        """See :class:`Values`."""
        # A slice would keep all of the array that it is cut from.
        values = pa.concat_arrays([values]) if values.offset else values
        batch = pa.RecordBatch.from_arrays([values], schema=self._schema)
        positions = self._table["position"]
        first = self._values.put(batch, positions[slots])
        places = np.arange(first, first + len(slots))
        positions[slots] = places
        # Of a slot that is there twice, the last value counts.
        replaced = places[positions[slots] != places]
        if len(replaced):
            self._values.drop(replaced)

    def drop(self, slots: Slots) -> None:
        """See :class:`Values`."""
        positions = self._table["position"]
        dropped = positions[slots]
        positions[slots] = 0
        self._values.drop(dropped)

    def get(self, slots: Slots, shown: Mask) -> pa.Array:
        """See :class:`Values`."""
        return self.decoder()({"position": self._table["position"][slots]}, shown)

    def decoder(self) -> Decoder:
        """See :class:`Values`."""
        values = self._values.freeze()

        def decode(rows: Mapping[str, npt.NDArray[Any]], shown: Mask) -> pa.Array:
            return values.take(np.where(shown, rows["position"], 0))

        return decode

    def evolve(self, data_type: pa.DataType) -> None:
        """Turn the values into structs with more fields, which are null."""
        self._schema = one_column(data_type)
        self._values = self._values.evolved(self._schema)
        self.type = data_type


def one_column(data_type: pa.DataType) -> pa.Schema:
    """Return the schema of batches with values of a type."""
    return pa.schema([pa.field("value", data_type)])


def frozen_values(parts: Sequence[pa.Array]) -> _native.FrozenValues | None:
    """Return values of one type by their number plus one; None if there is no array."""
    if not parts:
        return None
    schema = one_column(parts[0].type)
    values = _native.ArrowValues(schema)
    for part in parts:
        values.put(pa.RecordBatch.from_arrays([part], schema=schema), np.zeros(0, np.int64))
    return values.freeze()


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
