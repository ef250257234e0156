"""The base of joins of two keyed streams: columns of the result, and rows of both sides in state. ADR 0054."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from headgate._changes import without_changes
from headgate.errors import StreamError
from headgate.stream.graph.operator import LATE_DROPPED, OperatorContext, OperatorSnapshot
from headgate.stream.operators.keyed import KeyedOperator
from headgate.stream.state.descriptors import RowStateDescriptor, StateTtlConfig
from headgate.stream.state.row_index import with_nulls
from headgate.stream.state.timers import NO_WATERMARK, kept_watermark
from headgate.stream.state.zeros import normalized

if TYPE_CHECKING:
    from headgate.stream.operators.sides import Sides
    from headgate.stream.state.rows import RowState
    from headgate.stream.state.table import Mask, Slots

How: TypeAlias = Literal["inner", "left", "right", "full"]
HOWS: Final = ("inner", "left", "right", "full")
#: Names of the side outputs of late rows, by side.
LATE_SIDES: Final = ("late", "late_right")
#: Names of the sides, in those of their states.
_SIDES: Final = ("left", "right")
#: Most rows of the state that are emitted at once.
_PART: Final = 1 << 16
#: The side of a column of the result that is a key.
_KEY: Final = 2


@dataclass(frozen=True, slots=True)
class JoinedColumns:
    """The columns of the result: those of the left side, and behind them those of the right side but the keys.

    Attributes:
        schema: of the result.
        sources: for each column its side, or 2 for a key, and its number among the side's columns that are no keys.
        stored: for each side the schema of its columns that are no keys.
    """

    schema: pa.Schema
    sources: tuple[tuple[int, int], ...]
    stored: tuple[pa.Schema, pa.Schema]

    def batch(
        self,
        keys: Sequence[pa.Array],
        values: Sequence[Sequence[pa.Array] | None],
        *more: pa.Array,
    ) -> pa.RecordBatch:
        """Return rows of the result.

        Args:
            keys: the key columns.
            values: for each side its columns that are no keys; None for nulls.
            more: columns of the result behind those of both sides.
        """
        rows = len(keys[0])
        columns = []
        for field, (side, at) in zip(self.schema, self.sources, strict=False):
            of_side = keys if side == _KEY else values[side]
            columns.append(pa.nulls(rows, field.type) if of_side is None else of_side[at])
        return pa.RecordBatch.from_arrays([*columns, *more], schema=self.schema)


def joined_columns(
    sides: Sides, how: How, suffixes: tuple[str, str], more: Sequence[pa.Field] = ()
) -> JoinedColumns:
    """Return the columns of the result of a join.

    Args:
        sides: both streams.
        how: the kind of join.
        suffixes: what names get that both sides have.
        more: columns behind them.

    Raises:
        StreamError: two columns of the result have one name.
    """
    keys = [list(of_side) for of_side in sides.keys]
    left, right = sides.schemas
    others = [
        [field for field in without_changes(schema) if field.name not in of_side]
        for schema, of_side in zip((left, right), keys, strict=True)
    ]
    names = [{field.name for field in fields} for fields in others]
    shared = (names[0] & names[1], (names[0] | set(keys[0])) & names[1])
    is_optional = (how in {"right", "full"}, how in {"left", "full"})

    def field_of(side: int, field: pa.Field) -> pa.Field:
        name = field.name + suffixes[side] * (field.name in shared[side])
        return pa.field(name, field.type, field.nullable or is_optional[side])

    fields, sources = [], []
    for field in without_changes(left):
        if field.name in keys[0]:
            fields.append(field.with_nullable(True))
            sources.append((_KEY, keys[0].index(field.name)))
        else:
            fields.append(field_of(0, field))
            sources.append((0, others[0].index(field)))
    for at, field in enumerate(others[1]):
        fields.append(field_of(1, field))
        sources.append((1, at))
    fields += more
    all_names = [field.name for field in fields]
    doubled = sorted({name for name in all_names if all_names.count(name) > 1})
    if doubled:
        raise StreamError(
            f"the result of the join would have two columns {', '.join(map(repr, doubled))}",
            asked=f"suffixes={suffixes!r}",
            have=", ".join(all_names),
            remedy='suffixes=("", "_right") · rename or drop columns in a map() before',
        )
    stored = pa.schema(others[0]), pa.schema(others[1])
    return JoinedColumns(pa.schema(fields), tuple(sources), stored)


class JoinOperator(KeyedOperator):
    """The base of joins. A null key matches nothing, as in SQL.

    Args:
        sides: both streams.
        columns: of the result.
        how: the kind of join.
    """

    #: The kind of join.
    _kind: ClassVar[str]
    #: Time to live of the rows in state.
    _ttl: StateTtlConfig | None = None

    def __init__(self, sides: Sides, columns: JoinedColumns, how: How) -> None:
        self._sides, self._columns = sides, columns
        #: True for a side whose rows without a match are emitted.
        self._is_outer = (how in {"left", "full"}, how in {"right", "full"})
        self._key_places = [
            [schema.get_field_index(key) for key in keys]
            for schema, keys in zip(sides.schemas, sides.keys, strict=True)
        ]
        self._value_places = [
            [schema.get_field_index(name) for name in stored.names]
            for schema, stored in zip(sides.schemas, columns.stored, strict=True)
        ]

    def open(self, context: OperatorContext) -> None:
        """Restore the rows."""
        super().open(context)
        self._state = self._restore(context, self._sides.key_schema)
        self._rows: list[RowState] = [
            self._state.get_state(
                RowStateDescriptor(self._state_name(side), _struct_of(stored), self._ttl)
            )
            for side, stored in enumerate(self._columns.stored)
        ]
        self._opened(context)
        restored = context.restored_watermark
        self.watermark = NO_WATERMARK if restored is None else restored

    def _state_name(self, side: int) -> str:
        """Return the name of a side's state: it has what this kind of join needs, and pairs are counted on outer sides."""
        return f"{_SIDES[side]} rows of {self._kind}" + ", outer" * self._is_outer[side]

    def process(self, batch: pa.RecordBatch) -> None:
        """Handle the rows of each side."""
        for side, rows in self._sides.split(batch):
            self._take(side, rows)

    def _take(self, side: int, rows: pa.RecordBatch) -> None:
        """Handle rows of one side."""
        raise NotImplementedError

    def _admit(
        self, side: int, rows: pa.RecordBatch, times: Slots, *, is_ever_late: bool = True
    ) -> tuple[pa.RecordBatch, Slots]:
        """Return the rows that may match, and their times; emit late ones, and those without a key of an outer side."""
        if is_ever_late and (late := times <= self.watermark).any():
            self._context.emit(chosen(rows, late), LATE_SIDES[side])
            rows, times = chosen(rows, ~late), times[~late]
        if (without := self._without_key(side, rows)) is not None:
            if self._is_outer[side]:
                self._emit_alone(side, chosen(rows, without))
            rows, times = chosen(rows, ~without), times[~without]
        return rows, times

    def _keys_of(self, side: int, rows: pa.RecordBatch) -> list[pa.Array]:
        """Return the keys of rows, of which equal ones have one form."""
        return list(normalized(rows.select(self._key_places[side])).columns)

    def _values_of(self, side: int, rows: pa.RecordBatch) -> list[pa.Array]:
        return [rows.column(at) for at in self._value_places[side]]

    def _without_key(self, side: int, rows: pa.RecordBatch) -> Mask | None:
        """Return True for each row with a null key; None if there is none."""
        return with_nulls(rows.select(self._key_places[side]))

    def _stored(self, side: int, rows: pa.RecordBatch) -> pa.StructArray:
        """Return what the state keeps of rows."""
        fields = list(_struct_of(self._columns.stored[side]))
        values = self._values_of(side, rows) or [pa.repeat(True, rows.num_rows)]
        return pa.StructArray.from_arrays(values, fields=fields)

    def _emit_alone(self, side: int, rows: pa.RecordBatch) -> None:
        """Emit rows of one side with nulls for the other."""
        if rows.num_rows:
            values: list[list[pa.Array] | None] = [None, None]
            values[side] = self._values_of(side, rows)
            self._context.emit(self._columns.batch(self._keys_of(side, rows), values), None)

    def _emit_of_state(
        self, lefts: Slots, rights: Slots, more: Callable[[Slots], Sequence[pa.Array]] | None = None
    ) -> None:
        """Emit pairs of the state's rows of both sides; a number below 0 is for no row.

        Args:
            lefts: elements of the left side.
            rights: elements of the right side.
            more: returns the columns behind those of both sides, for some of the pairs by their numbers.
        """
        for start in range(0, len(lefts), _PART):
            pairs = lefts[start : start + _PART], rights[start : start + _PART]
            values = [state.rows(part) for state, part in zip(self._rows, pairs, strict=True)]
            # One of both has the row.
            owners = np.where(
                pairs[0] < 0, self._rows[1].owners(pairs[1]), self._rows[0].owners(pairs[0])
            )
            keys = self._state.space.keys(owners).columns
            columns = more(np.arange(start, start + len(owners))) if more else ()
            self._context.emit(self._columns.batch(keys, values, *columns), None)

    def _emit_alone_of_state(
        self, side: int, elements: Slots, more: Callable[[Slots], Sequence[pa.Array]] | None = None
    ) -> None:
        """Emit rows of the state of one side with nulls for the other; ``more`` as for :meth:`_emit_of_state`."""
        nothing = np.full(len(elements), -1)
        lefts, rights = (nothing, elements) if side else (elements, nothing)
        self._emit_of_state(lefts, rights, more)

    def _emit_pairs(self, side: int, rows: pa.RecordBatch, numbers: Slots, elements: Slots) -> None:
        """Emit pairs of a row of one side and an element of the other side's state."""
        if len(numbers) != rows.num_rows or not np.array_equal(numbers, np.arange(len(numbers))):
            rows = rows.take(pa.array(numbers))
        values = [self._values_of(side, rows), self._rows[1 - side].rows(elements)]
        if side:
            values.reverse()
        self._context.emit(self._columns.batch(self._keys_of(side, rows), values), None)

    def snapshot(self, checkpoint: int, *, savepoint: bool) -> OperatorSnapshot | None:
        """Freeze the rows."""
        snapshot = super().snapshot(checkpoint, savepoint=savepoint)
        if snapshot is not None:
            snapshot.watermark = kept_watermark(self.watermark)
        return snapshot

    def unread_counter(self, output: str | None) -> str:
        """Return the counter of late rows."""
        return LATE_DROPPED if output in LATE_SIDES else super().unread_counter(output)


def _struct_of(stored: pa.Schema) -> pa.StructType:
    """Return the type of a row in state; one that has only keys is a field that says that it is there."""
    fields = [field.with_nullable(True) for field in stored]
    return pa.struct(fields or [pa.field("row", pa.bool_())])


def chosen(rows: pa.RecordBatch, mask: Mask) -> pa.RecordBatch:
    """Return the rows for which a mask is True."""
    return rows if mask.all() else rows.filter(pa.array(mask))
