"""The batch that a call of state is about, and which of its rows or keys take part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headgate.errors import StateError
from headgate.stream.state.column import as_array, cast_to

if TYPE_CHECKING:
    from headgate.stream.state.keys import Batch
    from headgate.stream.state.table import Mask, Slots

_ROW, _KEY = "row", "distinct key"


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows or the distinct keys of a batch that take part in a call.

    Attributes:
        batch: the batch.
        of: ``"row"`` or ``"distinct key"``.
        count: number of all of them.
        at: positions of those that take part; None for all.
    """

    batch: Batch
    of: str
    count: int
    at: Slots | None

    @property
    def slots(self) -> Slots:
        """Slot of the key of each selected row, or of each selected key."""
        return self.numbers(self.batch.row_slots if self.of == _ROW else self.batch.slots)

    def numbers(self, of_all: Slots) -> Slots:
        """Return the numbers of those that take part."""
        return of_all if self.at is None else of_all[self.at]

    def rows(self, of_all: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of those that take part."""
        return of_all if self.at is None else of_all.take(pa.array(self.at))

    def values(self, values: Any, data_type: pa.DataType) -> pa.Array:
        """Return the values of those that take part, as an array of a type.

        Raises:
            StateError: not one value for each row or key, also for those that take no part.
            SchemaMismatchError: values that cannot be cast without loss.
        """
        array = as_array(values, data_type)
        if len(array) != self.count:
            raise self._wrong_length("values", len(array))
        if self.at is not None:
            array = array.take(pa.array(self.at))
        return cast_to(array, data_type)

    def _wrong_length(self, what: str, length: int) -> StateError:
        rows, keys = len(self.batch.rows), len(self.batch.slots)
        remedy = f"one of the {what} for each {self.of}"
        if self.of == _KEY and length == rows:
            remedy += (
                ", in the order of context.keys · a ReducingState or ListState takes one per row"
            )
        elif self.of == _ROW and length == keys:
            remedy += ": values.take(context.rows) has them, if there is one for each distinct key"
        return StateError(
            f"{length} {what} were given where {self.count} are needed, one per {self.of}",
            have=f"a batch of {rows} rows with {keys} distinct keys",
            remedy=remedy,
        )


class CurrentBatch:
    """The batch whose keys the states of a backend are about."""

    def __init__(self) -> None:
        self._batch: Batch | None = None

    def set(self, batch: Batch | None) -> None:
        """Set the batch."""
        self._batch = batch

    @property
    def batch(self) -> Batch:
        """The batch.

        Raises:
            StateError: no keys were set.
        """
        if self._batch is None:
            raise StateError("state was used before any keys were set", remedy="backend.set_keys()")
        return self._batch

    def rows(self, where: Any = None) -> Selection:
        """Select rows.

        Args:
            where: booleans, one per row, or one per distinct key for all rows of it; null is False. None for all rows.

        Raises:
            StateError: no keys were set, or ``where`` is something else.
        """
        return self._select(where, _ROW)

    def keys(self, where: Any = None) -> Selection:
        """Select distinct keys.

        Args:
            where: booleans, one per distinct key, or one per row for the keys of the rows that are True; null is False.
                None for all keys.

        Raises:
            StateError: no keys were set, or ``where`` is something else.
        """
        return self._select(where, _KEY)

    def _select(self, where: Any, of: str) -> Selection:
        batch = self.batch
        rows, keys = len(batch.rows), len(batch.slots)
        count = rows if of == _ROW else keys
        if where is None:
            return Selection(batch, of, count, None)
        mask = _mask_of(where)
        # If there are as many keys as rows, the keys are those of the rows in order, and both readings are one.
        if len(mask) not in {rows, keys}:
            raise StateError(
                f"where= has {len(mask)} booleans",
                have=f"a batch of {rows} rows with {keys} distinct keys",
                remedy="one boolean per row · one per distinct key",
            )
        if len(mask) != count and of == _ROW:
            mask = mask[batch.rows]
        elif len(mask) != count:
            of_keys = np.zeros(keys, np.bool_)
            of_keys[batch.rows[mask]] = True
            mask = of_keys
        return Selection(batch, of, count, np.flatnonzero(mask))


def _mask_of(where: Any) -> Mask:
    array = as_array(where)
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.bool_)
    if not pa.types.is_boolean(array.type):
        raise StateError(
            f"where= has values of type {array.type}",
            remedy='where=pc.greater(batch["price"], 3) · booleans, one per row or per distinct key',
        )
    return np.asarray(array.fill_null(False).to_numpy(zero_copy_only=False))
