"""The first rows of each key by an order: an update for each row that comes or goes. ADR 0054."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate._changes import change_field, change_signs, is_changing, without_changes
from headgate.stream.graph.operator import UNKNOWN_DELETES
from headgate.stream.operators.mini_batches import MiniBatches, MiniBatchOperator
from headgate.stream.operators.order import has_numbers, numbers_of
from headgate.stream.operators.updates import change_rows
from headgate.stream.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from headgate.stream.state.keys import Batch, numbered
from headgate.stream.state.row_index import by_group
from headgate.stream.state.table import are_among
from headgate.stream.state.values import is_valid

if TYPE_CHECKING:
    from headgate.stream.graph.operator import OperatorContext
    from headgate.stream.state.backend import KeyedStateBackend
    from headgate.stream.state.descriptors import StateTtlConfig
    from headgate.stream.state.table import Mask, Slots

#: Names of the states: the rows that are in the result; all rows, with how often each is there; the last row's number.
_TOP: Final = "top"
_ALL: Final = "rows"
_BAR: Final = "bar"


@dataclass(frozen=True, slots=True)
class Top:
    """The rows of a key that are in the result.

    Attributes:
        schema: of the input, which may have changes.
        keys: the key columns.
        n: number of rows.
        by: the column by which they are the first; None for the order of arrival.
        descending: True if the greatest come first.
        latest: True if of equal rows the latest comes first.
        rank: name of the column of their places, from 1; None for none.
        update_before: True if an update has the row before it.
        ttl: time to live of keys without rows.
    """

    schema: pa.Schema
    keys: tuple[str, ...]
    n: int
    by: str | None
    descending: bool = True
    latest: bool = False
    rank: str | None = None
    update_before: bool = True
    ttl: StateTtlConfig | None = None

    @property
    def has_places(self) -> bool:
        """True if a row replaces the one in its place, instead of being one of several."""
        return self.n == 1 or self.rank is not None

    @property
    def rows(self) -> pa.Schema:
        """The columns of a row."""
        return without_changes(self.schema)

    @property
    def stored(self) -> list[str]:
        """The columns that are kept: those beside the keys, if there are any."""
        names = self.rows.names
        return [name for name in names if name not in self.keys] or names

    @property
    def result(self) -> pa.Schema:
        """The columns of the result."""
        ranks = [] if self.rank is None else [pa.field(self.rank, pa.int64())]
        by = (*self.keys, *([] if self.rank is None else [self.rank]))
        upserts = by if self.has_places and not self.update_before else None
        shared = None if self.has_places else self.keys
        return pa.schema([*self.rows, *ranks, change_field(upserts, shared)])


@dataclass(frozen=True, slots=True)
class _Places:
    """The rows of a result, sorted by key and place.

    Attributes:
        groups: position of each row's key.
        places: of each row of a key, from 0.
        at: positions of the rows in an array of all that a call is about.
    """

    groups: Slots
    places: Slots
    at: Slots

    def chosen(self, mask: Mask) -> _Places:
        """Return some of the rows."""
        return _Places(self.groups[mask], self.places[mask], self.at[mask])


class TopOperator(MiniBatchOperator):
    """Keeps the first rows of each key.

    Args:
        top: which rows these are.
        batches: how long rows wait for others.
    """

    def __init__(self, top: Top, batches: MiniBatches) -> None:
        super().__init__(batches)
        self._top = top
        self._is_changing = is_changing(top.schema)
        #: Rows to be taken away that were not there.
        self._unknown_deletes = 0
        self._type = pa.struct([top.schema.field(name) for name in top.stored])
        #: With changes, a row that is not among the first may become one of them.
        self._has_bar = not self._is_changing and (
            top.by is None or has_numbers(top.schema.field(top.by).type)
        )

    def open(self, context: OperatorContext) -> None:
        """Restore the rows."""
        super().open(context)
        top = self._top
        key_schema = pa.schema([top.schema.field(key) for key in top.keys])
        backend = self._restore(context, key_schema)
        if self._is_changing:
            self._all = backend.get_state(MapStateDescriptor(_ALL, self._type, pa.int64()))
        if self._has_bar:
            self._bar = backend.get_state(ValueStateDescriptor(_BAR, pa.int64()))
        if top.n == 1:
            self._row = backend.get_state(ValueStateDescriptor(_TOP, self._type))
        else:
            self._list = backend.get_state(ListStateDescriptor(_TOP, self._type))
        self._opened(context, top.ttl)

    def _handle(self, rows: pa.RecordBatch) -> None:
        backend = self._backend
        if backend is None:
            return
        backend.set_keys(rows.select(self._top.keys))
        if self._lives is not None:
            self._lives.touch()
        if self._has_bar:
            mask = self._may_enter(rows, backend)
            if not mask.any():
                return
            if not mask.all():
                rows = rows.filter(pa.array(mask))
                backend.set_keys(rows.select(self._top.keys))
        values = pa.StructArray.from_arrays(
            [rows[name] for name in self._top.stored], fields=list(self._type)
        )
        groups = backend.rows.to_numpy()
        if self._is_changing:
            self._all.add(values, change_signs(rows))
            groups, values = self._all_rows(backend)
        old, before = self._in_result()
        new, values = self._first(old, before, groups, values)
        if self._is_changing and self._lives is not None:
            self._lives.end(np.bincount(new.groups, minlength=backend.keys.num_rows) == 0)
        gone, come = self._differences(old, new, values)
        if len(gone.at) or len(come.at):
            self._store(backend, new, gone, come, values)
            self._emit(backend.keys, gone, come, values)

    def _may_enter(self, rows: pa.RecordBatch, backend: KeyedStateBackend) -> Mask:
        """Return True for each row that comes before the last one in the result, or whose key has too few."""
        numbers, nulls = self._order_of(
            None if self._top.by is None else rows[self._top.by], backend.rows
        )
        bar = self._bar.get().take(backend.rows)
        limits = np.asarray(bar.fill_null(0).to_numpy())
        before = numbers <= limits if self._top.latest else numbers < limits
        mask: Mask = (before & ~nulls) | np.asarray(bar.is_null().to_numpy(zero_copy_only=False))
        return mask

    def _order_of(self, values: pa.Array | None, rows: Sized) -> tuple[Slots, Mask]:
        if values is None:
            return np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
        return numbers_of(values, descending=self._top.descending)

    def _all_rows(self, backend: KeyedStateBackend) -> tuple[Slots, pa.Array]:
        """Return all rows of the current keys, none more often than the result has rows, and their keys' positions."""
        maps = self._all.items()
        groups = np.repeat(np.arange(len(maps)), np.diff(maps.offsets.to_numpy()))
        numbers = np.asarray(maps.items.to_numpy())
        unknown = np.flatnonzero(numbers < 0)
        if len(unknown):
            self._unknown_deletes -= int(numbers[unknown].sum())
            batch = backend.current.batch
            at = batch.first[groups[unknown]]
            columns = batch.columns.take(pa.array(at))
            backend.current.set(Batch(columns, groups[unknown], batch.slots, batch.first))
            self._all.remove(maps.keys.take(pa.array(unknown)))
            backend.current.set(batch)
        times = np.clip(numbers, 0, self._top.n)
        values = maps.keys.take(pa.array(np.repeat(np.arange(len(times)), times)))
        return np.repeat(groups, times), values

    def _in_result(self) -> tuple[_Places, pa.Array]:
        """Return the rows of the current keys that are in the result."""
        if self._top.n == 1:
            groups = np.flatnonzero(self._row.is_there())
            places = np.zeros(len(groups), np.int64)
            if self._has_bar and not self._top.update_before:
                # Nothing is emitted of a row that is replaced, and the bar has its number.
                values = pa.nulls(len(groups), self._type)
            else:
                values = self._row.of(groups)
        else:
            lists = self._list.get()
            lengths = np.diff(lists.offsets.to_numpy())
            groups = np.repeat(np.arange(len(lists)), lengths)
            places = np.arange(len(groups)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            values = lists.flatten()
        return _Places(groups, places, np.arange(len(groups))), values

    def _first(
        self, old: _Places, before: pa.Array, groups: Slots, values: pa.Array
    ) -> tuple[_Places, pa.Array]:
        """Return the rows of the new result, and the values that its positions and those of the old one are about.

        Args:
            old: the rows in the result.
            before: their values.
            groups: position of the key of each row that may enter.
            values: of these rows.
        """
        first = len(before)
        if self._is_changing:
            numbers, nulls = self._order_of(self._by(values), groups)
        elif self._has_bar:
            numbers, nulls = self._order_of(self._by(values), groups)
            of_old = self._numbers_of_old(old, before)
            numbers, nulls = np.r_[of_old[0], numbers], np.r_[of_old[1], nulls]
        else:
            both = pa.concat_arrays(
                [pc.struct_field(part, self._top.by) for part in (before, values)]
            )
            numbers, nulls = self._order_of(both, both)
        if not self._is_changing:
            # The rows in the result are sorted, so they stay before equal ones that have come later.
            groups, first = np.r_[old.groups, groups], 0
        if self._top.latest:
            order, places = by_group(groups[::-1], numbers[::-1], nulls[::-1])
            order = len(groups) - 1 - order
        else:
            order, places = by_group(groups, numbers, nulls)
        chosen = places < self._top.n
        order, places = order[chosen], places[chosen]
        at = order + first
        entering = at >= len(before)
        entered = values.take(pa.array(at[entering] - len(before)))
        at[entering] = len(before) + np.arange(len(entered))
        return _Places(groups[order], places, at), pa.concat_arrays([before, entered])

    def _by(self, values: pa.Array) -> pa.Array | None:
        return None if self._top.by is None else pc.struct_field(values, self._top.by)

    def _numbers_of_old(self, old: _Places, before: pa.Array) -> tuple[Slots, Mask]:
        """Return the order of the rows in the result."""
        if self._top.n > 1:
            return self._order_of(self._by(before), before)
        bar = self._bar.get().take(pa.array(old.groups))
        return np.asarray(bar.fill_null(0).to_numpy()), ~is_valid(bar)

    def _differences(self, old: _Places, new: _Places, values: pa.Array) -> tuple[_Places, _Places]:
        """Return the rows of the old result that are not in the new one, and the reverse."""
        was, now = old.at, new.at
        if self._is_changing:
            was, now = _equal_rows(old, new, values)
        has_places = self._top.has_places
        places = [part.places if has_places else np.zeros_like(part.at) for part in (old, new)]
        count = 1 + max(was.max(initial=0), now.max(initial=0))
        return (
            old.chosen(_by_number(now, places[1], count)[was] != places[0]),
            new.chosen(_by_number(was, places[0], count)[now] != places[1]),
        )

    def _store(
        self,
        backend: KeyedStateBackend,
        new: _Places,
        gone: _Places,
        come: _Places,
        values: pa.Array,
    ) -> None:
        """Keep the rows of the new result of the keys that have changed."""
        slots = backend.current.batch.slots
        changed = np.zeros(len(slots), np.bool_)
        changed[gone.groups] = True
        changed[come.groups] = True
        if self._has_bar:
            self._bar.put(self._bars(new, values, len(slots)), where=pa.array(changed))
        if self._top.n == 1:
            changed[come.groups] = False
            self._row.column.drop(slots[changed])
            self._row.column.put(slots[come.groups], _at(values, come.at))
            return
        chosen = new.chosen(changed[new.groups])
        lengths = np.bincount(chosen.groups, minlength=len(slots))[changed]
        self._list.replace(slots[changed], lengths, _at(values, chosen.at))

    def _bars(self, new: _Places, values: pa.Array, count: int) -> pa.Array:
        """Return the number of the last row of each key whose result is full, null for others."""
        last = new.chosen(new.places == self._top.n - 1)
        rows = _at(values, last.at)
        numbers, nulls = self._order_of(self._by(rows), rows)
        bars, is_open = np.zeros(count, np.int64), np.ones(count, np.bool_)
        bars[last.groups], is_open[last.groups] = numbers, nulls
        return pa.array(bars, mask=is_open)

    def _emit(self, keys: pa.RecordBatch, gone: _Places, come: _Places, values: pa.Array) -> None:
        is_before, is_after = (np.zeros(len(rows.at), np.bool_) for rows in (gone, come))
        if self._top.has_places:
            width = 1 + max(gone.places.max(initial=0), come.places.max(initial=0))
            was, now = (rows.groups * width + rows.places for rows in (gone, come))
            is_before, is_after = are_among(was, now), are_among(now, was)
        if not self._top.update_before:
            gone, is_before = gone.chosen(~is_before), is_before[~is_before]
        if len(gone.at) or len(come.at):
            columns = [self._columns(keys, rows, values) for rows in (gone, come)]
            result = change_rows(self._top.result, columns[0], is_before, columns[1], is_after)
            self._context.emit(result, None)

    def _columns(self, keys: pa.RecordBatch, rows: _Places, values: pa.Array) -> list[pa.Array]:
        """Return the columns of rows in the result, without that of the changes."""
        stored = _at(values, rows.at)
        columns = dict(zip(self._top.stored, stored.flatten(), strict=True))
        named = keys.take(pa.array(rows.groups))
        columns |= dict(zip(self._top.keys, named.columns, strict=True))
        ranks = [] if self._top.rank is None else [pa.array(rows.places + 1)]
        return [*(columns[name] for name in self._top.rows.names), *ranks]

    @property
    def dropped(self) -> Mapping[str, int]:
        """Keys that were forgotten, and rows to be taken away that were not there."""
        return {**super().dropped, UNKNOWN_DELETES: self._unknown_deletes}


def _at(values: pa.Array, at: Slots) -> pa.Array:
    """Return the values at positions, without a copy if they follow each other."""
    # A slice from the start on would keep all values in state.
    is_part = len(at) > 0 and (at[0] > 0 or len(at) == len(values))
    if is_part and (np.diff(at) == 1).all():
        return values.slice(int(at[0]), len(at))
    return values.take(pa.array(at))


def _equal_rows(old: _Places, new: _Places, values: pa.Array) -> tuple[Slots, Slots]:
    """Return a number for each row of two results: those of one result differ, and equal rows of a key have one.

    Args:
        old: the rows of a result, the first values.
        new: those of another one, the others.
        values: of all rows.
    """
    groups, middle = np.r_[old.groups, new.groups], len(old.at)
    columns = [pa.array(groups), values]
    numbers, _ = numbered(pa.RecordBatch.from_arrays(columns, names=["group", "value"]))
    occurrences = np.r_[_occurrences(numbers[:middle]), _occurrences(numbers[middle:])]
    columns = [pa.array(numbers), pa.array(occurrences)]
    numbers, _ = numbered(pa.RecordBatch.from_arrays(columns, names=["row", "occurrence"]))
    return numbers[:middle], numbers[middle:]


def _by_number(numbers: Slots, values: Slots, count: int) -> Slots:
    """Return the value of each number below a count, -1 for one that is not there."""
    by_number = np.full(count, -1)
    by_number[numbers] = values
    return by_number


def _occurrences(numbers: Slots) -> Slots:
    """Return for each number how many equal ones are before it."""
    order, places = by_group(numbers)
    occurrences = np.empty_like(order)
    occurrences[order] = places
    return occurrences
