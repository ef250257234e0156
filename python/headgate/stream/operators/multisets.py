"""The values of each key with how often each is there, for aggregates of rows that come and go. ADR 0054.

A minimum, a maximum, the first and the last value are kept beside them. They are looked for among all values of a key only if
they were taken away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa

from headgate.errors import UnsupportedTypeError
from headgate.stream.state.descriptors import (
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from headgate.stream.state.groups import check_keys
from headgate.stream.state.keys import Batch, numbered
from headgate.stream.state.reducing import Reduction
from headgate.stream.state.types import column_index
from headgate.stream.state.values import is_valid
from headgate.stream.windows.aggregates import Aggregate, Aggregates
from headgate.stream.windows.distinct import elements

if TYPE_CHECKING:
    from headgate.stream.state.backend import KeyedStateBackend
    from headgate.stream.state.maps import MapState
    from headgate.stream.state.states import ValueState
    from headgate.stream.state.table import Mask, Slots

Kind: TypeAlias = Literal["min", "max", "first", "last"]
#: The aggregates that need all values of a key, beside the distinct count.
_BEST: Final = get_args(Kind)
KINDS: Final = frozenset({*_BEST, "count_distinct"})
#: Those for which the order of arrival counts.
_ORDERED: Final[tuple[Kind, ...]] = ("first", "last")


@dataclass(frozen=True, slots=True)
class Multiset:
    """Values that come and go.

    Attributes:
        name: of its states.
        type: of a value.
        kinds: the aggregates that it is for.
    """

    name: str
    type: pa.DataType
    kinds: frozenset[str]

    @property
    def changes(self) -> pa.DataType:
        """Type of the changes of a row or key on the way: a list of values, with 1 or -1 each, in their order."""
        return pa.list_(pa.struct([("value", self.type), ("sign", pa.int8())]))

    def changes_of(self, lists: pa.ListArray, signs: pa.Array) -> pa.ListArray:
        """Return the changes of rows, of which each has a list with its value, or an empty one."""
        owners, values = elements(lists)
        columns = [values, signs.take(pa.array(owners))]
        changes = pa.StructArray.from_arrays(columns, fields=list(self.changes.value_type))
        offsets = pa.array(np.r_[0, np.cumsum(lists.value_lengths().to_numpy())], pa.int32())
        return pa.ListArray.from_arrays(offsets, changes)


class Multisets:
    """The multisets of aggregates whose rows come and go: one for each column and filter.

    Args:
        schema: of the rows.
        aggregates: of :data:`KINDS`.

    Raises:
        UnknownColumnError: the rows have no column of a name.
        UnsupportedTypeError: a column of a type that has no such aggregate, or whose values cannot be told apart.
    """

    def __init__(self, schema: pa.Schema, aggregates: Sequence[Aggregate]) -> None:
        Aggregates(schema, aggregates)  # which have rules of their own
        for item in aggregates:
            _check_values(schema, item)
        sets = [replace(item, kind="count_distinct") for item in aggregates]
        self._inputs = Aggregates(schema, sets)
        kinds: dict[str, set[str]] = {name: set() for name in self._inputs.accumulators}
        #: By column of the result, the multiset and the kind.
        self._results: dict[str, tuple[str, str]] = {}
        for item, of_values in zip(aggregates, sets, strict=True):
            (name,) = Aggregates(schema, [of_values]).accumulators
            kinds[name].add(item.kind)
            self._results[item.result] = name, item.kind
        self.all = [
            Multiset(name, item.type.value_type, frozenset(kinds[name]))
            for name, item in self._inputs.accumulators.items()
        ]

    def partials(self, batch: pa.RecordBatch, signs: pa.Array) -> list[pa.ListArray]:
        """Return the changes of each multiset by the rows of a batch, whose signs are 1 or -1."""
        lists = self._inputs.inputs(batch)
        return [multiset.changes_of(lists[multiset.name], signs) for multiset in self.all]

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The types of the columns of the result."""
        types = {multiset.name: multiset.type for multiset in self.all}
        return {
            result: pa.int64() if kind == "count_distinct" else types[name]
            for result, (name, kind) in self._results.items()
        }

    def results(self, values: Mapping[tuple[str, str], pa.Array]) -> dict[str, pa.Array]:
        """Return the columns of the result from the values of the states."""
        return {result: values[of] for result, of in self._results.items()}


def _check_values(schema: pa.Schema, aggregate: Aggregate) -> None:
    of = schema.field(column_index(schema, aggregate.column or "")).type
    try:
        check_keys(pa.schema([("value", of)]))
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(
            f"a {aggregate.kind} of {aggregate.column!r}, which is of type {of}, in a stream whose rows change",
            have=f"no keys of a map can be made of type {of}",
            remedy=error.remedy,
        ) from error


def joined(groups: Slots, lists: pa.ListArray, count: int) -> pa.ListArray:
    """Return the changes of several rows as one list for each of so many groups, in their order."""
    owners, changes = elements(lists)
    owners = groups[owners]
    offsets = np.r_[0, np.cumsum(np.bincount(owners, minlength=count))]
    order = np.argsort(owners, kind="stable")
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), changes.take(pa.array(order)))


@dataclass(frozen=True, slots=True)
class _Touched:
    """The values of a batch, each once for its key.

    Attributes:
        batch: a row for each.
        values: the values.
        before: how often each was there.
        after: how often each is there.
    """

    batch: Batch
    values: pa.Array
    before: Slots
    after: Slots

    @property
    def is_there(self) -> Mask:
        """True for values that are there now."""
        return self.after > 0


class MultisetState:
    """The state of a multiset, of the current keys of its backend.

    A value is there as long as it has come more often than it was taken away. Its order as the first one is that of
    the row with which it began to be there, and as the last one that of the last row with it.
    """

    def __init__(self, backend: KeyedStateBackend, of: Multiset) -> None:
        self._of, self._current = of, backend.current

        def values(what: str) -> MapState:
            name = f"{what} of {of.name}"
            return backend.get_state(MapStateDescriptor(name, of.type, pa.int64()))

        self._numbers = values("numbers")
        self._orders = {kind: values(kind) for kind in _ORDERED if kind in of.kinds}
        self._best: dict[Kind, ValueState] = {
            kind: backend.get_state(ValueStateDescriptor(f"the {kind} of {of.name}", of.type))
            for kind in _BEST
            if kind in of.kinds
        }
        sums = [
            *(["arrivals"] if self._orders else []),
            *(["count_distinct"] if "count_distinct" in of.kinds else []),
        ]
        self._sums = {
            what: backend.get_state(
                ReducingStateDescriptor(f"{what} in {of.name}", "sum", pa.int64())
            )
            for what in sums
        }

    def add(self, lists: pa.ListArray) -> None:
        """Apply the changes of a list per row."""
        owners, changes = elements(lists)
        if not len(owners):
            return
        batch = self._current.batch
        keys = Batch(batch.keys, every := np.arange(len(batch.slots)), batch.slots, every)
        values, signs = changes.flatten()
        owners, signs = batch.rows[owners], np.asarray(signs.to_numpy()).astype(np.int64)
        columns = [pa.array(owners), values]
        groups, first = numbered(pa.RecordBatch.from_arrays(columns, names=["key", "value"]))
        values, owners = values.take(pa.array(first)), owners[first]
        rows = Batch(keys.columns.take(pa.array(owners)), owners, batch.slots, batch.first)
        before = self._read(self._numbers, rows, values)
        after = before.copy()
        np.add.at(after, groups, signs)
        after = np.maximum(after, 0)  # a value that is not there cannot go
        touched = _Touched(rows, values, before, after)
        best = {kind: state.get() for kind, state in self._best.items()}
        order = self._first_order(keys, best)
        self._current.set(rows)
        self._numbers.add(values, after - before)
        if self._orders:
            self._reorder(touched, groups, signs)
        if "count_distinct" in self._sums:
            come = touched.is_there.astype(np.int64) - (before > 0)
            self._sums["count_distinct"].add(pa.array(come))
        for kind, state in self._best.items():
            stays = self._read(self._numbers, keys, best[kind]) > 0
            if kind == "first":  # it may have gone and come again
                stays &= self._first_order(keys, best) == order
            chosen = self._chosen(kind, touched, keys, best[kind], stays)
            self._current.set(batch)
            state.put(chosen)
        self._current.set(batch)

    def _first_order(self, keys: Batch, best: Mapping[Kind, pa.Array]) -> Slots | None:
        """Return the order of each key's first value, if that is asked for."""
        return self._read(self._orders["first"], keys, best["first"]) if "first" in best else None

    def _read(self, state: MapState, rows: Batch, values: pa.Array) -> Slots:
        """Return the number of each row's value; 0 if there is none."""
        self._current.set(rows)
        return np.array(state.get(values).fill_null(0).to_numpy())

    def _reorder(self, touched: _Touched, groups: Slots, signs: Slots) -> None:
        """Keep the orders of values that have begun to be there or have come again, and none of those that are gone.

        Args:
            touched: the values.
            groups: for each change in its order, the position of its value.
            signs: of the changes.
        """
        order = np.argsort(groups, kind="stable")
        sums = np.cumsum(signs[order])
        starts = np.searchsorted(groups[order], np.arange(len(touched.values)))
        base = touched.before - (sums[starts] - signs[order][starts])
        #: How often the value of each change is there after it.
        now = np.empty_like(signs)
        now[order] = sums + base[groups[order]]
        owners, arrivals = touched.batch.rows, self._sums["arrivals"]
        so_far = np.asarray(arrivals.get().fill_null(1).to_numpy())[owners]
        is_there = touched.is_there
        for kind, state in self._orders.items():
            counts = (signs > 0) & (now == 1 if kind == "first" else now > 0)
            at = np.full(len(owners), -1)
            # Of several changes of a value the last assignment counts.
            at[groups[counts]] = np.flatnonzero(counts)
            state.put(touched.values, so_far + at, where=is_there & (at >= 0))
            state.remove(touched.values, where=~is_there)
        # Once for each key: its numbers need only grow.
        grown = np.zeros(len(owners), np.int64)
        grown[np.unique(owners, return_index=True)[1]] = 1 + len(groups)
        arrivals.add(grown)

    def _chosen(
        self, kind: Kind, touched: _Touched, keys: Batch, best: pa.Array, stays: Mask
    ) -> pa.Array:
        """Return the best value of each key: of those that came and the one so far, or of all if that is gone."""
        lost = np.flatnonzero(is_valid(best) & ~stays)
        same, come = np.flatnonzero(stays), np.flatnonzero(touched.is_there)
        state = self._orders.get(kind, self._numbers)
        self._current.set(Batch(keys.columns, lost, keys.slots[lost], lost))
        maps = state.items()
        owners = np.repeat(lost, np.diff(maps.offsets.to_numpy()))
        values = [best.take(pa.array(same)), touched.values.take(pa.array(come)), maps.keys]
        numbers = np.concatenate(
            [
                self._read(state, keys, best)[same],
                self._read(state, touched.batch, touched.values)[come],
                maps.items.to_numpy(),
            ]
        )
        groups = np.concatenate([same, touched.batch.rows[come], owners])
        if kind in self._orders:
            by = np.lexsort((numbers if kind == "last" else -numbers, groups))
            by = by[np.flatnonzero(np.diff(groups[by], append=-1))]
            present, chosen = groups[by], pa.concat_arrays(values).take(pa.array(by))
        else:
            there = numbers > 0
            there_values = pa.concat_arrays(values).filter(pa.array(there))
            reduction = Reduction(kind, self._of.type, self._of.name)
            present, chosen = reduction.of_groups(groups[there], there_values)
        place = np.full(len(best), -1)
        place[present] = np.arange(len(present))
        return chosen.take(pa.array(place, mask=place < 0))

    def values(self) -> dict[tuple[str, str], pa.Array]:
        """Return the values of each kind, one for each distinct key, by the name of the multiset and the kind."""
        values: dict[tuple[str, str], pa.Array] = {
            (self._of.name, kind): state.get() for kind, state in self._best.items()
        }
        if "count_distinct" in self._sums:
            numbers = self._sums["count_distinct"].get().fill_null(0)
            values[self._of.name, "count_distinct"] = numbers
        return values

    def clear(self, *, where: pa.Array) -> None:
        """Remove the values of some distinct keys."""
        for state in (self._numbers, *self._orders.values()):
            state.clear(where=where)
        for single in (*self._best.values(), *self._sums.values()):
            single.clear(where=where)
